"""Packed forwards, derived from the modules and not believed."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from omnistage.runtime.engine.diffusion.call import ModuleCall
from omnistage.runtime.engine.diffusion.collate import run_merged
from omnistage.runtime.models.families import DIFFUSION
from omnistage.runtime.models.modular.family import ModularFamily
from tests.contracts.modules import randn
from tests.contracts.packed import PACKED, PackedCase, packed_call
from tests.contracts.perturbation import RELATIVE, check_merge

QWEN = "qwen image edit, references at time zero"
FLUX = "flux kontext"


@cache
def module_of(name: str) -> torch.nn.Module:
    return PACKED[name].build()


def calls(name: str, **changed: Any) -> list[ModuleCall]:
    return PACKED[name].calls(module_of(name), **changed)


def packs(call: ModuleCall) -> bool:
    return isinstance(call.key, tuple) and "packed" in call.key


def differences(calls: list[ModuleCall]) -> list[float]:
    """Of each call's result in company from what it gets alone, of the latter's largest value."""
    with torch.inference_mode():
        alone = [call.run_alone()[0] for call in calls]
        together = [result[0] for result in run_merged(calls)]
    assert [got.shape for got in together] == [want.shape for want in alone]
    pairs = zip(together, alone, strict=True)
    return [float((got - want).abs().max() / want.abs().max()) for got, want in pairs]


def test_every_packed_forward_has_a_case() -> None:
    families = (family for family in DIFFUSION if isinstance(family, ModularFamily))
    specs = (spec for family in families for spec in family.specs().values())
    assert {type(spec.packed) for spec in specs if spec.packed is not None} == {
        type(case.packed) for case in PACKED.values()
    }


@pytest.mark.parametrize("name", PACKED)
def test_each_call_gets_what_it_gets_alone(name: str) -> None:
    made = calls(name)
    assert all(packs(call) for call in made)
    assert len({call.key for call in made}) == 1
    assert max(differences(made)) <= RELATIVE
    assert max(differences(made[::-1])) <= RELATIVE


@pytest.mark.parametrize("name", PACKED)
def test_rows_do_not_reach_each_other(name: str) -> None:
    first, *others = calls(name)
    for other in others:
        changed = check_merge(first, other)
        tensors = {n for n, v in other.arguments.items() if isinstance(v, torch.Tensor)}
        assert tensors - {"txt_ids"} <= {*changed}


@pytest.mark.parametrize("name", [QWEN, FLUX])
def test_a_row_without_positions_of_its_own_is_found(name: str) -> None:
    """As it would be in a forward that took those of the first row for all."""
    first, second, *_ = calls(name)
    layout = {"img_shapes", "img_ids"} & first.arguments.keys()
    arguments = {**second.arguments, **{n: first.arguments[n] for n in layout}}
    wrong = packed_call(second.module, second.spec, arguments)
    with torch.inference_mode():
        difference = (wrong.run_alone()[0] - second.run_alone()[0]).abs().max()
    assert difference > 1e-3


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        (QWEN, {"controlnet_block_samples": [randn(0, 1, 40, 64)]}),
        (QWEN, {"additional_t_cond": torch.tensor([0])}),
        (QWEN, {"attention_kwargs": {"scale": 0.5}}),
        (QWEN, {"guidance": torch.tensor([3.0])}),
        (QWEN, {"img_shapes": [[(1, 4, 6)]]}),
        (QWEN, {"img_shapes": None}),
        (QWEN, {"return_dict": True}),
        (FLUX, {"controlnet_block_samples": [randn(0, 1, 40, 32)]}),
        (FLUX, {"controlnet_single_block_samples": [randn(0, 1, 40, 32)]}),
        (FLUX, {"joint_attention_kwargs": {"ip_adapter_image_embeds": [randn(0, 1, 4, 32)]}}),
        (FLUX, {"guidance": None}),
        (FLUX, {"img_ids": torch.zeros(1, 40, 3)}),
        (FLUX, {"img_ids": torch.zeros(39, 3)}),
        (FLUX, {"txt_ids": None}),
        (FLUX, {"return_dict": True}),
        ("flux without guidance", {"guidance": torch.tensor([3.0])}),
    ],
)
def test_what_is_not_known_to_be_right_is_not_packed(name: str, changed: dict[str, Any]) -> None:
    assert packs(calls(name)[0])
    assert not packs(calls(name, **changed)[0])


@pytest.mark.parametrize("name", [QWEN, FLUX])
@pytest.mark.parametrize("change", ["processor", "backend", "class"])
def test_a_module_that_computes_otherwise_is_not_packed(name: str, change: str) -> None:
    case: PackedCase = PACKED[name]
    module: Any = case.build()
    processor = module.transformer_blocks[-1].attn.processor
    if change == "processor":
        module.transformer_blocks[-1].attn.processor = type("Own", (type(processor),), {})()
    elif change == "backend":
        processor._attention_backend = "native"
    else:
        module.__class__ = type(type(module).__name__, (type(module),), {})
    assert not any(packs(call) for call in case.calls(module))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [QWEN, FLUX])
def test_half_precision_is_off_by_rounding_only(name: str, dtype: torch.dtype) -> None:
    made = PACKED[name].calls(PACKED[name].build().to(dtype))
    for call in made:
        features = {"hidden_states", "encoder_hidden_states", "pooled_projections"}
        half = {n: call.arguments[n].to(dtype) for n in features & call.arguments.keys()}
        call.arguments = {**call.arguments, **half}
    assert max(differences(made)) <= 0.05
