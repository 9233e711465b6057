"""The LoRA files of a model: which there are, by what names, and their revisions.

Knows nothing of what is in them; `lora_load` reads them where the model is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..protocol.errors import InvalidRequest

LORA_FOLDER = "loras"
"""The folder of adapters in a model's own."""

_SUFFIX = ".safetensors"
_WINDOW = 1 << 16
_WINDOWS = 64


@dataclass(frozen=True, slots=True)
class LoRAFile:
    """One adapter file.

    Attributes:
        name: its path below its folder, with `/` and without the ending.
    """

    name: str
    path: Path

    @property
    def revision(self) -> str:
        """See `file_revision`."""
        return file_revision(self.path)


@dataclass(frozen=True, slots=True)
class LoRAFolders:
    """Folders with adapter files; where two hold the same name, the earlier counts.

    The folders are read anew each time: a file that is put there is there.
    """

    folders: Sequence[Path]

    def files(self) -> dict[str, LoRAFile]:
        """All files by name. Only what lies in its folder counts, also behind a link."""
        found = [file for folder in self.folders for file in _files(folder)]
        return {file.name: file for file in sorted(reversed(found), key=lambda file: file.name)}

    def find(self, name: str) -> LoRAFile:
        """The file of that name; a name is looked up, never used as a path.

        Raises:
            InvalidRequest: there is none; says which there are.
        """
        files = self.files()
        if name not in files:
            raise InvalidRequest(
                f"LoRA {name!r} is not on this runtime; it has {_listed(files)}.",
                field="loras",
                value=name,
                allowed=_listed(files),
            )
        return files[name]

    def with_revisions(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters whose `loras` say which content is meant: another file, another result.

        Raises:
            InvalidRequest: see `find`.
        """
        if not params.get("loras"):
            return dict(params)
        loras = [{**lora, "revision": self.find(lora["name"]).revision} for lora in params["loras"]]
        return {**params, "loras": loras}


def _files(folder: Path) -> Iterator[LoRAFile]:
    root = folder.resolve()
    for path in folder.rglob(f"*{_SUFFIX}"):
        target = path.resolve()
        if target.is_file() and target.is_relative_to(root):
            yield LoRAFile(path.relative_to(folder).as_posix().removesuffix(_SUFFIX), target)


def _listed(files: Mapping[str, LoRAFile], most: int = 20) -> str:
    names = list(files)
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more]) or "none"


def file_revision(path: Path) -> str:
    """A hash that changes when a file's content does.

    Large files count by their size and by 64 parts that are spread over them.
    """
    stat = path.stat()
    return _hash(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4096)
def _hash(path: Path, size: int, changed_ns: int) -> str:
    digest = hashlib.sha256(b"%d" % size)
    with path.open("rb") as file:
        if size <= _WINDOW * _WINDOWS:
            digest.update(file.read())
        else:
            for i in range(_WINDOWS):
                file.seek((size - _WINDOW) * i // (_WINDOWS - 1))
                digest.update(file.read(_WINDOW))
    return digest.hexdigest()[:16]
