from __future__ import annotations

from typing import Any

import pytest

from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.runtime.protocol.messages import JobEvent, SubmitRequest
from omnistage.runtime.protocol.recipe import Blob, JobSpec, Recipe, handle_of

ENCODE = JobSpec.make("m", "text_encode", {"prompt": "a"}, {})
COND = handle_of(ENCODE, "conditioning")
SAMPLE = JobSpec.make("m", "sample", {"seed": 2**64 - 1}, {"conditioning": COND.ref})
LATENT = handle_of(SAMPLE, "latent", [COND])


def test_equal_requests_have_equal_ids() -> None:
    again = JobSpec.make("m", "text_encode", {"prompt": "a"}, {})
    assert again.id == ENCODE.id
    assert JobSpec.make("m", "text_encode", {"prompt": "b"}, {}).id != ENCODE.id


def test_a_handle_carries_what_it_takes() -> None:
    assert [job.stage for job in LATENT.recipe] == ["text_encode", "sample"]
    both = LATENT.recipe.merged(COND.recipe, LATENT.recipe)
    assert both.jobs == LATENT.recipe.jobs


def test_a_recipe_survives_the_wire() -> None:
    assert Recipe.from_json(LATENT.recipe.to_json()) == LATENT.recipe


def test_uploads_are_known() -> None:
    job = JobSpec.make("m", "vae_encode", {}, {"images": Blob("abc")})
    assert Recipe((job,)).blobs() == {"abc"}


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"params": []},
        {"model": 3},
        {"inputs": {"x": 5}},
        {"inputs": {"x": {"job": "later", "output": "y"}}},
        {"inputs": {"x": {"job": 1, "output": "y"}}},
        {"inputs": {"x": {"blob": "a", "job": "b"}}},
    ],
)
def test_a_wrong_job_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Recipe.from_json([{**ENCODE.to_json(), **change}])


def test_order_and_ids_matter() -> None:
    encode, sample = LATENT.recipe.to_json()
    with pytest.raises(InvalidRequest, match="does not come earlier"):
        Recipe.from_json([sample, encode])
    with pytest.raises(InvalidRequest, match="Two jobs"):
        Recipe.from_json([encode, encode])
    with pytest.raises(InvalidRequest, match="must be a list"):
        Recipe.from_json({})


def test_submit_requests() -> None:
    request = SubmitRequest("owner", "client", LATENT.recipe, priority=3)
    assert SubmitRequest.from_json(request.to_json()) == request
    with pytest.raises(InvalidRequest, match="no field 'colour'"):
        SubmitRequest.from_json({**request.to_json(), "colour": "red"})
    with pytest.raises(InvalidRequest, match="priority"):
        SubmitRequest.from_json({**request.to_json(), "priority": True})


def test_events_survive_the_wire() -> None:
    event = JobEvent("k", "failed", error=InvalidRequest("no", field="steps", value=0))
    back = JobEvent.from_json(event.to_json())
    assert back.final
    assert isinstance(back.error, InvalidRequest)
    assert (back.error.field, back.error.value) == ("steps", 0)
