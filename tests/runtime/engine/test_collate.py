from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from omnistage.runtime.engine.diffusion.collate import merge, split
from omnistage.runtime.models.call_spec import CallSpec


def test_ragged_text_is_padded_with_its_mask() -> None:
    spec = CallSpec(primary="text", pad={"text": "mask"})
    calls = [{"text": torch.ones(1, 3, 2), "mask": None}, {"text": torch.ones(2, 5, 2)}]
    merged = merge(spec, calls)
    assert merged["text"].shape == (3, 5, 2)
    assert merged["mask"].tolist() == [[True] * 3 + [False] * 2, [True] * 5, [True] * 5]
    assert merged["text"][0, 3:].abs().max() == 0
    assert calls[0]["mask"] is None, "the caller's arguments are left alone"


def test_equal_lengths_need_no_mask() -> None:
    spec = CallSpec(primary="text", pad={"text": "mask"})
    merged = merge(spec, [{"text": torch.ones(1, 3), "mask": None}] * 2)
    assert merged["mask"] is None


def test_lists_are_joined() -> None:
    spec = CallSpec(primary="x", rows=frozenset({"x"}), lists=frozenset({"shapes"}))
    merged = merge(spec, [{"x": torch.ones(1, 2), "shapes": [[(1, 4, 4)]]}] * 2)
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
