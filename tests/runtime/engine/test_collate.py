from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from omnistage.runtime.engine.diffusion.call import ModuleCall
from omnistage.runtime.engine.diffusion.collate import Grouped, merge, split
from omnistage.runtime.models.call_spec import CallSpec


def test_ragged_text_is_padded_with_its_mask() -> None:
    spec = CallSpec(primary="text", pad={"text": "mask"})
    calls = [{"text": torch.ones(1, 3, 2), "mask": None}, {"text": torch.ones(2, 5, 2)}]
    merged = merge(spec, calls, [1, 2])
    assert merged["text"].shape == (3, 5, 2)
    assert merged["mask"].tolist() == [[True] * 3 + [False] * 2, [True] * 5, [True] * 5]
    assert merged["text"][0, 3:].abs().max() == 0
    assert calls[0]["mask"] is None, "the caller's arguments are left alone"


def test_equal_lengths_need_no_mask() -> None:
    spec = CallSpec(primary="text", pad={"text": "mask"})
    merged = merge(spec, [{"text": torch.ones(1, 3), "mask": None}] * 2, [1, 1])
    assert merged["mask"] is None


def test_lists_are_joined() -> None:
    spec = CallSpec(primary="x", rows=frozenset({"x"}), lists=frozenset({"shapes"}))
    merged = merge(spec, [{"x": torch.ones(1, 2), "shapes": [[(1, 4, 4)]]}] * 2, [1, 1])
    assert merged["shapes"] == [[(1, 4, 4)], [(1, 4, 4)]]


@dataclass
class Output(dict):
    """Like the output classes of transformers and diffusers: a mapping and a dataclass."""

    sample: torch.Tensor

    def __post_init__(self) -> None:
        self["sample"] = self.sample


def test_split_reaches_into_outputs() -> None:
    x = torch.arange(6.0).view(3, 2)
    first, second = split((x, [x, None], {"k": x}), [1, 2], [None, None])
    assert torch.equal(first[0], x[:1])
    assert torch.equal(second[1][0], x[1:])
    assert second[1][1] is None
    assert torch.equal(second[2]["k"], x[1:])


def test_split_keeps_output_classes() -> None:
    x = torch.arange(6.0).view(3, 2)
    first, _ = split(Output(x), [1, 2], [None, None])
    assert isinstance(first, Output)
    assert torch.equal(first.sample, x[:1])


def test_split_cuts_padding_off() -> None:
    x = torch.zeros(2, 5, 3)
    first, second = split((x,), [1, 1], [3, 5])
    assert first[0].shape == (1, 3, 3)
    assert second[0].shape == (1, 5, 3)


@pytest.mark.parametrize("result", [torch.zeros(4, 2), torch.tensor(1.0), object()])
def test_what_has_no_rows_is_refused(result: object) -> None:
    with pytest.raises(TypeError):
        split(result, [1, 2], [None, None])


def keys(spec: CallSpec, *calls: dict[str, Any]) -> list[Hashable]:
    """The keys that the grouped collator gives calls of one module."""
    request: Any = SimpleNamespace(mode="grouped")
    module = torch.nn.Identity()
    made = [ModuleCall(request, module, ("m", "__call__"), call, spec) for call in calls]
    for call in made:
        Grouped().describe(call)
    return [call.key for call in made]


def test_one_value_stands_for_all_rows() -> None:
    spec = CallSpec(primary="x", rows=frozenset({"x", "t"}))
    calls = [
        {"x": torch.ones(2, 3), "t": torch.tensor(5.0)},
        {"x": torch.ones(1, 3), "t": torch.tensor([7.0])},
    ]
    first, second = keys(spec, *calls)
    assert first == second
    assert merge(spec, calls, [2, 1])["t"].tolist() == [5.0, 5.0, 7.0]


def test_rows_are_stacked_inside_containers() -> None:
    spec = CallSpec(primary="x", rows=frozenset({"x", "more"}))
    calls = [
        {"x": torch.ones(1, 3), "more": {"a": torch.full((1, 2), i), "b": [torch.ones(1), None]}}
        for i in range(2)
    ]
    first, second = keys(spec, *calls)
    assert first == second
    more = merge(spec, calls, [1, 1])["more"]
    assert more["a"].tolist() == [[0, 0], [1, 1]]
    assert more["b"][0].shape == (2,)
    assert more["b"][1] is None


def test_containers_of_other_shapes_stay_apart() -> None:
    spec = CallSpec(primary="x", rows=frozenset({"x", "more"}))
    shapes = ([(1, 2)], [(1, 3)], [(1, 2), (1, 2)], None)
    made = keys(
        spec,
        *(
            {"x": torch.ones(1, 3), "more": shape and [torch.ones(s) for s in shape]}
            for shape in shapes
        ),
    )
    assert len(set(made)) == len(shapes)


