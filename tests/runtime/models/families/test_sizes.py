"""Sizes: what is asked for is delivered, and what is not asked for follows the picture."""

from __future__ import annotations

from typing import Any

import pytest

from omnistage.runtime.models.modular.sizes import Sides
from omnistage.runtime.protocol.errors import InvalidRequest

from .sessions import Session, pictures, write

MULTIPLES = {
    "qwen_image": 16,
    "qwen_image_edit": 16,
    "qwen_image_edit_plus": 16,
    "flux": 16,
    "flux_kontext": 16,
    "flux2": 16,
    "flux2_klein": 16,
    "flux2_klein_base": 16,
    "z_image": 16,
    "sd3": 16,
    "sdxl": 8,
    "wan": 16,
    "wan22": 16,
    "wan_i2v": 16,
    "wan22_i2v": 16,
}


@pytest.fixture(scope="module", autouse=True)
def small_pictures() -> Any:
    """The editing families enlarge each picture to a million pixels for themselves."""
    from diffusers.modular_pipelines.qwenimage import encoders
    from diffusers.pipelines.flux import pipeline_flux_kontext

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoders, "calculate_dimensions", lambda area, ratio: (64, 64, None))
        patch.setattr(pipeline_flux_kontext, "PREFERRED_KONTEXT_RESOLUTIONS", [(64, 64)])
        yield


@pytest.fixture(scope="module", params=MULTIPLES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def session(family: str, tmp_path_factory: pytest.TempPathFactory) -> Session:
    return Session(write(family, tmp_path_factory.mktemp(family)))


@pytest.fixture(scope="module")
def conditioning(session: Session) -> Any:
    takes = session.model.graph["text_encode"].inputs
    given = {"images": pictures(1, 112, 72)} if "images" in takes else {}
    return session.encode(**given)


def frames(session: Session) -> dict[str, int]:
    fields = session.model.graph["sample"].params.model_fields
    return {"frames": 5} if "frames" in fields else {}


def test_what_is_asked_for_is_delivered(session: Session, family: str, conditioning: Any) -> None:
    multiple = MULTIPLES[family]
    for width, height in ((3 * multiple, 5 * multiple), (80, 48)):
        made = session.made(conditioning, width=width, height=height, **frames(session))
        assert made == (width, height)


def test_a_size_between_is_refused(session: Session, family: str, conditioning: Any) -> None:
    multiple = MULTIPLES[family]
    for field in ("width", "height"):
        with pytest.raises(InvalidRequest, match=f"a multiple of {multiple}") as caught:
            session.made(conditioning, **{"width": 64, "height": 64, field: 64 + multiple // 2})
        assert caught.value.field == field


def test_without_a_size_the_result_is_like_the_picture(
    session: Session, family: str, conditioning: Any
) -> None:
    stage = session.model.graph["text_encode"]
    if "images" not in stage.inputs:
        assert session.model.graph["sample"].check_params({})["width"] > 0
        return
    if family.endswith("i2v"):  # by its shape: this would be a large film
        assert session.made(conditioning, width=64, **frames(session)) == (64, 48)
        return
    assert session.made(conditioning) == (112, 80)
    assert session.made(conditioning, height=48) == (80, 48)


@pytest.mark.parametrize(
    ("asked", "like", "size"),
    [
        ((512, 256), (64, 64), (512, 256)),
        ((0, 0), None, (1024, 1024)),
        ((512, 0), None, (512, 1024)),
        ((0, 0), (1000, 500), (1008, 496)),
        ((0, 0), (4000, 2000), (2048, 1024)),
        ((0, 0), (3, 3), (16, 16)),
        ((512, 0), (1000, 500), (512, 256)),
        ((0, 2048), (4000, 1000), (2048, 2048)),
    ],
)
def test_sides(asked: tuple[int, int], like: Any, size: tuple[int, int]) -> None:
    assert Sides(16, 2048).fill(*asked, like) == size


def test_sides_of_an_area() -> None:
    sides = Sides(16, 2048, area=832 * 480)
    assert sides.fill(0, 0, (1920, 1080)) == (848, 480)
    assert sides.fill(0, 0, (1080, 1920)) == (480, 848)
    assert sides.fill(64, 48, (1080, 1920)) == (64, 48)
