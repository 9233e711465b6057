"""A model put together from files as ComfyUI's users keep them: one for each component, or one.

A folder in diffusers layout, the base, says what the model consists of and how each component is
configured; files replace its weights. The configs of published models are in `configs`, so a base
is needed for the rest only: tokenizers, and models without a config there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..protocol.errors import ModelLoadFailed
from .checkpoint import Checkpoint
from .component_source import ComponentSource
from .file_kind import FilePart, kind_of, unknown
from .location import model_folder
from .model_folders import ModelFolders
from .tensor_file import SUFFIXES, TensorFile, read_tensor_file

_CONFIGS = Path(__file__).parent / "configs"
_PICKLES = (".ckpt", ".pt", ".pth", ".bin")
_WEIGHTS = ("*.safetensors", "*.bin")
_DENOISERS = ("transformer", "unet")

_CLIP = "comfy/sd1_tokenizer"
_T5 = "comfy/text_encoders/t5_tokenizer"
_QWEN25 = "comfy/text_encoders/qwen25_tokenizer"
_COMFYUI_TOKENIZERS = {
    "FluxPipeline": {"tokenizer": _CLIP, "tokenizer_2": _T5},
    "QwenImagePipeline": {"tokenizer": _QWEN25},
    "StableDiffusionXLPipeline": {"tokenizer": _CLIP},
    "StableDiffusion3Pipeline": {"tokenizer": _CLIP, "tokenizer_3": _T5},
}
"""ComfyUI's tokenizers that equal a pipeline's own. The second CLIP tokenizer pads differently,
and Z-Image's chat template is Qwen3's: those have to come from a base."""


def shipped_configs() -> list[str]:
    """Names of the published models whose configs come along, as a base."""
    return sorted(folder.name for folder in _CONFIGS.iterdir() if folder.is_dir())


def is_file_name(source: str) -> bool:
    """Whether a model's source names a file and not a folder or hub id."""
    return source.endswith((*SUFFIXES, *_PICKLES))


def open_model(
    source: str | None,
    folders: ModelFolders,
    *,
    files: Mapping[str, str] | None = None,
    base: str | None = None,
) -> Checkpoint:
    """A configured model's checkpoint, checked but not loaded.

    Args:
        source: as for `model_folder`, or the name of a file that holds a denoiser and perhaps
            the rest; None if there are only `files`.
        folders: where files are looked for.
        files: files by component, such as `{"vae": "ae.safetensors"}`. They win over what
            `source` holds. Absolute paths are allowed: these are configuration.
        base: a folder, a hub id or one of `shipped_configs` for all that is in no file. None:
            the config that fits the denoiser.

    Raises:
        ModelLoadFailed: says which file is not what it has to be, or what is missing.
    """
    named = dict(files or {})
    if source is not None and not is_file_name(source):
        if not named:
            return Checkpoint.open(model_folder(source))
        base = source
    found = {name: _File.read(_locate(text, name, folders)) for name, text in named.items()}
    whole = None
    if source is not None and is_file_name(source):
        whole = _File.read(_locate(source, "", folders))
        if not whole.parts:
            raise unknown(whole.file)
    folder = _base_folder(base, [*found.values(), *([whole] if whole else [])], frozenset(found))
    return _Assembly(folder, folders.comfyui).checkpoint(found, whole)


@dataclass(frozen=True, slots=True)
class _File:
    file: TensorFile
    parts: tuple[FilePart, ...]
    prefix: str

    @classmethod
    def read(cls, path: Path) -> _File:
        file = read_tensor_file(path)
        kind = kind_of(file)
        return cls(file, kind.parts, kind.prefix)


def _locate(text: str, component: str, folders: ModelFolders) -> Path:
    path = Path(text).expanduser()
    if path.is_absolute():
        return path
    if component == "vae":
        return folders.find(text, "vae", "checkpoints")
    if component.startswith("text_encoder"):
        return folders.find(text, "text_encoders", "checkpoints")
    return folders.find(text, "diffusion_models", "checkpoints")


def _base_folder(base: str | None, files: Sequence[_File], replaced: frozenset[str]) -> Path:
    if base is not None:
        shipped = base in shipped_configs()
        return _CONFIGS / base if shipped else model_folder(base, without=replaced)
    parts = [part for file in files for part in file.parts if part.component in _DENOISERS]
    name = next((part.config for part in parts if part.config), None)
    if name is None:
        held = ", ".join(f"{f.file.path.name}: {_words(f.parts)}" for f in files)
        raise ModelLoadFailed(
            f"There is no config here for these files ({held}). Give base: a folder or hub id in "
            "diffusers layout of a model of this kind and size.",
            field="base",
            allowed=", ".join(shipped_configs()),
        )
    return _CONFIGS / name


