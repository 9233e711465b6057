"""ControlNets in sampling: counts, starting pictures, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from omnistage.runtime.models.modules import weight_bytes
from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.runtime.protocol.frames import Frame
from omnistage.tests.fakes import original_names, weight_files

from .sessions import Session, pictures, write

FAMILIES = ("qwen_image_controlnet", "sdxl_controlnet")
CONTROL = {"name": "lines"}
PUBLISHED = {"sdxl_controlnet": original_names.controlnet_xl}
"""Other names of tensors that files have."""


@pytest.fixture(scope="module", params=FAMILIES)
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp(request.param)
    model = write(request.param, folder)
    return Session(replace(model, controlnets={"lines": str(folder / "controlnet")}))


@pytest.fixture(scope="module")
def conditioning(session: Session) -> dict[str, Frame]:
    return session.encode()


def close(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> bool:
    return bool(np.abs(got - want).max() <= 2e-5 * np.abs(want).max())


def test_each_of_several_pictures_is_what_its_seed_gives_alone(
    session: Session, conditioning: dict[str, Frame]
) -> None:
    inputs = {**conditioning, "control": pictures(1, 64, 64)}

    def made(seed: int, count: int = 1) -> np.ndarray[Any, Any]:
        return session.latent(inputs, control=CONTROL, seed=seed, count=count, width=64, height=64)

    together = made(5, count=2)
    for i in range(2):
        assert close(together[i : i + 1], made(5 + i))


def test_each_of_several_starting_pictures_is_steered(
    session: Session, conditioning: dict[str, Frame]
) -> None:
    def made(starts: Frame, seed: int) -> np.ndarray[Any, Any]:
        latent = session.stage("vae_encode", {"images": starts}, seed=seed)
        inputs = {**conditioning, **latent, "control": pictures(1, 64, 64, seed=9)}
        return session.latent(inputs, control=CONTROL, denoise=0.5, seed=seed, width=64, height=64)

    both = pictures(2, 64, 64)
    together = made(both, 3)
    for i in range(2):
        one = replace(both, tensors={"images": _row(both, i)})
        assert close(together[i : i + 1], made(one, 3 + i))


def test_one_in_a_file_gives_the_very_latents_of_its_folder(
    session: Session, conditioning: dict[str, Frame], tmp_path: Path
) -> None:
    folder = session.model.checkpoint.controlnets["lines"].folder
    tensors = load_file(folder / "diffusion_pytorch_model.safetensors")
    published = PUBLISHED.get(session.model.id, dict)(tensors)
    inputs = {**conditioning, "control": pictures(1, 64, 64)}

    def made(one: Session) -> np.ndarray[Any, Any]:
        return one.latent(inputs, control=CONTROL, width=64, height=64)

    def from_file(given: dict[str, Any], name: str) -> np.ndarray[Any, Any]:
        path = weight_files.save(given, tmp_path / f"{name}.safetensors")
        return made(Session(replace(session.model, controlnets={"lines": str(path)})))

    theirs = made(session)
    assert np.array_equal(from_file(tensors, "own"), theirs)
    assert close(from_file(published, "published"), theirs)  # equal weights, otherwise aligned
    assert not close(session.latent(conditioning, width=64, height=64), theirs)


def _row(frame: Frame, i: int) -> Any:
    tensor = frame.tensors["images"]
    return type(tensor).of(tensor.array[i : i + 1].copy())


@pytest.mark.parametrize(
    ("picture", "control", "words"),
    [
        (None, CONTROL, "needs both"),
        (pictures(1, 64, 64), None, "needs both"),
        (pictures(1, 96, 64), CONTROL, "64x64"),
        (pictures(2, 64, 64), CONTROL, "one picture"),
        (pictures(1, 64, 64, channels=4), CONTROL, "4 channels"),
    ],
)
def test_what_does_not_fit_is_refused(
    session: Session,
    conditioning: dict[str, Frame],
    picture: Frame | None,
    control: dict[str, Any] | None,
    words: str,
) -> None:
    inputs = dict(conditioning) if picture is None else {**conditioning, "control": picture}
    with pytest.raises(InvalidRequest, match=words) as caught:
        session.latent(inputs, control=control, width=64, height=64)
    assert caught.value.field == "control"
    assert caught.value.stage == "sample"


def test_its_weights_are_loaded_when_a_request_wants_them(session: Session) -> None:
    fresh = Session(session.model)
    plain = fresh.encode()
    fresh.stage("vae_encode", {"images": pictures(1, 64, 64)})
    fresh.latent(plain, width=64, height=64)
    before = fresh.stats()
    steered = {**plain, "control": pictures(1, 64, 64)}
    fresh.latent(steered, control=CONTROL, width=64, height=64)
    after = fresh.stats()
    (source,) = session.model.checkpoint.controlnets.values()
    assert after["loads"] - before["loads"] == 1
    assert after["resident_bytes"] - before["resident_bytes"] == weight_bytes(
        source.folder, "float32"
    )
