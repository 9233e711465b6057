"""Call specs of every family, derived from its modules and not believed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from omnistage.runtime.bench.pictures import PictureRequest
from omnistage.runtime.engine.diffusion.call import ModuleCall
from omnistage.runtime.models.call_spec import Method
from omnistage.runtime.models.catalogue import ModelEntry
from tests.contracts.perturbation import check_merge, record_calls

DEMO = ModelEntry("demo", "demo")
REQUESTS = [
    PictureRequest("a red circle on a blue background", seed=1, steps=2, guidance=1.0),
    PictureRequest("star", seed=2, steps=2, guidance=1.0),
]


@pytest.fixture(scope="module")
def calls() -> dict[Method, list[ModuleCall]]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return record_calls(DEMO, REQUESTS, monkeypatch)


def grouped(call: ModuleCall) -> ModuleCall:
    """The same call, described for the grouped collator."""
    assert call.spec is not None
    spec = replace(call.spec, packed=None)
    twin = replace(call, spec=spec)
    from omnistage.runtime.engine.diffusion.collate import Grouped

    Grouped().describe(twin)
    return twin


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        (("transformer", "__call__"), {"hidden_states", "timestep", "encoder_hidden_states"}),
        (("text_encoder", "__call__"), {"input_ids"}),
        (("still_vae", "decode"), {"z"}),
    ],
)
def test_rows_do_not_reach_each_other(
    calls: dict[Method, list[ModuleCall]], method: Method, arguments: set[str]
) -> None:
    first, second = calls[method]
    assert set(check_merge(first, second)) >= arguments
    assert set(check_merge(grouped(first), grouped(second))) >= arguments


def test_a_wrong_spec_is_found(calls: dict[Method, list[ModuleCall]]) -> None:
    """The contract can fail: without the mask, padded text changes the shorter prompt's rows."""
    first, second = (grouped(call) for call in calls["transformer", "__call__"])
    length = first.arguments["encoder_hidden_states"].shape[1]
    text = second.arguments["encoder_hidden_states"]
    assert text.shape[1] < length
    unmasked = replace(
        second,
        arguments={
            **second.arguments,
            "encoder_hidden_states": torch.nn.functional.pad(
                text, (0, 0, 0, length - text.shape[1])
            ),
            "encoder_hidden_states_mask": None,
        },
    )
    with torch.inference_mode():
        honest, padded = second.run_alone()[0], unmasked.run_alone()[0]
    assert (honest - padded).abs().max() > 1e-3


def test_sizes_share_a_packed_forward_but_not_a_grouped_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mixed = [REQUESTS[0], replace(REQUESTS[1], width=96)]
    first, second = record_calls(DEMO, mixed, monkeypatch)["transformer", "__call__"]
    check_merge(first, second)
    assert grouped(first).key != grouped(second).key
