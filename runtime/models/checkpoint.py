"""A model: a folder in diffusers layout, its components perhaps in files elsewhere; not loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..protocol.errors import ModelLoadFailed
from .component_source import ComponentSource
from .family import Family, family_of
from .lora import LORA_FOLDER
from .tensor_file import check_safetensors, read_tensor_file

_SAMPLE_BYTES = 1 << 16
_OWN_FILE = "omnistage.json"
_INDEX = "model_index.json"
_TEXTS = (".json", ".txt", ".jinja", ".py")
_INDEXES = ("config.json", _INDEX, "modular_model_index.json")


@dataclass(frozen=True)
class Checkpoint:
    """A model folder, in the layout of diffusers or transformers, whose family is known.

    Attributes:
        index: content of `model_index.json` or `modular_model_index.json` (diffusers) or
            `config.json` (transformers).
        overrides: content of the folder's `omnistage.json`: the checkpoint's own defaults
            and limits, e.g. `{"defaults": {"sample": {"width": 64}}}`. Absent means none.
        elsewhere: components that are not in the folder, by name; see `model_files`.
        controlnets: what requests may name in `control`; see `controlnet`.
        trust_remote_code: whether Python code in the folder may be run; see `remote_code`.
    """

    folder: Path
    family: Family
    index: dict[str, Any]
    overrides: dict[str, Any]
    elsewhere: Mapping[str, ComponentSource] = field(default_factory=dict)
    controlnets: Mapping[str, ComponentSource] = field(default_factory=dict)
    trust_remote_code: bool = False

    @classmethod
    def open(
        cls, folder: Path, elsewhere: Mapping[str, ComponentSource] | None = None
    ) -> Checkpoint:
        """Find the family of a folder and check that its files are whole.

        Args:
            folder: in diffusers or transformers layout.
            elsewhere: where components are that the folder lacks, or that replace its own.

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
        path = next((p for p in map(folder.joinpath, _INDEXES) if p.exists()), folder / _INDEX)
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
        overrides = _read_json(own) if own.exists() else {}
        checkpoint = cls(folder, family, index, overrides, dict(elsewhere or {}))
        checkpoint.check_files()
        return checkpoint

    def source(self, component: str) -> ComponentSource:
        """Where a component is."""
        return self.elsewhere.get(component) or ComponentSource(component, self.folder / component)

    def check_files(self) -> None:
        """Check that every component is there and every weight file is as long as it says.

        Raises:
            ModelLoadFailed: names the first file that is missing or corrupt.
        """
        for component in sorted(self.family.components):
            if not self.source(component).folder.is_dir():
                raise ModelLoadFailed(
                    f"The model folder {self.folder} has no {component}/.", field=component
                )
        for path in self._files("*.json"):
            _read_json(path)
        for path in self._files("*.safetensors"):
            check_safetensors(path)
        for path in self._files("*.safetensors.index.json"):
            read_tensor_file(path)
        for source in self.elsewhere.values():
            if source.file is not None:
                read_tensor_file(source.file)

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
        for name, path in self._parts():
            digest.update(name.encode())
            digest.update(_sample(path))
        return digest.hexdigest()[:16]

    def weight_bytes(self) -> int:
        """Bytes of all weight files together."""
        own = {path for path in self._files("*.safetensors")}
        return sum(path.stat().st_size for path in own.union(*self._files_elsewhere().values()))

    def _parts(self) -> Iterator[tuple[str, Path]]:
        """Every file that a result depends on, and its name within the model."""
        for path in self._files("*"):
            if path.suffix in (*_TEXTS, ".safetensors", ".pt"):
                yield str(path.relative_to(self.folder)), path
        for name, files in sorted(self._files_elsewhere().items()):
            yield from ((f"{name}/{self.elsewhere[name].prefix}", path) for path in files)

    def _files_elsewhere(self) -> dict[str, list[Path]]:
        """Files of the components that are not in the folder, by component."""
        return {
            name: sorted(p for p in source.folder.iterdir() if p.is_file())
            if source.file is None
            else list(read_tensor_file(source.file).files)
            for name, source in self.elsewhere.items()
        }

    def _files(self, pattern: str) -> list[Path]:
        """The folder's files, without weights that are replaced from elsewhere, and adapters."""
        found = (p for p in self.folder.rglob(pattern) if p.is_file())
        own = (p for p in found if p.relative_to(self.folder).parts[0] != LORA_FOLDER)
        return sorted(p for p in own if not self._is_replaced(p))

    def _is_replaced(self, path: Path) -> bool:
        component = path.relative_to(self.folder).parts[0]
        return component in self.elsewhere and path.name not in ("config.json",)


def has_component(index: Mapping[str, Any], name: str) -> bool:
    """Whether a `model_index.json` names a component of a class."""
    return bool((index.get(name) or [None])[0])


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


def _sample(path: Path) -> bytes:
    size = path.stat().st_size
    with path.open("rb") as file:
        if path.suffix in _TEXTS or size <= 2 * _SAMPLE_BYTES:
            return file.read()
        head = file.read(_SAMPLE_BYTES)
        file.seek(-_SAMPLE_BYTES, 2)
        return b"%d" % size + head + file.read()
