"""What the node Guider calls things, and what the runtime, as diffusers does, calls them."""

from __future__ import annotations

from collections.abc import Mapping

from ..runtime.protocol.errors import InvalidRequest

_PREFIXES: Mapping[str, str] = {
    "apg": "adaptive_projected_guidance",
    "apg_mix": "adaptive_projected_guidance",
    "slg": "skip_layer_guidance",
    "pag": "perturbed_guidance",
    "auto": "auto_guidance",
}
"""Kinds of guiders that put their own name before a parameter's. Source: diffusers' guiders."""

_SUFFIXES: Mapping[str, str] = {
    "scale": "scale",
    "scale_start": "start",
    "scale_stop": "stop",
    "layers": "layers",
    "momentum": "momentum",
    "norm_limit": "rescale",
    "start_step": "start_step",
}
"""The parameters before which they put it, by the node's inputs."""


def param_of(kind: str, name: str) -> str:
    """The runtime's parameter for an input of the node; without one of this kind's, the same."""
    if kind in _PREFIXES and name in _SUFFIXES:
        return f"{_PREFIXES[kind]}_{_SUFFIXES[name]}"
    return name


def input_of(kind: str, param: str) -> str:
    """The inverse of `param_of`."""
    return next((name for name in _SUFFIXES if param_of(kind, name) == param), param)


def layer_numbers(text: str) -> list[int]:
    """Numbers of layers, as they are written: `7, 8, 9`.

    Raises:
        InvalidRequest: they are something else.
    """
    words = text.replace(",", " ").split()
    if not all(word.isascii() and word.isdigit() and len(word) < 4 for word in words):
        raise InvalidRequest(
            f"layers = {text!r} are no numbers of layers.",
            field="layers",
            value=text,
            allowed="whole numbers from 0 to 999, such as 7, 8, 9",
        )
    return [int(word) for word in words]
