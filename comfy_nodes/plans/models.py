"""Models by name, with what changes them."""

from __future__ import annotations

from dataclasses import replace

from ..values import Adapter, Model


def load_model(model: str, address: str = "", strict: bool = False) -> Model:
    """A model by name; nothing runs."""
    return Model(model, address.strip().rstrip("/"), strict)


def lora(model: Model, lora: str, strength: float, noise: str = "all") -> Model:
    """A model with one more adapter; the same one twice acts as strongly as both together."""
    strengths = {(name, noise): strength for name, strength, noise in model.adapters}
    strengths[lora, noise] = strengths.get((lora, noise), 0.0) + strength
    adapters = [Adapter(name, own, at) for (name, at), own in strengths.items() if own]
    return replace(model, adapters=tuple(adapters))
