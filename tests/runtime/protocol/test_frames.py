from __future__ import annotations

import contextlib
import json
import struct

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.numpy import load as safetensors_load

from omnistage.runtime.protocol.errors import InvalidRequest, ProtocolError, TooLarge
from omnistage.runtime.protocol.frames import Frame, Tensor

FRAME = Frame(
    {"kind": "latent", "note": "ü"},
    {
        "a": Tensor.of(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "b": Tensor.of(np.array([True, False])),
        "empty": Tensor.of(np.zeros((0, 4), np.float16)),
    },
)


def raw(header: dict[str, object], body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def test_a_frame_survives_the_wire() -> None:
    back = Frame.decode(FRAME.encode())
    assert back.header == FRAME.header
    for name, tensor in FRAME.tensors.items():
        assert np.array_equal(back.tensors[name].array, tensor.array)
        assert back.tensors[name].tag == tensor.tag


def test_any_safetensors_reader_opens_a_frame() -> None:
    loaded = safetensors_load(FRAME.encode())
    assert np.array_equal(loaded["a"], FRAME.tensors["a"].array)


def test_a_safetensors_file_is_a_frame() -> None:
    value = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    tensor = Frame.decode(safetensors.torch.save({"x": value})).tensors["x"]
    assert tensor.tag == "BF16"
    bits = torch.from_numpy(tensor.array.view(np.int16).copy())
    assert torch.equal(bits.view(torch.bfloat16), value)


def test_truncation_at_every_byte_is_refused() -> None:
    data = FRAME.encode()
    for end in range(len(data)):
        with pytest.raises(InvalidRequest):
            Frame.decode(data[:end])


def test_random_damage_never_escapes_as_another_error() -> None:
    data, random = FRAME.encode(), np.random.default_rng(0)
    for _ in range(500):
        damaged = bytearray(data)
        for at in random.integers(0, len(data), 3):
            damaged[at] = random.integers(0, 256)
        with contextlib.suppress(InvalidRequest):
            Frame.decode(bytes(damaged))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}, "dtype"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "do not fit"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "whole numbers"),
        ({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}, "whole numbers"),
        ({"dtype": "F32", "shape": [1e0], "data_offsets": [0, 4]}, "whole numbers"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}, "do not fit"),
        ({"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}, "truncated"),
        ({"dtype": "F32", "shape": [1]}, "missing"),
        ("nonsense", "missing"),
    ],
)
def test_a_header_that_does_not_fit_its_bytes_is_refused(entry: object, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        Frame.decode(raw({"x": entry}, b"\0" * 4))


def test_overlapping_tensors_are_refused() -> None:
    entry = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    with pytest.raises(ProtocolError, match="do not fit"):
        Frame.decode(raw({"x": entry, "y": entry}, b"\0" * 4))


def test_limits() -> None:
    with pytest.raises(TooLarge):
        Frame.decode(FRAME.encode(), limit_bytes=10)
    with pytest.raises(TooLarge):
        Frame.decode(struct.pack("<Q", 2**60) + b"{}")


@pytest.mark.parametrize("text", [b"[1]", b"\xff\xfe", b"{" * 100_000])
def test_a_header_that_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        Frame.decode(struct.pack("<Q", len(text)) + text)


def test_objects_do_not_travel() -> None:
    with pytest.raises(ProtocolError, match="cannot travel"):
        Tensor.of(np.array([object()]))
