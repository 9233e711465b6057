"""A model folder in diffusers layout, checked without loading it."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..protocol.errors import ModelLoadFailed
from .family import Family, family_of

_SAMPLE_BYTES = 1 << 16
_OWN_FILE = "omnistage.json"


@dataclass(frozen=True)
class Checkpoint:
    """A model folder, in the layout of diffusers or transformers, whose family is known.

    Attributes:
        index: content of `model_index.json` (diffusers) or `config.json` (transformers).
        overrides: content of the folder's `omnistage.json`: the checkpoint's own defaults
            and limits, e.g. `{"defaults": {"sample": {"width": 64}}}`. Absent means none.
    """

    folder: Path
    family: Family
    index: dict[str, Any]
    overrides: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Find the family of a folder and check that its files are whole.

        Raises:
            ModelLoadFailed: names the file that is missing or corrupt, or the class that no
                family of this runtime owns.
        """
        if not folder.is_dir():
            raise ModelLoadFailed(
                f"There is no model folder {folder}. Give the path of a folder in diffusers or "
                "transformers layout, or the id of a repository that is in the local hub cache.",
                field="path",
                value=str(folder),
            )
        path = folder / "config.json"
        if not path.exists():
            path = folder / "model_index.json"
        index = _read_json(path)
        family = family_of(index)
        if family is None:
            name = str(index.get("_class_name") or index.get("architectures"))
            raise ModelLoadFailed(
                f"{path} is for {name}, which this runtime does not serve.",
                field=path.name,
                value=name,
            )
        own = folder / _OWN_FILE
        checkpoint = cls(folder, family, index, _read_json(own) if own.exists() else {})
        checkpoint.check_files()
        return checkpoint

    def check_files(self) -> None:
        """Check that every component is there and every weight file is as long as it says.

        Raises:
            ModelLoadFailed: names the first file that is missing or corrupt.
        """
        for component in sorted(self.family.components):
            if not (self.folder / component).is_dir():
                raise ModelLoadFailed(
                    f"The model folder {self.folder} has no {component}/.", field=component
                )
        for path in self._files("*.json"):
            _read_json(path)
        for path in self._files("*.safetensors"):
            _check_safetensors(path)
        for path in self._files("*.safetensors.index.json"):
            _check_shards(path)

    def read_json(self, name: str) -> dict[str, Any]:
        """One of the folder's JSON files; empty if there is none of that name."""
        path = self.folder / name
        return _read_json(path) if path.exists() else {}

    @cached_property
    def revision(self) -> str:
        """A hash that changes when the checkpoint's content does.

        Configs count whole; of weight files their size, beginning and end count.
        """
        digest = hashlib.sha256()
        for path in self._files("*"):
            if path.suffix in (".json", ".txt", ".safetensors", ".pt"):
                digest.update(str(path.relative_to(self.folder)).encode())
                digest.update(_sample(path))
        return digest.hexdigest()[:16]

    def weight_bytes(self) -> int:
        """Bytes of all weight files together."""
        return sum(path.stat().st_size for path in self._files("*.safetensors"))

    def _files(self, pattern: str) -> list[Path]:
        return sorted(p for p in self.folder.rglob(pattern) if p.is_file())


def _read_json(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ModelLoadFailed(f"The file {path} is missing.", field=path.name) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelLoadFailed(f"The file {path} is not JSON: {error}", field=path.name) from error
    if not isinstance(body, dict):
        raise ModelLoadFailed(f"The file {path} is not a JSON object.", field=path.name)
    return body


def _check_safetensors(path: Path) -> None:
    """Compare the file's length with what its header promises."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            head = json.loads(file.read(min(length, size)))
        data = max(
            (v["data_offsets"][1] for k, v in head.items() if k != "__metadata__"), default=0
        )
        expected = 8 + length + data
    except (struct.error, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise ModelLoadFailed(f"The weight file {path} is corrupt.", field=path.name) from error
    if expected != size:
        raise ModelLoadFailed(
            f"The weight file {path} has {size} bytes, but its header promises {expected}: "
            "the download is incomplete or the file is corrupt.",
            field=path.name,
        )


def _check_shards(path: Path) -> None:
    for name in set(_read_json(path).get("weight_map", {}).values()):
        if not (path.parent / name).is_file():
            raise ModelLoadFailed(f"The weight file {path.parent / name} is missing.", field=name)


def _sample(path: Path) -> bytes:
    size = path.stat().st_size
    with path.open("rb") as file:
        if path.suffix in (".json", ".txt") or size <= 2 * _SAMPLE_BYTES:
            return file.read()
        head = file.read(_SAMPLE_BYTES)
        file.seek(-_SAMPLE_BYTES, 2)
        return b"%d" % size + head + file.read()
