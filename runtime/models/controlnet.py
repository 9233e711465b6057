"""The ControlNets of a model: which there are, by what names, where, and their revisions.

The configuration names some, and those in ComfyUI's folders are there by their files' names, where
they fit. Which there are is settled when the model is opened.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..protocol.errors import InvalidRequest, ModelLoadFailed
from .component_source import ComponentSource
from .controlnet_config import DENOISERS, controlnet_config
from .file_kind import controlnet_in
from .location import model_folder
from .lora import file_revision
from .model_files import is_file_name
from .model_folders import ModelFolders
from .tensor_file import check_safetensors, read_tensor_file

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

log = logging.getLogger(__name__)

_FOLDERS = "controlnet"
"""ComfyUI's kind of their folders."""

_SUFFIX = ".safetensors"


def controlnet_module(name: str) -> str:
    """The name of a ControlNet's module in its model."""
    return f"controlnet.{name}"


def open_controlnets(
    sources: Mapping[str, str], checkpoint: Checkpoint, folders: ModelFolders
) -> dict[str, ComponentSource]:
    """The ControlNets of a model by name, checked but not loaded.

    Of files in `folders` only those that fit the model count, by their path there without its
    ending; a configured one of the same name goes before.

    Args:
        sources: a folder, a hub id or a file of each.
        checkpoint: of the model that they are for.
        folders: where files are looked for.

    Raises:
        ModelLoadFailed: names the configured one that is not there, broken, or for another model.
    """
    found = {name: _configured(name, text, checkpoint, folders) for name, text in sources.items()}
    if checkpoint.family.controlnet is not None:
        found |= _in_folders(checkpoint, folders, without=frozenset(found))
    return found


def with_revision(
    params: Mapping[str, Any], controlnets: Mapping[str, ComponentSource]
) -> dict[str, Any]:
    """Parameters whose `control` says which content is meant: other weights, another result.

    Raises:
        InvalidRequest: there is no ControlNet of that name; says which there are.
    """
    control = params.get("control")
    if control is None:
        return dict(params)
    name = control["name"]
    if name not in controlnets:
        have = ", ".join(controlnets) or "none"
        raise InvalidRequest(
            f"ControlNet {name!r} is not on this runtime; it has {have}.",
            field="control",
            value=name,
            allowed=have,
        )
    return {**params, "control": {**control, "revision": _revision(controlnets[name])}}


def _configured(
    name: str, text: str, checkpoint: Checkpoint, folders: ModelFolders
) -> ComponentSource:
    try:
        if is_file_name(text):
            return _in_file(name, _located(text, folders), checkpoint)
        return _in_folder(name, model_folder(text), checkpoint)
    except (ModelLoadFailed, InvalidRequest) as error:
        raise ModelLoadFailed(
            error.message, field=f"controlnets.{name}", value=text, allowed=error.allowed
        ) from error


def _located(text: str, folders: ModelFolders) -> Path:
    path = Path(text).expanduser()
    return path if path.is_absolute() else folders.find(text, _FOLDERS)


def _in_folders(
    checkpoint: Checkpoint, folders: ModelFolders, *, without: Collection[str]
) -> dict[str, ComponentSource]:
    """Those of the folders' files that fit; the log says why others do not."""
    found, left = {}, []
    for file in folders.names(_FOLDERS):
        name = file.removesuffix(_SUFFIX)
        if name == file or name in without:
            continue
        try:
            found[name] = _in_file(name, folders.find(file, _FOLDERS), checkpoint)
        except ModelLoadFailed as error:
            left.append(error.message)
    if left:
        log.info("Not among the ControlNets of %s: %s", checkpoint.folder, " ".join(left))
    return found


def _in_folder(name: str, folder: Path, checkpoint: Checkpoint) -> ComponentSource:
    """The ControlNet in a folder in diffusers layout.

    Raises:
        ModelLoadFailed: it holds none, or one for models of another family.
    """
    try:
        made_for = str(json.loads((folder / "config.json").read_text("utf-8"))["_class_name"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelLoadFailed(
            f"{folder} holds no ControlNet: its config.json is missing or broken."
        ) from error
    _check_class(str(folder), f"a {made_for}", frozenset({made_for}), checkpoint)
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        check_safetensors(path)
    return ComponentSource(controlnet_module(name), folder)


def _in_file(name: str, path: Path, checkpoint: Checkpoint) -> ComponentSource:
    """The ControlNet in a file; its config follows from the model's own.

    Raises:
        ModelLoadFailed: it holds none, or one for another model.
    """
    file = read_tensor_file(path)
    part = controlnet_in(file)
    made_for = _check_class(f"The file {path}", part.words, part.classes, checkpoint)
    if file.format != "safetensors":
        raise ModelLoadFailed(
            f"The file {path} is a {file.format.upper()} file. Take a safetensors version of it."
        )
    start = len(part.prefix)
    tensors = {k[start:]: v for k, v in file.tensors.items() if k.startswith(part.prefix)}
    base = checkpoint.source(DENOISERS[made_for]).folder
    try:
        denoiser = json.loads((base / "config.json").read_text("utf-8"))
        config = controlnet_config(made_for, tensors, denoiser)
    except (OSError, KeyError) as error:
        raise ModelLoadFailed(
            f"The file {path} has no config, and {base}/config.json does not tell it: {error}."
        ) from error
    except ValueError as error:
        raise ModelLoadFailed(f"The file {path} {error}.") from error
    return ComponentSource(controlnet_module(name), base, path, part.prefix, config)


def _check_class(place: str, words: str, classes: Collection[str], checkpoint: Checkpoint) -> str:
    """The class of ControlNets that the model takes.

    Raises:
        ModelLoadFailed: it is none of `classes`.
    """
    family = checkpoint.family
    if family.controlnet is None or family.controlnet not in classes:
        takes = family.controlnet or "no ControlNets"
        raise ModelLoadFailed(
            f"{place} is {words}; models of family {family.name} take {takes}.",
            allowed=takes,
        )
    return family.controlnet


def _revision(source: ComponentSource) -> str:
    """A hash that changes when the content of the file, or of the folder, does."""
    if source.file is not None:
        paths = list(read_tensor_file(source.file).files)
    else:
        found = source.folder.iterdir()
        paths = sorted(path for path in found if path.suffix in (".json", _SUFFIX))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {file_revision(path)} ".encode())
    return digest.hexdigest()[:16]
