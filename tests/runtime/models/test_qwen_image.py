"""Qwen-Image's stages through the engine, on the demo checkpoint."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from omnistage.runtime.bench.pictures import make_engine
from omnistage.runtime.engine.core import EngineEvent, StageTask
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.families.qwen_image import MAX_TOKENS
from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.runtime.protocol.frames import Frame, Tensor

ENTRY = ModelEntry("demo", "demo")


@pytest.fixture(scope="module")
def engine() -> DiffusionEngine:
    return make_engine(ENTRY, profile=False)


class Session:
    """Runs one stage after another and keeps what happened."""

    def __init__(self, engine: DiffusionEngine) -> None:
        self.engine = engine
        self.events: list[EngineEvent] = []

    def stage(self, stage: str, inputs: dict[str, Frame], **params: Any) -> dict[str, Frame]:
        checked = ENTRY.graph[stage].check_params(params)
        task = StageTask(f"{stage}-{id(params)}", "demo", stage, checked, inputs, previews=True)
        self.engine.submit(task)
        while self.engine.busy:
            self.events += self.engine.step()
        end = self.events[-1]
        if end.error is not None:
            raise end.error
        return dict(end.outputs)

    def encode(self, prompt: str, negative_prompt: str = "", **params: Any) -> dict[str, Frame]:
        return self.stage("text_encode", {}, prompt=prompt, negative_prompt=negative_prompt)


@pytest.fixture
def session(engine: DiffusionEngine) -> Session:
    return Session(engine)


def pixels(outputs: dict[str, Frame]) -> np.ndarray:
    return outputs["images"].tensors["images"].array


def test_a_picture_has_the_size_that_was_asked_for(session: Session) -> None:
    latent = session.stage("sample", session.encode("a star"), width=96, height=64, steps=2)
    picture = pixels(session.stage("vae_decode", latent))
    assert picture.shape == (1, 64, 96, 3)
    assert picture.dtype == np.float32
    assert picture.min() >= 0
    assert picture.max() <= 1


def test_picture_i_of_several_is_seed_plus_i_alone(session: Session) -> None:
    conditioning = session.encode("a star", " ")
    both = session.stage("sample", conditioning, steps=3, seed=2**64 - 1, count=2)
    alone = [session.stage("sample", conditioning, steps=3, seed=seed) for seed in (2**64 - 1, 0)]
    together = both["latent"].tensors["samples"].array
    for i, one in enumerate(alone):
        want = one["latent"].tensors["samples"].array[0]
        assert np.abs(together[i] - want).max() <= 2e-5 * np.abs(want).max()


def test_an_empty_negative_prompt_costs_no_second_forward(session: Session) -> None:
    rows = []
    for negative in ("", " "):
        conditioning = session.encode("a star", negative)
        before = session.engine.stats()["rows"]
        session.stage("sample", conditioning, steps=4)
        rows.append(session.engine.stats()["rows"] - before)
    assert rows == [4, 8]


@pytest.mark.parametrize("field", ["prompt", "negative_prompt"])
def test_a_prompt_over_the_token_limit_is_refused(session: Session, field: str) -> None:
    texts = {"prompt": "a star", field: "red " * (MAX_TOKENS + 1)}
    with pytest.raises(InvalidRequest, match="nothing is cut") as caught:
        session.encode(**texts)
    assert caught.value.field == field
    assert str(MAX_TOKENS) in (caught.value.allowed or "")
    session.encode("a star")  # the engine goes on


def test_image_to_image_starts_from_the_picture(session: Session) -> None:
    picture = np.full((1, 64, 64, 3), 0.9, np.float32)
    picture[:, 16:48, 16:48] = (0.8, 0.1, 0.1)
    frame = Frame({"kind": "images"}, {"images": Tensor.of(picture)})
    latent = session.stage("vae_encode", {"images": frame})
    back = pixels(session.stage("vae_decode", latent))
    assert np.abs(back - picture).mean() < 0.1
    conditioning = session.encode("a red square on a white background")
    changed = session.stage("sample", {**conditioning, **latent}, steps=10, denoise=0.3)
    assert session.events[-2].total == 3, "only the end of the schedule runs"
    assert np.abs(pixels(session.stage("vae_decode", changed)) - picture).mean() < 0.2


def test_a_latent_of_another_size_is_refused(session: Session) -> None:
    conditioning = session.encode("a star")
    latent = session.stage("sample", conditioning, width=96, height=64, steps=1)
    with pytest.raises(InvalidRequest, match="96x64") as caught:
        session.stage("sample", {**conditioning, **latent}, width=64, height=64, steps=2)
    assert caught.value.field == "latent"


def test_several_pictures_are_encoded_each_as_if_alone(session: Session) -> None:
    pictures = np.random.default_rng(0).random((3, 64, 64, 3), np.float32)
    frames = [Frame({"kind": "images"}, {"images": Tensor.of(p)}) for p in (pictures, pictures[:1])]
    many, one = (
        session.stage("vae_encode", {"images": f})["latent"].tensors["samples"].array
        for f in frames
    )
    assert len(many) == 3
    assert np.abs(many[:1] - one).max() <= 2e-5 * np.abs(one).max()


def test_each_of_several_pictures_is_changed_as_if_alone(session: Session) -> None:
    pictures = np.random.default_rng(0).random((2, 64, 64, 3), np.float32)
    conditioning = session.encode("a red square on a white background", " ")
    results = []
    for start in (pictures, pictures[:1], pictures[1:]):
        frame = Frame({"kind": "images"}, {"images": Tensor.of(start)})
        latent = session.stage("vae_encode", {"images": frame})
        seed = 8 if start is pictures or len(results) == 1 else 9
        changed = session.stage(
            "sample", {**conditioning, **latent}, steps=6, denoise=0.5, seed=seed
        )
        results.append(changed["latent"].tensors["samples"].array)
    both, first, second = results
    alone = np.concatenate([first, second])
    assert np.abs(both - alone).max() <= 5e-5 * np.abs(alone).max()


def test_count_pictures_of_each_latent(session: Session) -> None:
    pictures = np.random.default_rng(0).random((2, 64, 64, 3), np.float32)
    frame = Frame({"kind": "images"}, {"images": Tensor.of(pictures)})
    latent = session.stage("vae_encode", {"images": frame})
    conditioning = session.encode("a star")
    changed = session.stage("sample", {**conditioning, **latent}, steps=2, count=3)
    assert changed["latent"].tensors["samples"].array.shape[0] == 6


def test_latents_in_the_vaes_own_space_are_normalised(session: Session) -> None:
    latent = session.stage("sample", session.encode("a star"), steps=2)["latent"]
    mean, std = (np.reshape(latent.header[k], (1, -1, 1, 1, 1)) for k in ("mean", "std"))
    raw = (latent.tensors["samples"].array * std + mean).astype(np.float32)
    upload = Frame({"kind": "latent", "space": "vae"}, {"samples": Tensor.of(raw)})
    ours, theirs = (
        pixels(session.stage("vae_decode", {"latent": frame})) for frame in (latent, upload)
    )
    assert np.abs(ours - theirs).max() < 1e-4


@pytest.mark.parametrize("shape", [(1, 4, 1, 8, 8), (1, 16, 8, 8)])
def test_what_is_no_latent_of_the_model_is_refused(
    session: Session, shape: tuple[int, ...]
) -> None:
    frame = Frame({"kind": "latent"}, {"samples": Tensor.of(np.zeros(shape, np.float32))})
    with pytest.raises(InvalidRequest, match="no latents of this model"):
        session.stage("vae_decode", {"latent": frame})


def test_a_picture_that_would_be_cut_is_refused(session: Session) -> None:
    frame = Frame({"kind": "images"}, {"images": Tensor.of(np.zeros((1, 100, 64, 3), np.float32))})
    with pytest.raises(InvalidRequest, match="multiples of 16"):
        session.stage("vae_encode", {"images": frame})


def test_previews_show_what_will_be_seen(session: Session) -> None:
    latent = session.stage("sample", session.encode("a star"), steps=20, seed=4)
    previews = [event.image for event in session.events if event.kind == "preview"]
    assert previews
    assert all(image is not None for image in previews)
    last = Image.open(io.BytesIO(previews[-1] or b"")).convert("RGB").resize((8, 8))
    final = (pixels(session.stage("vae_decode", latent))[0] * 255).astype(np.uint8)
    small = Image.fromarray(final).resize((8, 8))
    assert np.abs(np.asarray(last, float) - np.asarray(small, float)).mean() < 40


def test_the_folded_vae_equals_the_original(session: Session) -> None:
    session.encode("a star")
    modules = session.engine._models["demo"].modules
    z = torch.randn(2, 16, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    x = torch.rand(2, 3, 1, 64, 64) * 2 - 1
    with torch.inference_mode():
        pairs = [
            (modules["vae"].decode(z).sample, modules["still_vae"].decode(z).sample),
            (
                modules["vae"].encode(x).latent_dist.mode(),
                modules["still_vae"].encode(x).latent_dist.mode(),
            ),
        ]
    for original, folded in pairs:
        assert (original - folded).abs().max() <= 2e-5 * original.abs().max()


def test_the_folded_vae_shares_its_weights(session: Session) -> None:
    session.encode("a star")
    model = session.engine._models["demo"]
    own = sum(p.numel() * p.element_size() for p in model.modules["vae"].parameters())
    rest = sum(
        p.numel() * p.element_size()
        for name in ("transformer", "text_encoder")
        for p in model.modules[name].parameters()
    )
    assert sum(session.engine.stats()["components"].values()) < (own + rest) * 1.05
