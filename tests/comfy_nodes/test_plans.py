"""What each node asks for."""

from __future__ import annotations

import pytest
import torch

from omnistage.comfy_nodes import plans
from omnistage.comfy_nodes.media import frame_to_images
from omnistage.comfy_nodes.values import Conditioning, Latent, Model
from omnistage.runtime.protocol.frames import Frame
from omnistage.runtime.protocol.recipe import Handle, JobSpec

MODEL = Model("demo")
NEUTRAL = {
    "width": 0,
    "height": 0,
    "count": 1,
    "steps": 0,
    "guidance": -1.0,
    "scheduler": "default",
    "denoise": 1.0,
    "seed": 0,
}


@pytest.fixture
def conditioning() -> Conditioning:
    return plans.text_encode(MODEL, "a red circle", "")


def spec_of(result: Conditioning | Latent) -> JobSpec:
    assert isinstance(result.source, Handle)
    return result.source.recipe.jobs[-1]


def test_equal_inputs_give_equal_jobs(conditioning):
    again = plans.text_encode(MODEL, "a red circle", "")
    assert again == conditioning
    one = plans.sample(MODEL, conditioning, **NEUTRAL)
    assert one == plans.sample(MODEL, again, **NEUTRAL)


def test_a_models_own_defaults_are_left_out(conditioning):
    assert spec_of(plans.sample(MODEL, conditioning, **NEUTRAL)).params == {"count": 1, "seed": 0}


def test_what_is_given_is_sent(conditioning):
    given = {
        "width": 64,
        "height": 128,
        "count": 3,
        "steps": 7,
        "guidance": 0.0,
        "scheduler": "euler",
        "denoise": 0.5,
        "seed": 2**64 - 1,
    }
    assert spec_of(plans.sample(MODEL, conditioning, **given)).params == given


def test_a_handle_carries_its_whole_recipe(conditioning):
    images = plans.vae_decode(MODEL, plans.sample(MODEL, conditioning, **NEUTRAL))
    assert [job.stage for job in images.source.recipe] == ["text_encode", "sample", "vae_decode"]


def test_an_uploaded_picture_travels_with_the_handle(conditioning):
    picture = torch.rand(2, 32, 48, 3)
    latent = plans.vae_encode(MODEL, picture)
    assert latent.size == (48, 32)
    sampled = plans.sample(MODEL, conditioning, **NEUTRAL, latent=latent)
    assert isinstance(sampled.source, Handle)
    assert spec_of(sampled).params["width"] == 48
    (data,) = sampled.source.blobs.values()
    assert set(sampled.source.blobs) == sampled.source.recipe.blobs()
    assert torch.equal(frame_to_images(Frame.decode(data)), picture)


def test_an_explicit_size_wins_over_the_latents(conditioning):
    latent = plans.vae_encode(MODEL, torch.rand(1, 32, 48, 3))
    sampled = plans.sample(MODEL, conditioning, **{**NEUTRAL, "width": 64}, latent=latent)
    assert spec_of(sampled).params["width"] == 64
    assert spec_of(sampled).params["height"] == 32


def test_a_latent_of_comfyui_is_an_upload_without_a_job(conditioning):
    latent = plans.from_latent(MODEL, {"samples": torch.zeros(1, 16, 8, 8)})
    assert not isinstance(latent.source, Handle)
    sampled = plans.sample(MODEL, conditioning, **{**NEUTRAL, "width": 64}, latent=latent)
    assert spec_of(sampled).inputs["latent"] == latent.source.ref


def test_an_address_is_taken_without_blanks_and_slash():
    assert plans.load_model("demo", " http://host:1/ ") == Model("demo", "http://host:1")


def test_strict_goes_with_every_stage_of_the_model():
    model = plans.load_model("demo", strict=True)
    handle = plans.vae_decode(model, a_latent(model)).source
    assert [job.params["strict"] for job in handle.recipe] == [True] * 3


def a_latent(model: Model):
    conditioning = plans.text_encode(model, "a star")
    sizes = {"width": 0, "height": 0, "count": 1, "steps": 0}
    choices = {"guidance": -1.0, "scheduler": plans.DEFAULT, "denoise": 1.0, "seed": 1}
    return plans.sample(model, conditioning, **sizes, **choices)
