"""What plans make of the inputs of a node."""

from __future__ import annotations

from typing import Any

from ...runtime.protocol.frames import Frame
from ..values import Model, RemoteText, Source, Text, Upload

Words = str | Text
"""A text, or one that a model is still to write."""

DEFAULT = "default"
"""The choice in a list that means "the model's own"."""


def texts(model: Model, **words: Words) -> tuple[dict[str, Any], dict[str, Source]]:
    """Texts as parameters, and those that the model's own runtime writes as inputs."""
    params: dict[str, Any] = {}
    inputs: dict[str, Source] = {}
    for name, text in words.items():
        remote = text.remote if isinstance(text, RemoteText) else text
        if isinstance(remote, Text) and remote.address == model.address:
            inputs[name] = remote.source
        else:  # of another runtime: the words themselves, once they are there
            params[name] = text
    return params, inputs


def given(**values: Any) -> dict[str, Any]:
    """The values that are not left to the model."""
    return {name: value for name, value in values.items() if value is not None}


def upload(frame: Frame) -> Upload:
    """A frame as an upload."""
    return Upload.of(frame.encode())
