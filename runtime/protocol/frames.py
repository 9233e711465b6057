"""A message with tensors: a JSON header and raw bytes, in the safetensors layout.

    8 bytes   little-endian length N of the header
    N bytes   JSON: {"__metadata__": {"omnistage": "<header as JSON>"},
                     "<tensor>": {"dtype": "F32", "shape": [..], "data_offsets": [a, b]}, ..}
    rest      the tensors' bytes, little-endian, one after another

Any safetensors reader can open a frame. It is read here without that library, because this
module also runs inside ComfyUI's Python, and because a frame from a stranger must be refused
with words: every length, dtype and offset is checked before a byte is used.

Source: https://huggingface.co/docs/safetensors (format)
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import ProtocolError, TooLarge

MAX_FRAME_BYTES = 2 << 30
MAX_HEADER_BYTES = 16 << 20
MAX_TENSORS = 4096

_LENGTH = struct.Struct("<Q")
_METADATA = "__metadata__"
_OWN_KEY = "omnistage"
_NUMPY_BY_TAG = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
    "BF16": "<u2",
}
_TAG_BY_NUMPY = {np.dtype(v): k for k, v in _NUMPY_BY_TAG.items() if k != "BF16"}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One array on the wire.

    numpy has no bfloat16, so a `BF16` tensor is carried as its bit pattern in a uint16 array;
    `tag` says which it is.
    """

    array: npt.NDArray[Any]
    tag: str

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> Tensor:
        """Wrap a numpy array of a plain dtype.

        Raises:
            ProtocolError: the dtype cannot travel (objects, strings, complex ...).
        """
        tag = _TAG_BY_NUMPY.get(array.dtype.newbyteorder("<"))
        if tag is None:
            raise ProtocolError(
                f"A tensor of dtype {array.dtype} cannot travel.",
                field="dtype",
                value=str(array.dtype),
                allowed=", ".join(_NUMPY_BY_TAG),
            )
        return cls(array, tag)

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return int(self.array.nbytes)


@dataclass(frozen=True, slots=True)
class Frame:
    """A JSON header and named tensors."""

    header: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors together (the header is not counted)."""
        return sum(t.nbytes for t in self.tensors.values())

    def encode(self) -> bytes:
        """The frame as bytes."""
        head: dict[str, Any] = {_METADATA: {_OWN_KEY: json.dumps(self.header)}}
        chunks, end = [], 0
        for name, tensor in self.tensors.items():
            data = np.ascontiguousarray(tensor.array).tobytes()
            head[name] = {
                "dtype": tensor.tag,
                "shape": list(tensor.array.shape),
                "data_offsets": [end, end + len(data)],
            }
            chunks.append(data)
            end += len(data)
        header = json.dumps(head).encode()
        header += b" " * (-len(header) % 8)  # keeps the tensors aligned
        return b"".join([_LENGTH.pack(len(header)), header, *chunks])

    @classmethod
    def decode(cls, data: bytes | memoryview, *, limit_bytes: int = MAX_FRAME_BYTES) -> Frame:
        """Read a frame; the tensors are views into `data`.

        Raises:
            TooLarge: the frame, or a number in its header, is over a limit.
            ProtocolError: truncated, inconsistent, or not a frame at all.
        """
        if len(data) > limit_bytes:
            raise TooLarge(
                f"The message has {len(data)} bytes; at most {limit_bytes} are accepted.",
                field="body",
                value=len(data),
                allowed=f"at most {limit_bytes} bytes",
            )
        view = memoryview(data)
        head, body = _split(view)
        entries = [(n, e) for n, e in head.items() if n != _METADATA]
        if len(entries) > MAX_TENSORS:
            raise TooLarge(f"The message has {len(entries)} tensors; at most {MAX_TENSORS}.")
        tensors, end = {}, 0
        for name, entry in entries:
            tensors[name], end = _read_tensor(name, entry, body, end)
        if end != len(body):
            raise ProtocolError(f"The message has {len(body) - end} bytes after its last tensor.")
        return cls(_own_header(head), tensors)


def _split(view: memoryview) -> tuple[dict[str, Any], memoryview]:
    if len(view) < _LENGTH.size:
        raise ProtocolError(f"The message is truncated: {len(view)} bytes hold no header.")
    (length,) = _LENGTH.unpack(view[: _LENGTH.size])
    if length > MAX_HEADER_BYTES:
        raise TooLarge(f"The message announces a header of {length} bytes; that is too long.")
    body = view[_LENGTH.size :]
    if length > len(body):
        raise ProtocolError(f"The message is truncated: its header needs {length} bytes.")
    try:
        head = json.loads(bytes(body[:length]))
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or endless digits
        raise ProtocolError(f"The message's header is not JSON: {error}") from error
    if not isinstance(head, dict):
        raise ProtocolError("The message's header is not a JSON object.")
    return head, body[length:]


def _own_header(head: dict[str, Any]) -> dict[str, Any]:
    metadata = head.get(_METADATA, {})
    text = metadata.get(_OWN_KEY, "{}") if isinstance(metadata, dict) else None
    try:
        header = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"The message's own header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ProtocolError("The message's own header is not a JSON object.")
    return header


def _read_tensor(name: str, entry: Any, body: memoryview, expected: int) -> tuple[Tensor, int]:
    """Check one header entry against the bytes and view them as an array."""
    try:
        tag, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise ProtocolError(f"Tensor {name!r}: dtype, shape or data_offsets is missing.") from error
    if not isinstance(tag, str) or tag not in _NUMPY_BY_TAG:
        raise ProtocolError(
            f"Tensor {name!r} has dtype {tag!r}.",
            field=name,
            value=str(tag),
            allowed=", ".join(_NUMPY_BY_TAG),
        )
    numbers = [start, end, *shape] if isinstance(shape, list) else [None]
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise ProtocolError(f"Tensor {name!r}: shape or offsets are not whole numbers >= 0.")
    dtype = np.dtype(_NUMPY_BY_TAG[tag])
    if start != expected or end - start != math.prod(shape) * dtype.itemsize:
        raise ProtocolError(
            f"Tensor {name!r}: its bytes {start}..{end} do not fit shape {shape} of {tag}."
        )
    if end > len(body):
        raise ProtocolError(f"The message is truncated: tensor {name!r} ends at byte {end}.")
    try:
        return Tensor(np.frombuffer(body[start:end], dtype).reshape(shape), tag), end
    except ValueError as error:  # more or larger dimensions than numpy has
        raise ProtocolError(f"Tensor {name!r}: its shape is impossible: {error}") from error


def merge_frames(frames: Mapping[str, Frame]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Named frames as JSON plus numbered tensors, so that they fit into one frame."""
    heads: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for name, frame in frames.items():
        numbers = {}
        for tensor_name, tensor in frame.tensors.items():
            numbers[tensor_name] = str(len(tensors))
            tensors[numbers[tensor_name]] = tensor
        heads[name] = {"header": dict(frame.header), "tensors": numbers}
    return heads, tensors


def split_frames(heads: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Frame]:
    """The inverse of `merge_frames`."""
    return {
        name: Frame(head["header"], {k: tensors[number] for k, number in head["tensors"].items()})
        for name, head in heads.items()
    }
