"""Files of tensors, read by their header only: safetensors, GGUF, and indexes of shards.

What a file is is decided by its first bytes, not by its name.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..protocol.errors import ModelLoadFailed

INDEX = ".safetensors.index.json"
SUFFIXES = (".safetensors", ".sft", ".gguf", INDEX)
_PICKLES = (".ckpt", ".pt", ".pth", ".bin", ".pkl", ".pt2")
_SHARD = re.compile(r"-\d{5}-of-(\d{5})\.(safetensors|gguf)$")
_LONGEST_HEADER = 100 << 20
"""Bytes; the limit of the safetensors library."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as a file describes it.

    Attributes:
        dtype: as the file names it: `BF16`, `F8_E4M3`, `Q8_0`.
        shape: as torch has it.
    """

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class TensorFile:
    """A file's tensors by name, without their data.

    Attributes:
        path: the file, or the index of its shards.
        format: `safetensors` or `gguf`.
        tensors: in the file's order.
        metadata: what else the header says, such as a quantiser's notes.
        files: the files that hold the data.
    """

    path: Path
    format: str
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, Any]
    files: tuple[Path, ...] = field(default=())

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(path.stat().st_size for path in self.files)


def read_tensor_file(path: Path) -> TensorFile:
    """Read a file's header and check the file against it.

    Raises:
        ModelLoadFailed: names the file and says what it is instead, or what is missing.
    """
    if path.name.endswith(INDEX):
        return _read_index(path)
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        raise _failure(path, f"cannot be read ({error.strerror})") from error
    _refuse_what_is_no_tensor_file(path, start)
    shard = _SHARD.search(path.name)
    if shard:
        raise _failure(
            path,
            f"is one of {int(shard[1])} parts. Give the index beside it (…{INDEX}), or the folder",
        )
    return _read_gguf(path) if start.startswith(b"GGUF") else _read_safetensors(path)


def check_safetensors(path: Path) -> None:
    """Compare the file's length with what its header promises.

    Raises:
        ModelLoadFailed: it is corrupt, or not all there.
    """
    _read_safetensors(path)


def _refuse_what_is_no_tensor_file(path: Path, start: bytes) -> None:
    header = start[8:9] == b"{"  # whose length may begin with any bytes
    pickled = start.startswith((b"PK\x03\x04", b"\x80")) or path.suffix.lower() in _PICKLES
    if pickled and not header:
        raise _failure(
            path,
            "is a pickle, and loading one runs whatever code is in it. "
            "Only safetensors and GGUF files are loaded: look for one, or convert it",
        )
    if start.startswith(b"version https://git-lfs"):
        raise _failure(path, "is a pointer of Git LFS, not the file itself: run `git lfs pull`")
    if start.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise _failure(path, "is a web page: the download was refused. Download it again")


def _read_safetensors(path: Path) -> TensorFile:
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            head = json.loads(file.read(min(length, size, _LONGEST_HEADER)))
        metadata = head.pop("__metadata__", {})
        tensors = {k: TensorInfo(v["dtype"], tuple(v["shape"])) for k, v in head.items()}
        data = max((int(v["data_offsets"][1]) for v in head.values()), default=0)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ModelLoadFailed(f"The weight file {path} is corrupt.", field=path.name) from error
    _check_size(path, size, 8 + length + data)
    return TensorFile(path, "safetensors", tensors, metadata, (path,))


def _check_size(path: Path, size: int, expected: int) -> None:
    if expected != size:
        raise ModelLoadFailed(
            f"The weight file {path} has {size} bytes, but its header promises {expected}: "
            "the download is incomplete or the file is corrupt.",
            field=path.name,
        )


def _read_index(path: Path) -> TensorFile:
    try:
        weight_map = json.loads(path.read_text("utf-8"))["weight_map"]
        names = sorted(set(weight_map.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _failure(path, "is not an index of shards") from error
    tensors: dict[str, TensorInfo] = {}
    for name in names:
        shard = path.parent / Path(name).name
        if not shard.is_file():
            raise ModelLoadFailed(f"The weight file {shard} is missing.", field=shard.name)
        tensors |= _read_safetensors(shard).tensors
    missing = [name for name in weight_map if name not in tensors]
    if missing:
        raise _failure(path, f"names {len(missing)} tensors its shards lack, first {missing[0]}")
    return TensorFile(
        path, "safetensors", tensors, {}, tuple(path.parent / Path(name).name for name in names)
    )


_GGUF_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"} | {
    10: "Q",
    11: "q",
    12: "d",
}
_GGUF_TEXT, _GGUF_LIST = 8, 9
_GGUF_MOST = 1 << 24
"""Most tensors, facts or items of a list; more is a corrupt file."""


def _read_gguf(path: Path) -> TensorFile:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        with path.open("rb") as file:
            reader = _GGUFReader(file)
            tensors, facts, places = reader.header()
            start = reader.data_start(int(facts.get("general.alignment", 32)))
        end = start
        for (kind, offset), info in zip(places, tensors.values(), strict=True):
            block, width = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
            count = 1
            for side in info.shape:
                count *= side
            end = max(end, start + offset + count // block * width)
    except (struct.error, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise ModelLoadFailed(f"The weight file {path} is corrupt.", field=path.name) from error
    size = path.stat().st_size
    if size < end:  # it may be longer: the last tensor is padded, too
        _check_size(path, size, end)
    return TensorFile(path, "gguf", tensors, facts, (path,))


class _GGUFReader:
    """Reads the header of a GGUF file, version 2 or 3; lists of text are skipped."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def header(self) -> tuple[dict[str, TensorInfo], dict[str, Any], list[tuple[int, int]]]:
        """Tensors by name, facts by name, and each tensor's (type, offset)."""
        from gguf.constants import GGMLQuantizationType

        self._file.seek(4)
        version, count, facts = self._unpack("IQQ")
        if version not in (2, 3) or max(count, facts) > _GGUF_MOST:
            raise ValueError(version)
        found = {}
        for _ in range(facts):
            name = self._text()
            found[name] = self._value(*self._unpack("I"))
        tensors, places = {}, []
        for _ in range(count):
            name = self._text()
            (sides,) = self._unpack("I")
            shape = self._unpack(f"{min(sides, 8)}Q")
            kind, offset = self._unpack("IQ")
            tensors[name] = TensorInfo(GGMLQuantizationType(kind).name, tuple(reversed(shape)))
            places.append((kind, offset))
        return tensors, found, places

    def data_start(self, alignment: int) -> int:
        """Where the tensors' data begins."""
        return int(-(-self._file.tell() // alignment) * alignment)

    def _unpack(self, words: str) -> tuple[Any, ...]:
        form = struct.Struct(f"<{words}")
        return form.unpack(self._file.read(form.size))

    def _text(self) -> str:
        (length,) = self._unpack("Q")
        if length > _LONGEST_HEADER:
            raise ValueError(length)
        return str(self._file.read(length), "utf-8")

    def _value(self, kind: int) -> Any:
        if kind in _GGUF_NUMBERS:
            return self._unpack(_GGUF_NUMBERS[kind])[0]
        if kind == _GGUF_TEXT:
            return self._text()
        if kind != _GGUF_LIST:
            raise ValueError(kind)
        item, count = self._unpack("IQ")
        if count > _GGUF_MOST:
            raise ValueError(count)
        if item in _GGUF_NUMBERS:
            return list(self._unpack(f"{count}{_GGUF_NUMBERS[item]}"))
        return [self._value(item) for _ in range(count)]


def _failure(path: Path, words: str) -> ModelLoadFailed:
    return ModelLoadFailed(f"The file {path} {words}.", field=path.name)
