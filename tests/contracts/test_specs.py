"""Call specs by module class, derived from the modules and not believed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from omnistage.runtime.engine.diffusion.call import ModuleCall
from omnistage.runtime.models.modular.specs import SPECS
from tests.contracts.modules import CASES, make_call
from tests.contracts.perturbation import check_merge, check_needed, compare, described, weakened

APART = [
    (name, argument)
    for name, case in CASES.items()
    for argument in sorted(case.spec.shared | case.spec.flags.keys())
    if argument not in case.layout
]
"""Each argument of each case that its spec does not let differ."""

SILENT = [
    ("flux 2", "img_ids"),
    ("flux 2", "txt_ids"),
    ("hunyuan 1.5 from text", "image_embeds"),
    ("hunyuan 1.5 from a picture", "image_embeds"),
    ("minimax h3, one noise level", "timestep"),
    ("qwen image 2.1", "img_mask"),
]
"""Arguments that look like rows: a forward that merges them runs, and is wrong."""


@cache
def module_of(name: str) -> torch.nn.Module:
    return CASES[name].build()


def calls(name: str) -> tuple[ModuleCall, ModuleCall]:
    """Two requests' calls of a case."""
    first, second = (make_call(CASES[name], i, module_of(name)) for i in range(2))
    return first, second


def changed(name: str, call: ModuleCall, argument: str) -> ModuleCall:
    """The call with another value of what its spec does not let differ."""
    value = call.arguments[argument]
    others = (value.flip(max(value.ndim - 2, 0)), value * 0.5, value + 1)
    other = CASES[name].apart.get(argument)
    if other is None:
        other = next(other for other in others if not torch.equal(other, value))
    return described(replace(call, arguments={**call.arguments, argument: other}))


def test_every_spec_has_a_case() -> None:
    assert {(case.cls, case.method) for case in CASES.values()} == {
        (cls, method) for cls, specs in SPECS.items() for method in specs
    }


@pytest.mark.parametrize("name", CASES)
def test_rows_do_not_reach_each_other(name: str) -> None:
    first, second = calls(name)
    assert type(first.module).__name__ == CASES[name].cls
    checked = check_merge(first, second, layout=CASES[name].layout)
    spec = CASES[name].spec
    for argument in spec.rows | spec.pad.keys() | spec.joined - CASES[name].layout:
        if argument == "text_lens" or first.arguments.get(argument) is None:
            continue  # a length changes with its text; the calls differ in both
        assert argument in checked


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.spec.deferred])
def test_a_deferred_call_returns_one_tensor(name: str) -> None:
    with torch.inference_mode():
        (result,) = calls(name)[0].run_alone()
    assert isinstance(result, torch.Tensor)


@pytest.mark.parametrize(("name", "argument"), APART)
def test_what_may_not_differ_would_be_wrong(name: str, argument: str) -> None:
    first, second = calls(name)
    check_needed(argument, first, changed(name, second, argument))


@pytest.mark.parametrize(("name", "argument"), SILENT)
def test_a_silent_trap_is_found(name: str, argument: str) -> None:
    """The module raises nothing; only the contract sees that one request got another's part."""
    first, second = calls(name)
    second = changed(name, second, argument)
    with pytest.raises(AssertionError, match="differs by"):
        compare(argument, weakened(first, argument), weakened(second, argument))


@pytest.mark.parametrize("name", ["qwen image", "qwen image control", "t5", "umt5"])
def test_a_missing_mask_is_found(name: str) -> None:
    first, second = calls(name)
    ((text, mask),) = CASES[name].spec.pad.items()
    unmasked = replace(CASES[name].spec, pad={text: None})
    first, second = (
        replace(call, spec=unmasked, arguments={**call.arguments, mask: None})
        for call in (first, second)
    )
    with pytest.raises(AssertionError, match="differs by"):
        compare(mask, first, second)
