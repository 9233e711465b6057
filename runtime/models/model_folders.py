"""Finding model files by name: the folders of the configuration, and ComfyUI's own.

Names come from people and, for some kinds, over the wire: none of them leaves its folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ..protocol.errors import InvalidRequest, ModelLoadFailed
from .tensor_file import SUFFIXES

KINDS = {
    "diffusion_models": ("diffusion_models", "unet"),
    "text_encoders": ("text_encoders", "clip"),
    "vae": ("vae",),
    "checkpoints": ("checkpoints",),
    "loras": ("loras",),
    "controlnet": ("controlnet", "t2i_adapter"),
}
"""ComfyUI's kinds of model files, and the folders of each in its `models`."""

_OLD_KINDS = {"unet": "diffusion_models", "clip": "text_encoders"}
_EXTRA_PATHS = "extra_model_paths.yaml"


@dataclass(frozen=True)
class ModelFolders:
    """Where model files are looked for.

    Attributes:
        plain: folders that hold files of every kind.
        by_kind: ComfyUI's folders by its kinds (see `KINDS`).
        comfyui: ComfyUI's own folder, if there is one: it holds tokenizers.
    """

    plain: tuple[Path, ...] = ()
    by_kind: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    comfyui: Path | None = None

    @classmethod
    def of(cls, model_folders: Sequence[str] = (), comfyui: str | None = None) -> ModelFolders:
        """The folders of a configuration.

        Args:
            model_folders: folders with model files.
            comfyui: ComfyUI's folder; its `extra_model_paths.yaml` counts, too.

        Raises:
            ModelLoadFailed: a folder is not there, or the file of extra paths is wrong.
        """
        plain = tuple(_folder(text, "model_folders") for text in model_folders)
        if comfyui is None:
            return cls(plain)
        base = _folder(comfyui, "comfyui")
        by_kind = {
            kind: [base / "models" / name for name in names] for kind, names in KINDS.items()
        }
        for kind, path in _extra_paths(base / _EXTRA_PATHS):
            by_kind.setdefault(kind, []).append(path)
        return cls(plain, {kind: tuple(paths) for kind, paths in by_kind.items()}, base)

    def folders(self, *kinds: str) -> tuple[Path, ...]:
        """Every folder that may hold files of these kinds, first come first searched."""
        return (*self.plain, *(path for kind in kinds for path in self.by_kind.get(kind, ())))

    def names(self, *kinds: str) -> list[str]:
        """Names of the files of these kinds, as `find` takes them, sorted."""
        found = {
            path.relative_to(folder).as_posix()
            for folder in self.folders(*kinds)
            for path in folder.rglob("*")
            if path.name.endswith(SUFFIXES) and path.is_file()
        }
        return sorted(found)

    def find(self, name: str, *kinds: str) -> Path:
        """The file of that name.

        Args:
            name: relative to one of the folders, with `/` between folders; may come from anyone.
            kinds: kinds of ComfyUI whose folders are searched besides the plain ones.

        Raises:
            InvalidRequest: the name leaves its folder.
            ModelLoadFailed: no folder has it; says which were searched.
        """
        _check_name(name)
        folders = self.folders(*kinds)
        for folder in folders:
            if (folder / name).is_file():
                return folder / name
        searched = ", ".join(map(str, folders)) or "no folder: set model_folders or comfyui"
        raise ModelLoadFailed(
            f"There is no model file {name}. Searched {searched}.", field="file", value=name
        )


def _check_name(name: str) -> None:
    path = PurePosixPath(name)
    leaves = path.is_absolute() or ".." in path.parts or not path.parts
    if leaves or any(letter in name for letter in "\\:\0") or name.startswith("~"):
        raise InvalidRequest(
            f"{name!r} is not the name of a model file.",
            field="file",
            value=name,
            allowed="a path inside a folder of models, such as flux/ae.safetensors",
        )


def _folder(text: str, setting: str) -> Path:
    folder = Path(text).expanduser()
    if not folder.is_dir():
        raise ModelLoadFailed(
            f"{setting} names {folder}, which is no folder.", field=setting, value=text
        )
    return folder


def _extra_paths(file: Path) -> Iterator[tuple[str, Path]]:
    """(kind, folder) of each path in ComfyUI's file of extra paths, as ComfyUI reads it."""
    if not file.is_file():
        return
    import yaml

    try:
        sections = yaml.safe_load(file.read_text("utf-8")) or {}
        for section in sections.values():
            yield from _section_paths(section or {}, file.parent)
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise ModelLoadFailed(
            f"{file} cannot be read: {str(error).splitlines()[0]}", field=file.name
        ) from error


def _section_paths(section: dict[str, Any], here: Path) -> Iterator[tuple[str, Path]]:
    base = here / Path(str(section.get("base_path", ""))).expanduser()
    for name, text in section.items():
        kind = _OLD_KINDS.get(name, name)
        if kind in KINDS:
            for line in str(text).splitlines():
                if line.strip():
                    yield kind, base / line.strip()
