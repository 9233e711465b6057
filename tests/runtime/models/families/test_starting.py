"""Starting from pictures: masks, several pictures, counts, and what is refused."""

from __future__ import annotations

from typing import Any

import diffusers
import numpy as np
import pytest

from omnistage.runtime.models.families import DIFFUSION
from omnistage.runtime.models.modular.family import ModularFamily
from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.runtime.protocol.frames import Frame, Tensor

from .sessions import Session, images, pictures, write

STARTING = ("qwen_image", "flux", "z_image", "sd3", "sdxl")
INPAINTING = ("qwen_image", "sdxl")


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Session] = {}

    def session(family: str) -> Session:
        if family not in made:
            made[family] = Session(write(family, tmp_path_factory.mktemp(family)))
        return made[family]

    return session


def close(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> bool:
    return bool(np.abs(got - want).max() <= 2e-5 * np.abs(want).max())


def a_mask(count: int = 1) -> np.ndarray[Any, Any]:
    mask = np.zeros((count, 64, 64, 1), np.float32)
    for i in range(count):
        mask[i, 16:48, 16 : 32 + 16 * i] = 1
    return mask


@pytest.mark.parametrize(
    "family", [f for f in DIFFUSION if f.pipelines], ids=lambda family: family.name
)
def test_what_a_family_says_of_starting_is_what_its_blocks_take(family: ModularFamily) -> None:
    for name in family.pipelines.values():
        blocks = getattr(diffusers, name)().sub_blocks
        denoise = {given.name for given in blocks["denoise"].inputs}
        encoder = blocks["vae_encoder"].inputs if "vae_encoder" in blocks else []
        assert family.starts == ({"image_latents", "strength"} <= denoise)
        assert family.inpaints == ("mask_image" in {given.name for given in encoder})


@pytest.mark.parametrize("family", STARTING)
def test_each_of_several_pictures_is_changed_as_if_alone(sessions: Any, family: str) -> None:
    session = sessions(family)
    both = pictures(2, 64, 64)
    conditioning = session.encode()

    def changed(frame: Any, seed: int, count: int = 1) -> np.ndarray[Any, Any]:
        latent = session.stage("vae_encode", {"images": frame}, seed=seed)
        start = {**conditioning, **latent}
        return session.latent(start, denoise=0.5, seed=seed, count=count, width=64, height=64)

    together = changed(both, seed=7)
    each = both.tensors["images"].array
    alone = [changed(images(each[i : i + 1]), seed=7 + i) for i in range(2)]
    assert close(together, np.concatenate(alone))
    twice = changed(images(each[:1]), seed=7, count=2)
    assert close(twice[:1], alone[0])
    assert not close(twice[1:], alone[0])


@pytest.mark.parametrize("family", STARTING)
def test_the_results_of_one_picture_stand_together(sessions: Any, family: str) -> None:
    session = sessions(family)
    latent = session.stage("vae_encode", {"images": pictures(2, 64, 64)})["latent"]
    conditioning = session.encode()

    def made(start: Frame, seed: int, count: int = 1) -> np.ndarray[Any, Any]:
        inputs = {**conditioning, "latent": start}
        return session.latent(inputs, denoise=0.5, seed=seed, count=count, width=64, height=64)

    together = made(latent, seed=5, count=2)
    samples = latent.tensors["samples"].array
    for row, source in enumerate((0, 0, 1, 1)):
        one = Frame(latent.header, {"samples": Tensor.of(samples[source : source + 1].copy())})
        assert close(together[row : row + 1], made(one, seed=5 + row))


@pytest.mark.parametrize("family", INPAINTING)
def test_latents_outside_of_the_mask_stay_bit_for_bit(sessions: Any, family: str) -> None:
    session = sessions(family)
    inputs = {"images": pictures(1, 64, 64), "mask": images(a_mask())}
    latent = session.stage("vae_encode", inputs)
    made = session.latent({**session.encode(), **latent}, width=64, height=64)
    changed = (made != latent["latent"].tensors["samples"].array).any(axis=1).squeeze()
    assert changed.shape == (8, 8)
    assert changed.sum() == 8
    assert changed[2:6, 2:4].all()


@pytest.mark.parametrize("family", INPAINTING)
def test_one_mask_for_all_pictures_or_one_for_each(sessions: Any, family: str) -> None:
    session = sessions(family)
    both, conditioning = pictures(2, 64, 64), session.encode()
    each = both.tensors["images"].array

    def made(frame: Any, mask: np.ndarray[Any, Any], seed: int) -> np.ndarray[Any, Any]:
        inputs = {"images": frame, "mask": images(mask)}
        latent = session.stage("vae_encode", inputs, seed=seed)
        return session.latent({**conditioning, **latent}, seed=seed, width=64, height=64)

    masks = a_mask(2)
    for mask in (masks, masks[:1]):
        own = np.broadcast_to(mask, masks.shape)
        alone = [made(images(each[i : i + 1]), own[i : i + 1], i) for i in range(2)]
        assert close(made(both, mask, 0), np.concatenate(alone))


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("images", {"images": pictures(1, 100, 64)}),
        ("images", {"images": pictures(1, 64, 64, channels=1)}),
        ("images", {"images": pictures(1, 64, 64, channels=4)}),
        ("mask", {"images": pictures(1, 64, 64), "mask": pictures(1, 96, 64, channels=1)}),
        ("mask", {"images": pictures(3, 64, 64), "mask": pictures(2, 64, 64, channels=1)}),
    ],
)
def test_what_does_not_fit_is_refused(sessions: Any, field: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sessions("sdxl").stage("vae_encode", given)
    assert caught.value.field == field
    assert caught.value.allowed


def test_a_latent_of_another_size_is_refused(sessions: Any) -> None:
    session = sessions("sdxl")
    latent = session.stage("vae_encode", {"images": pictures(1, 96, 64)})
    with pytest.raises(InvalidRequest) as caught:
        session.latent({**session.encode(), **latent}, width=64, height=64)
    assert caught.value.field == "latent"
    assert caught.value.allowed == "64x64"


def test_a_picture_that_the_model_would_scale_is_refused(sessions: Any) -> None:
    inputs = {"images": pictures(1, 64, 64), "mask": images(a_mask())}
    with pytest.raises(InvalidRequest, match="1024x1024") as caught:
        sessions("qwen_image_edit").stage("vae_encode", inputs)
    assert caught.value.field == "images"


def from_elsewhere(latent: Frame, mask: np.ndarray[Any, Any]) -> Frame:
    """A latent as ComfyUI has it: in the VAE's own space, with a mask of its own size."""
    mean, std = (
        np.array(latent.header[name], np.float32).reshape(1, -1, 1, 1, 1)
        for name in ("mean", "std")
    )
    samples = latent.tensors["samples"].array
    if samples.ndim == 4:
        samples = samples[:, :, None]
    tensors = {"samples": Tensor.of(samples * std + mean), "mask": Tensor.of(mask)}
    return Frame({"kind": "latent", "space": "vae"}, tensors)


def test_a_mask_that_comes_with_a_latent_is_kept_to(sessions: Any) -> None:
    session = sessions("qwen_image")
    source = pictures(1, 64, 64)
    conditioning = session.stage("text_encode", {}, prompt="a star", negative_prompt=" ")
    encoded = session.stage("vae_encode", {"images": source})["latent"]
    small = np.zeros((1, 1, 8, 8), np.float32)
    small[..., 4:] = 1
    given = {**conditioning, "latent": from_elsewhere(encoded, small)}
    changed = session.stage("sample", given, width=64, height=64, steps=4, denoise=0.8)
    before = encoded.tensors["samples"].array
    after = changed["latent"].tensors["samples"].array
    assert np.abs(after - before)[..., :4].max() <= 1e-5
    assert np.abs(after - before)[..., 4:].max() > 1e-2


@pytest.mark.parametrize("family", ["flux", "sdxl"])
def test_a_mask_that_cannot_be_kept_to_is_refused(sessions: Any, family: str) -> None:
    session = sessions(family)
    conditioning = session.stage("text_encode", {}, prompt="a star")
    encoded = session.stage("vae_encode", {"images": pictures(1, 64, 64)})["latent"]
    given = {**conditioning, "latent": from_elsewhere(encoded, np.ones((1, 1, 8, 8), np.float32))}
    with pytest.raises(InvalidRequest, match="takes no mask") as caught:
        session.stage("sample", given, width=64, height=64, steps=2)
    assert caught.value.field == "latent"


@pytest.mark.parametrize(("height", "width"), [(32, 96), (64, 520)])
def test_a_reference_picture_that_its_blocks_would_refuse_is_refused_first(
    sessions: Any, height: int, width: int
) -> None:
    session = sessions("flux2_klein")
    with pytest.raises(InvalidRequest, match="at least 64 px a side") as caught:
        session.stage("text_encode", {"images": pictures(1, width, height)}, prompt="blue")
    assert (caught.value.field, caught.value.value) == ("images", f"{width}x{height}")


@pytest.mark.parametrize(("height", "width"), [(64, 64), (64, 512)])
def test_a_reference_picture_at_the_limit_is_taken(sessions: Any, height: int, width: int) -> None:
    session = sessions("flux2_klein")
    encoded = session.stage("text_encode", {"images": pictures(1, width, height)}, prompt="blue")
    made = session.stage("sample", encoded, width=64, height=64, steps=1)
    assert np.isfinite(made["latent"].tensors["samples"].array).all()
