"""The ControlNets of a model: which there are, by what names, where, and their revisions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..protocol.errors import InvalidRequest, ModelLoadFailed
from .component_source import ComponentSource
from .family import Family
from .location import model_folder
from .lora import file_revision
from .tensor_file import check_safetensors


def controlnet_module(name: str) -> str:
    """The name of a ControlNet's module in its model."""
    return f"controlnet.{name}"


def open_controlnets(sources: Mapping[str, str], family: Family) -> dict[str, ComponentSource]:
    """The ControlNets of a model by name, checked but not loaded.

    Args:
        sources: a folder or a hub id of each.
        family: of the model that they are for.

    Raises:
        ModelLoadFailed: names the one that is not there, broken, or for another family.
    """
    found = {}
    for name, text in sources.items():
        source = ComponentSource(controlnet_module(name), model_folder(text))
        _check(name, source.folder, family)
        found[name] = source
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
    return {**params, "control": {**control, "revision": _revision(controlnets[name].folder)}}


def _check(name: str, folder: Path, family: Family) -> None:
    field = f"controlnets.{name}"
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        made_for = config["_class_name"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelLoadFailed(
            f"{folder} holds no ControlNet: its config.json is missing or broken.",
            field=field,
            value=str(folder),
        ) from error
    if made_for != family.controlnet:
        takes = family.controlnet or "no ControlNets"
        raise ModelLoadFailed(
            f"{folder} is a {made_for}; models of family {family.name} take {takes}.",
            field=field,
            value=made_for,
            allowed=takes,
        )
    for path in sorted(folder.glob("*.safetensors")):
        check_safetensors(path)


def _revision(folder: Path) -> str:
    """A hash that changes when the content of the folder does."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors"):
            digest.update(f"{path.name} {file_revision(path)} ".encode())
    return digest.hexdigest()[:16]
