"""What a family does unless it is told otherwise, and how long a prompt may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnistage.runtime.protocol.errors import InvalidRequest

from .sessions import Session, write

DEFAULTS = {
    "qwen_image": {"width": 1024, "height": 1024, "steps": 50, "guidance": 4.0},
    "qwen_image_edit": {"width": 0, "height": 0, "steps": 50, "guidance": 4.0},
    "qwen_image_edit_plus": {"width": 0, "height": 0, "steps": 50, "guidance": 4.0},
    "flux": {"width": 1024, "height": 1024, "steps": 28, "guidance": 3.5},
    "flux_kontext": {"width": 0, "height": 0, "steps": 28, "guidance": 2.5},
    "flux2": {"width": 0, "height": 0, "steps": 50, "guidance": 4.0},
    "flux2_klein": {"width": 0, "height": 0, "steps": 4, "guidance": 1.0},
    "flux2_klein_base": {"width": 0, "height": 0, "steps": 50, "guidance": 4.0},
    "sd3": {"width": 1024, "height": 1024, "steps": 28, "guidance": 7.0},
    "sdxl": {"width": 1024, "height": 1024, "steps": 50, "guidance": 5.0},
    "wan": {"width": 832, "height": 480, "steps": 50, "guidance": 5.0, "frames": 81},
    "wan22": {"width": 832, "height": 480, "steps": 40, "guidance": 4.0, "frames": 81},
    "wan_i2v": {"width": 0, "height": 0, "steps": 50, "guidance": 5.0, "frames": 81},
    "wan22_i2v": {"width": 0, "height": 0, "steps": 40, "guidance": 3.5, "frames": 81},
}
"""diffusers' own where it has some, else those of the model's card."""

LIMITS = {
    "qwen_image": 1024,
    "flux": 512,
    "flux_kontext": 512,
    "flux2": 448,
    "flux2_klein": 496,
    "z_image": 496,
    "sd3": 256,
    "sdxl": 77,
    "wan": 512,
    "wan_i2v": 512,
    "ltx2": 1024,
}


@pytest.mark.parametrize("family", DEFAULTS)
def test_defaults(family: str, tmp_path: Path) -> None:
    params = write(family, tmp_path).graph["sample"].check_params({})
    assert {name: params[name] for name in DEFAULTS[family]} == DEFAULTS[family]


@pytest.mark.parametrize("family", LIMITS)
def test_a_prompt_over_the_limit_is_refused_and_one_below_is_read(
    family: str, tmp_path: Path
) -> None:
    session = Session(write(family, tmp_path))
    most = LIMITS[family]
    with pytest.raises(InvalidRequest, match="nothing is cut") as caught:
        session.stage("text_encode", {}, prompt="a " * (most + 1))
    assert caught.value.field == "prompt"
    assert str(most) in str(caught.value.allowed)
    session.stage("text_encode", {}, prompt="red")