class _Assembly:
    """Files put in the places that a base has for them."""

    def __init__(self, base: Path, comfyui: Path | None) -> None:
        self._base = base
        self._comfyui = comfyui
        self._index = _index(base)
        self._slots = {
            name: entry[1]
            for name, entry in self._index.items()
            if isinstance(entry, list) and None not in entry
        }

    def checkpoint(self, files: Mapping[str, _File], whole: _File | None) -> Checkpoint:
        """The checkpoint of these files over the base.

        Raises:
            ModelLoadFailed: a file does not fit its place, or a place stays empty.
        """
        elsewhere = {name: self._place(name, file) for name, file in files.items()}
        if whole is not None:
            for name, part in self._spread(whole, elsewhere).items():
                elsewhere[name] = self._source(name, whole.file, part.prefix)
        elsewhere |= self._tokenizers(elsewhere)
        self._check_complete(elsewhere)
        return Checkpoint.open(self._base, elsewhere)

    def _place(self, name: str, file: _File) -> ComponentSource:
        if name not in self._slots:
            raise ModelLoadFailed(
                f"This model has no component {name}.",
                field=name,
                value=file.file.path.name,
                allowed=", ".join(sorted(self._slots)),
            )
        wanted = self._slots[name]
        fitting = [part for part in file.parts if wanted in part.classes]
        if file.parts and not fitting:
            raise ModelLoadFailed(
                f"{name} has to be a {wanted}, but the file {file.file.path} holds "
                f"{_words(file.parts)}.",
                field=name,
                value=file.file.path.name,
                allowed=wanted,
            )
        return self._source(name, file.file, fitting[0].prefix if fitting else file.prefix)

    def _source(self, name: str, file: TensorFile, prefix: str) -> ComponentSource:
        folder = self._base / name
        if not (folder / "config.json").is_file():
            raise ModelLoadFailed(
                f"The base {self._base} has no {name}/config.json for the file {file.path}.",
                field="base",
            )
        return ComponentSource(name, folder, file.path, prefix)

    def _spread(self, whole: _File, taken: Mapping[str, Any]) -> dict[str, FilePart]:
        """The parts of a whole checkpoint by their places; those that are taken are left."""
        left = sorted(whole.parts, key=lambda part: ("CLIP-L" not in part.words, part.words))
        found = {}
        for name in sorted(self._slots):
            part = next((part for part in left if self._slots[name] in part.classes), None)
            if part is not None:
                left.remove(part)
                found[name] = part
        strange = [part for part in left if part.component in _DENOISERS]
        if strange:
            raise ModelLoadFailed(
                f"The file {whole.file.path} holds {_words(tuple(strange))}, but the base "
                f"{self._base} is a {self._index.get('_class_name')}.",
                field="base",
            )
        return {name: part for name, part in found.items() if name not in taken}

    def _tokenizers(self, taken: Mapping[str, Any]) -> dict[str, ComponentSource]:
        if self._comfyui is None:
            return {}
        known = _COMFYUI_TOKENIZERS.get(str(self._index.get("_class_name")), {})
        return {
            name: ComponentSource(name, self._comfyui / place)
            for name, place in known.items()
            if name not in taken
            and not (self._base / name).is_dir()
            and (self._comfyui / place).is_dir()
        }

    def _check_complete(self, elsewhere: Mapping[str, ComponentSource]) -> None:
        missing = [name for name in sorted(self._slots) if name not in elsewhere]
        missing = [name for name in missing if not _is_whole(self._base / name)]
        if not missing:
            return
        given = ", ".join(sorted(elsewhere)) or "nothing"
        raise ModelLoadFailed(
            f"The files give {given}; {', '.join(missing)} of this model "
            f"({self._index.get('_class_name')}) are missing. Name a file for each module, or "
            "give base: a folder or hub id in diffusers layout that has them. Tokenizers are in "
            "no such file.",
            field=missing[0],
        )


def _is_whole(folder: Path) -> bool:
    """Whether a component's folder has all it needs: weights, if it is a module."""
    if not folder.is_dir():
        return False
    return not (folder / "config.json").is_file() or any(
        path for pattern in _WEIGHTS for path in folder.glob(pattern)
    )


def _index(base: Path) -> dict[str, Any]:
    path = base / "model_index.json"
    try:
        index = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelLoadFailed(
            f"The base {base} has no readable model_index.json: it is no folder in diffusers "
            "layout.",
            field="base",
        ) from error
    return dict(index)


def _words(parts: Sequence[FilePart]) -> str:
    return ", ".join(part.words for part in parts) or "nothing known"
