"""The tiny checkpoints of tests/fakes/tiny_diffusion do what the real ones do."""

import json
from importlib import import_module
from types import SimpleNamespace

import diffusers
import numpy
import pytest
import torch
from diffusers.modular_pipelines import PipelineState
from PIL import Image

from omnistage.tests.fakes.tiny_diffusion import CHECKPOINTS

WIDTH, HEIGHT, FRAMES = 64, 48, 5
SIZE = {"width": WIDTH, "height": HEIGHT}
GUIDED = {"negative_prompt": "grey", "true_cfg_scale": 3.0}
PICTURE = Image.effect_noise((WIDTH, HEIGHT), 80).convert("RGB")
CALLS = {
    "qwen_image": GUIDED | SIZE,
    "qwen_image_controlnet": GUIDED | SIZE,
    "qwen_image_edit": GUIDED | SIZE | {"image": PICTURE},
    "qwen_image_edit_plus": GUIDED | SIZE | {"image": [PICTURE, PICTURE.rotate(180)]},
    "qwen_image_edit_2511": GUIDED | SIZE | {"image": [PICTURE, PICTURE.rotate(180)]},
    "qwen_image_layered": GUIDED | {"image": PICTURE.convert("RGBA"), "layers": 2},
    "flux_kontext": SIZE | {"image": PICTURE, "max_area": WIDTH * HEIGHT, "_auto_resize": False},
    "wan": SIZE | {"num_frames": FRAMES},
    "wan22": SIZE | {"num_frames": FRAMES},
    "wan_i2v": SIZE | {"num_frames": FRAMES, "image": PICTURE},
    "wan22_i2v": SIZE | {"num_frames": FRAMES, "image": PICTURE},
    "ltx": {"width": 96, "height": 64, "num_frames": 9},
    "ltx_i2v": {"width": 96, "height": 64, "num_frames": 9, "image": PICTURE},
    "ltx2": {"width": 96, "height": 64, "num_frames": 9, "spatio_temporal_guidance_blocks": [1]},
    "hunyuan15": {"num_frames": FRAMES, "image": PICTURE},
    "ideogram4": {"width": 64, "height": 64, "guidance_scale": 3.0, "guidance_schedule": None},
    "helios": {"width": 64, "height": 64, "num_frames": 33},
    "helios_pyramid": {"width": 64, "height": 64, "num_frames": 33},
    "helios_pyramid_distilled": {"width": 64, "height": 64, "num_frames": 33},
    "qwen_image_21": {"width": 64, "height": 64},
    "qwen_image_21_turbo": {"width": 64, "height": 64},
    "ltx25": {"width": 96, "height": 64, "num_frames": 9},
    "echo": {"width": 96, "height": 64, "num_frames": 9},
}
"""What a family is asked for beside prompt, seed and steps."""
OF_EACH_SIZE = {"helios_pyramid", "helios_pyramid_distilled"}
"""Those with so many steps at each of three sizes."""
SHAPES = {
    "qwen_image_layered": (2, HEIGHT, WIDTH, 4),
    "ltx": (9, 64, 96, 3),
    "ltx_i2v": (9, 64, 96, 3),
    **dict.fromkeys(("ltx2", "ltx25", "echo"), (9, 64, 96, 3)),
    **dict.fromkeys(("helios", "helios_pyramid", "helios_pyramid_distilled"), (33, 64, 64, 3)),
    **dict.fromkeys(("qwen_image_21", "qwen_image_21_turbo"), (1, 64, 64, 4)),
    "ideogram4": (1, 64, 64, 3),
    "hunyuan15": (FRAMES, HEIGHT, WIDTH, 3),
    **dict.fromkeys(("wan", "wan22", "wan_i2v", "wan22_i2v"), (FRAMES, HEIGHT, WIDTH, 3)),
}


@pytest.fixture(autouse=True)
def small_references(monkeypatch):
    """The editing pipelines enlarge any picture to a million pixels."""
    for name in ("edit", "edit_plus", "layered"):
        module = import_module(f"diffusers.pipelines.qwenimage.pipeline_qwenimage_{name}")
        none = (None,) if name == "edit" else ()
        monkeypatch.setattr(module, "calculate_dimensions", lambda *_, n=none: (WIDTH, HEIGHT, *n))


@pytest.fixture(autouse=True)
def clean_prompts(monkeypatch):
    """Wan's pipeline mends broken text by a package that need not be there."""
    module = import_module("diffusers.pipelines.wan.pipeline_wan_i2v")
    mends_nothing = SimpleNamespace(fix_text=lambda text: text)
    monkeypatch.setattr(module, "ftfy", mends_nothing, raising=False)


@pytest.mark.parametrize("family", CHECKPOINTS)
def test_its_pipeline_draws_what_it_is_told(family, tmp_path):
    CHECKPOINTS[family](tmp_path)
    pipeline = load(tmp_path)
    first = draw(pipeline, family, "a red circle")
    assert first.shape == SHAPES.get(family, (1, HEIGHT, WIDTH, 3))
    assert numpy.isfinite(first).all()
    assert first.std() > 0.05
    assert ((first > 0.02) & (first < 0.98)).mean() > 0.3, "saturated"
    assert numpy.array_equal(draw(pipeline, family, "a red circle"), first)
    for other in (
        draw(pipeline, family, "a blue square on the left"),
        draw(pipeline, family, "a red circle", seed=1),
    ):
        assert numpy.abs(other - first).mean() > 1e-3


def test_a_seed_changes_every_weight(tmp_path):
    for seed in (0, 1):
        CHECKPOINTS["qwen_image"](tmp_path / str(seed), seed)
    one, other = (load(tmp_path / str(seed)).components for seed in (0, 1))
    for part in ("transformer", "vae", "text_encoder"):
        weights = zip(one[part].parameters(), other[part].parameters(), strict=True)
        assert not any(torch.equal(*pair) for pair in weights)


def load(folder):
    modular = folder / "modular_model_index.json"
    if modular.exists():
        return load_modular(folder, json.loads(modular.read_text())["_blocks_class_name"])
    name = json.loads((folder / "model_index.json").read_text())["_class_name"]
    pipeline = getattr(diffusers, name).from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def load_modular(folder, blocks):
    made = getattr(diffusers, blocks)()
    made.sub_blocks.pop("prompt_upsampler", None)
    pipeline = made.init_pipeline(str(folder))
    pipeline.load_components()
    return pipeline


def draw(pipeline, family, prompt, seed=0, steps=2):
    """Pictures, frames or layers [N,H,W,C] in 0..1."""
    told = (
        {"pyramid_num_inference_steps_list": [steps] * 3}
        if family in OF_EACH_SIZE
        else {"num_inference_steps": steps}
    )
    made = pipeline(
        prompt=prompt,
        **CALLS.get(family, SIZE),
        **told,
        generator=torch.Generator().manual_seed(seed),
        output_type="np",
    )
    if isinstance(made, PipelineState):
        return made.get("images") if made.get("videos") is None else made.get("videos")[0]
    return numpy.stack(made[0][0]) if made[0][0].ndim == 4 else made[0]