def test_ragged_lists_are_joined_and_split() -> None:
    spec = CallSpec(primary="x", ragged_lists=frozenset({"x"}))
    calls = [
        {"x": [torch.ones(4, 1, 2, 2), torch.ones(4, 1, 2, 3)]},
        {"x": [torch.ones(4, 1, 5, 2)]},
    ]
    first, second = keys(spec, *calls)
    assert first == second
    merged = merge(spec, calls, [2, 1])["x"]
    assert [entry.shape for entry in merged] == [(4, 1, 2, 2), (4, 1, 2, 3), (4, 1, 5, 2)]
    mine, yours = split((merged,), [2, 1], [None, None], ragged=True)
    assert [entry.shape for entry in mine[0]] == [(4, 1, 2, 2), (4, 1, 2, 3)]
    assert [entry.shape for entry in yours[0]] == [(4, 1, 5, 2)]
    with pytest.raises(TypeError):
        split((merged,), [1, 1], [None, None], ragged=True)


def test_the_size_of_a_ragged_list_counts_its_rows() -> None:
    request: Any = SimpleNamespace(mode="grouped")
    spec = CallSpec(primary="x", ragged_lists=frozenset({"x"}))
    arguments = {"x": [torch.ones(4, 1, 2, 2), torch.ones(4, 1, 2, 3)]}
    call = ModuleCall(request, torch.nn.Identity(), ("m", "__call__"), arguments, spec)
    Grouped().describe(call)
    assert (call.rows, call.tokens) == (2, 10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_shared_tensors_compare_by_value(dtype: torch.dtype) -> None:
    spec = CallSpec(primary="x", rows=frozenset({"x"}), shared=frozenset({"ids"}))
    ids = torch.tensor([[0, 1], [1, 0], [1, 1]]).to(dtype)
    values = (ids, ids.clone(), ids.flip(0), ids[None], ids[:2])
    first, equal, *others = keys(spec, *({"x": torch.ones(1, 3), "ids": value} for value in values))
    assert first == equal
    assert first not in others
    assert merge(spec, [{"x": torch.ones(1, 3), "ids": ids}] * 2, [1, 1])["ids"] is ids


def test_a_flag_keeps_calls_apart() -> None:
    spec = CallSpec(
        primary="x", rows=frozenset({"x"}), flags={"x": lambda value: bool(value.any())}
    )
    values = (torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([[0.0, 3.0]]))
    none, one, other = keys(spec, *({"x": value} for value in values))
    assert none != one
    assert one == other


def test_joined_tensors_bring_any_number_of_entries() -> None:
    spec = CallSpec(primary="x", rows=frozenset({"x"}), joined=frozenset({"images"}))
    calls = [{"x": torch.ones(1, 3), "images": torch.full((n, 2), n)} for n in (1, 2)]
    first, second = keys(spec, *calls)
    assert first == second
    assert merge(spec, calls, [1, 1])["images"].tolist() == [[1, 1], [2, 2], [2, 2]]


def test_text_whose_lengths_are_told_is_padded_without_a_mask() -> None:
    spec = CallSpec(primary="text", rows=frozenset({"lengths"}), pad={"text": None})
    calls = [{"text": torch.ones(1, n, 2), "lengths": torch.tensor([n])} for n in (3, 5)]
    merged = merge(spec, calls, [1, 1])
    assert merged["text"].shape == (2, 5, 2)
    assert merged["lengths"].tolist() == [3, 5]


@pytest.mark.parametrize(
    "more",
    [
        {"other": torch.ones(1)},
        {"other": {"deep": torch.ones(1)}},
        {"other": [torch.ones(1)]},
        {"other": [1]},
        {"other": object()},
        {"t": torch.ones(2)},
        {"text": None},
        {"mask": torch.ones(3, 1, 5)},
    ],
)
def test_what_the_spec_does_not_explain_runs_alone(more: dict[str, Any]) -> None:
    spec = CallSpec(primary="x", rows=frozenset({"x", "t"}), pad={"text": "mask"})
    call = {"x": torch.ones(3, 2), "text": torch.ones(3, 5)}
    assert keys(spec, call) != [None]
    assert keys(spec, {**call, **more}) == [None]


def test_plain_values_compare_by_value() -> None:
    spec = CallSpec(primary="x", rows=frozenset({"x"}))
    others = ({"scale": 1.0}, {"scale": 1.0}, {"scale": 2.0}, {}, None, (1, 2.0), True, 1)
    made = keys(spec, *({"x": torch.ones(1, 2), "other": other} for other in others))
    assert made[0] == made[1]
    assert len(set(made)) == len(others) - 1
