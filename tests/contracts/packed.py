"""Calls of transformers that can be packed: of other sizes, texts and numbers of pictures each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import diffusers
import torch

from omnistage.runtime.engine.diffusion.call import ModuleCall
from omnistage.runtime.models.call_spec import CallSpec, PackedForward
from omnistage.runtime.models.flux_packed import FluxPacked
from omnistage.runtime.models.modular.specs import SPECS
from omnistage.runtime.models.qwen_image_packed import QwenImagePacked
from tests.contracts.modules import Arguments, grid, qwen, randn, strong
from tests.contracts.perturbation import described

Size = tuple[int, int]


@dataclass(frozen=True)
class Work:
    """One call.

    Attributes:
        made: height and width in tokens of the picture to be made.
        references: of the pictures that it refers to.
        text: tokens of the prompt.
        hidden: those of them that a mask hides.
        rows: pictures to be made.
    """

    made: Size
    text: int
    references: Sequence[Size] = ()
    hidden: Sequence[int] | None = None
    rows: int = 1


@dataclass(frozen=True)
class PackedCase:
    """A transformer, and how it is called.

    Attributes:
        call: the arguments for a piece of work and a seed.
    """

    packed: PackedForward
    build: Callable[[], torch.nn.Module]
    call: Callable[[int, Work], Arguments]
    work: Sequence[Work]

    def calls(self, module: torch.nn.Module, **changed: Any) -> list[ModuleCall]:
        """A call for each piece of work."""
        spec = replace(SPECS[type(module).__name__]["__call__"], packed=self.packed)
        made = (self.call(i, work) for i, work in enumerate(self.work))
        return [packed_call(module, spec, {**arguments, **changed}) for arguments in made]


def packed_call(
    module: torch.nn.Module, spec: CallSpec, arguments: Mapping[str, Any]
) -> ModuleCall:
    """A call that may be packed."""
    request: Any = SimpleNamespace(mode="packed")
    return described(ModuleCall(request, module, ("transformer", "__call__"), arguments, spec))


def qwen_call(i: int, work: Work) -> Arguments:
    """As Qwen-Image's and Edit's blocks call it."""
    shapes = [(1, *size) for size in (work.made, *work.references)]
    tokens = sum(height * width for _, height, width in shapes)
    mask = None
    if work.hidden is not None:
        mask = torch.ones(work.rows, work.text, dtype=torch.bool)
        mask[:, list(work.hidden)] = False
    return {
        "hidden_states": randn(i, work.rows, tokens, 64),
        "timestep": torch.linspace(0.9, 0.7, work.rows) - 0.1 * i,
        "attention_kwargs": {},
        "return_dict": False,
        "encoder_hidden_states": randn(10 + i, work.rows, work.text, 16),
        "encoder_hidden_states_mask": mask,
        "img_shapes": [shapes] * work.rows,
    }


def flux(*, guided: bool) -> Callable[[], torch.nn.Module]:
    """Two blocks of each kind."""
    return lambda: strong(
        diffusers.FluxTransformer2DModel(
            patch_size=1,
            in_channels=16,
            num_layers=2,
            num_single_layers=2,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            guidance_embeds=guided,
            axes_dims_rope=(4, 4, 8),
        )
    )


def flux_call(i: int, work: Work) -> Arguments:
    """As Flux's and Kontext's blocks call it: one timestep for all rows."""
    ids = [grid(*size, 3) for size in (work.made, *work.references)]
    for reference in ids[1:]:
        reference[:, 0] = 1
    return {
        "hidden_states": randn(i, work.rows, sum(map(len, ids)), 16),
        "timestep": torch.tensor([0.9 - 0.1 * i]),
        "guidance": None,
        "encoder_hidden_states": randn(10 + i, work.rows, work.text, 32),
        "pooled_projections": randn(20 + i, work.rows, 32),
        "joint_attention_kwargs": None,
        "txt_ids": torch.zeros(work.text, 3),
        "img_ids": torch.cat(ids),
        "return_dict": False,
    }


def guided_flux_call(i: int, work: Work) -> Arguments:
    """With a guidance that the model was trained with."""
    return {**flux_call(i, work), "guidance": torch.tensor([2.0 + i]).expand(work.rows)}


# as many tokens in other shapes, equal shapes with other texts, and equal lengths
PICTURES = (
    Work((4, 6), 7),
    Work((6, 4), 7, rows=2),
    Work((4, 6), 5),
    Work((2, 3), 7),
)
EDITS = (
    Work((4, 6), 7, [(4, 4)]),
    Work((4, 4), 7, [(4, 6)]),
    Work((2, 4), 5, [(2, 2), (6, 2)], rows=2),
    Work((4, 6), 7),
    Work((4, 6), 6, [(4, 4)]),
)
MASKED = (
    Work((4, 6), 7, hidden=[6]),
    Work((4, 6), 6, hidden=[]),
    Work((2, 4), 7, [(2, 2)], hidden=[0, 3], rows=2),
)

PACKED = {
    "qwen image": PackedCase(QwenImagePacked(), qwen(), qwen_call, PICTURES),
    "qwen image masked": PackedCase(QwenImagePacked(), qwen(), qwen_call, MASKED),
    "qwen image edit": PackedCase(QwenImagePacked(), qwen(), qwen_call, EDITS),
    "qwen image edit, references at time zero": PackedCase(
        QwenImagePacked(), qwen(zero_cond_t=True), qwen_call, EDITS
    ),
    "flux": PackedCase(FluxPacked(), flux(guided=True), guided_flux_call, PICTURES),
    "flux without guidance": PackedCase(FluxPacked(), flux(guided=False), flux_call, PICTURES),
    "flux kontext": PackedCase(FluxPacked(), flux(guided=True), guided_flux_call, EDITS),
}
"""By name; one or more for every packed forward."""
