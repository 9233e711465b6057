"""The table of the generic families against diffusers' own blocks and its own mapping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.checkpoint import Checkpoint
from omnistage.runtime.models.families import DIFFUSION
from omnistage.runtime.models.families.generic import (
    GENERIC,
    PIPELINES,
    ROWS,
    VARIANTS,
    Row,
    blocks_of,
)
from omnistage.runtime.models.family import family_of
from omnistage.runtime.models.modular.guiders import guidance_schedule
from omnistage.runtime.models.torchvision_ops import make_torchvision_importable
from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.tests.fakes.tiny_diffusion import CHECKPOINTS

from .sessions import Session, pictures, write

make_torchvision_importable()
diffusers = pytest.importorskip("diffusers")

NOT_SERVED = {
    "Cosmos3DistilledBlocks",
    "Cosmos3OmniBlocks",
    "MiniMaxH3Blocks",
    "MiniMaxMusic3Blocks",
    "Wan22VaceBlocks",
    "WanAnimate2Blocks",
    "WanAnimate2DistilledBlocks",
}
"""They draw from something else than words and a picture."""

PARTS_OF_OTHERS = {
    "AutoPipelineBlocks",
    "ConditionalPipelineBlocks",
    "LoopSequentialPipelineBlocks",
    "ModularPipelineBlocks",
    "SequentialPipelineBlocks",
}


def taken(row: Row, block: str) -> set[str]:
    blocks = getattr(diffusers, row.blocks)().sub_blocks
    return {given.name for given in blocks[block].inputs} if block in blocks else set()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row_is_what_the_blocks_take_and_give(row: Row) -> None:
    blocks = getattr(diffusers, row.blocks)()
    gives = {output.name for output in blocks.sub_blocks["decode"].outputs}
    denoise = taken(row, "denoise")
    guides = any("uidance" in str(s.type_hint) for s in blocks.expected_components)
    pictures = taken(row, "vae_encoder") | taken(row, "image_encoder")
    steps = {"pyramid_num_inference_steps_list"} if row.sizes else {"num_inference_steps"}
    assert bool(row.per_latent) == ("videos" in gives) == ("num_frames" in denoise)
    assert ("images" in gives) == (not row.per_latent)
    assert row.sounds == ("audio" in gives)
    assert row.negatives == ("negative_prompt" in taken(row, "text_encoder"))
    assert (bool(row.references) or row.starts) == ("image" in pictures)
    assert row.starts == ("strength" in denoise)
    assert row.steps == (steps <= denoise)
    assert row.fps == ("frame_rate" in denoise)
    assert row.guidance == (guides or bool({"guidance_scale", "guidance_schedule"} & denoise))


def test_all_blocks_of_diffusers_are_served_by_a_family() -> None:
    by_hand = {blocks for family in DIFFUSION for blocks in family.pipelines.values()}
    by_hand |= {"Flux2KleinBaseAutoBlocks", "Wan22Blocks", "Wan22Image2VideoBlocks"}
    all_blocks = {name for name in dir(diffusers) if name.endswith("Blocks")}
    served = by_hand | {row.blocks for row in ROWS}
    assert all_blocks - PARTS_OF_OTHERS == served | NOT_SERVED


def pipelines_of_diffusers() -> dict[str, Any]:
    """What diffusers itself makes of each class that `model_index.json` can name."""
    from diffusers.modular_pipelines.modular_pipeline import MODULAR_PIPELINE_MAPPING
    from diffusers.pipelines.auto_pipeline import _get_model

    names = [n for n in dir(diffusers) if n.endswith("Pipeline") and "Modular" not in n]
    models = {name: _get_model(name) for name in names}
    return {
        n: MODULAR_PIPELINE_MAPPING[m] for n, m in models.items() if m in MODULAR_PIPELINE_MAPPING
    }


def test_pipelines_lead_where_diffusers_leads() -> None:
    served = {row.blocks for row in ROWS}
    for name, choose in pipelines_of_diffusers().items():
        for fact in ("", *(fact for fact, _ in VARIANTS.values())):
            index = {"_class_name": name, **({fact: [1.0]} if fact else {})}
            modular = getattr(diffusers, choose(index))
            if modular.default_blocks_name in served:
                assert blocks_of(index) == modular.default_blocks_name


def test_modular_pipelines_lead_to_their_own_blocks() -> None:
    modular = {name: blocks for name, blocks in PIPELINES.items() if "Modular" in name}
    assert {row.blocks for row in ROWS} == set(modular.values())
    for name, blocks in modular.items():
        assert getattr(diffusers, name).default_blocks_name == blocks


@pytest.mark.parametrize(
    ("index", "name"),
    [
        ({"_class_name": "LTXPipeline"}, "ltx-video"),
        ({"_class_name": "Krea2Pipeline", "is_distilled": True}, "krea2-turbo"),
        ({"_class_name": "Krea2Pipeline", "is_distilled": False}, "krea2"),
        ({"_class_name": "X", "_blocks_class_name": "AnimaAutoBlocks"}, "anima"),
        ({"_class_name": "Flux3ModularPipeline"}, "flux3"),
        ({"_class_name": "WanPipeline"}, "wan"),
        ({"_class_name": "LTX2Pipeline"}, "ltx2"),
    ],
)
def test_family_of_an_index(index: dict[str, Any], name: str) -> None:
    family = family_of(index)
    assert family is not None
    assert family.name == name


def test_parameters_are_the_blocks_own_unless_given() -> None:
    stages = {family.name: family.graph({}) for family in GENERIC}
    given = stages["ltx-video"]["sample"].check_params({"frames": 17})
    assert given["frames"] == 17
    assert given["width"] is given["steps"] is given["guidance"] is given["fps"] is None
    with pytest.raises(InvalidRequest, match="one more than a multiple of 8"):
        stages["ltx-video"]["sample"].check_params({"frames": 18})
    with pytest.raises(InvalidRequest, match="count"):
        stages["ltx-video"]["sample"].check_params({"count": 2})
    with pytest.raises(InvalidRequest, match="no parameter 'steps'"):
        stages["echo"]["sample"].check_params({"steps": 4})
    with pytest.raises(InvalidRequest, match="negative_prompt"):
        stages["krea2-turbo"]["text_encode"].check_params({"negative_prompt": "grey"})
    assert dict(stages["echo"]["vae_decode"].outputs) == {"video": "video", "audio": "audio"}
    assert dict(stages["ernie-image"]["vae_decode"].outputs) == {"images": "images"}


def test_films_of_chunks_have_frames_of_whole_chunks() -> None:
    sample = {family.name: family.graph({}) for family in GENERIC}["helios"]["sample"]
    for frames in (33, 65, 97, 129, 165):
        assert sample.check_params({"frames": frames})["frames"] == frames
    for frames in (34, 64, 66, 99, 132):
        with pytest.raises(InvalidRequest, match="whole chunks of 33"):
            sample.check_params({"frames": frames})


def test_film_of_chunks_is_as_long_as_it_was_asked_for(tmp_path: Path) -> None:
    session = Session(write("helios_pyramid_distilled", tmp_path))
    size = {"width": 64, "height": 64, "frames": 65, "steps": 1}
    latent = session.stage("sample", session.encode(), **size)
    film = session.stage("vae_decode", latent)["video"].tensors["frames"].array
    assert film.shape == (65, 64, 64, 3)


@pytest.mark.parametrize("row", [row for row in ROWS if row.multiple > 16], ids=lambda r: r.name)
def test_sides_of_fewer_multiples_are_refused(row: Row) -> None:
    sample = {family.name: family.graph({}) for family in GENERIC}[row.name]["sample"]
    assert sample.check_params({"width": 3 * row.multiple})["width"] == 3 * row.multiple
    with pytest.raises(InvalidRequest, match="width"):
        sample.check_params({"width": 2 * row.multiple + 16})


def test_picture_that_a_film_begins_with_gives_its_shape(tmp_path: Path) -> None:
    session = Session(write("hunyuan15", tmp_path))
    encoded = session.encode(images=pictures(1, 128, 64))
    width, height = session.made(encoded, frames=5)
    assert width > height


def test_checkpoint_without_what_sees_pictures_refuses_them(tmp_path: Path) -> None:
    CHECKPOINTS["hunyuan15"](tmp_path)
    path = tmp_path / "model_index.json"
    index = json.loads(path.read_text())
    del index["image_encoder"], index["feature_extractor"]
    index |= {"_class_name": "HunyuanVideo15Pipeline"}
    path.write_text(json.dumps(index))
    session = Session(ModelEntry("text to film", str(tmp_path)))
    encoded = session.encode(images=pictures(1, 64, 64))
    with pytest.raises(InvalidRequest, match="image_encoder"):
        session.stage("sample", encoded, width=64, height=64, frames=5, steps=1)
    assert session.made(session.encode(), width=64, height=64, frames=5) == (64, 64)


def test_latent_to_start_from_gives_the_size(tmp_path: Path) -> None:
    session = Session(write("anima", tmp_path))
    latent = session.stage("vae_encode", {"images": pictures(1, 96, 64)})
    assert session.made({**session.encode(), **latent}, denoise=0.6) == (96, 64)


def test_pictures_have_the_channels_of_their_family(tmp_path: Path) -> None:
    session = Session(write("qwen_image_21", tmp_path))
    sampled = session.stage("sample", session.encode(), width=96, height=64, steps=1)
    made = session.stage("vae_decode", sampled)["images"].tensors["images"].array
    assert made.shape == (1, 64, 96, 4)


def test_guidance_of_each_step_is_the_blocks_own_for_any_number_of_steps() -> None:
    own = (7.0, 7.0, 7.0, 3.0)
    assert guidance_schedule(own, None, None) == [7.0, 7.0, 7.0, 3.0]
    assert guidance_schedule(own, 2, None) == [7.0, 7.0]
    assert guidance_schedule(own, 8, None) == [7.0] * 6 + [3.0] * 2
    assert guidance_schedule(own, 3, 5.0) == [5.0] * 3


def test_guidance_by_step_makes_the_picture_that_was_asked_for(tmp_path: Path) -> None:
    session = Session(write("ideogram4", tmp_path))
    encoded = session.encode()
    own, strong = (
        session.latent(encoded, width=64, height=64, **given) for given in ({}, {"guidance": 12.0})
    )
    assert np.abs(own - strong).max() > 1e-3


def test_checkpoint_of_a_modular_pipeline(tmp_path: Path) -> None:
    CHECKPOINTS["ernie_image"](tmp_path)
    plain = tmp_path / "model_index.json"
    index = json.loads(plain.read_text())
    plain.unlink()
    for name, entry in index.items():
        if isinstance(entry, list):
            entry.append({"pretrained_model_name_or_path": "some/where", "subfolder": name})
    index |= {"_class_name": "ErnieImageModularPipeline"}
    (tmp_path / "modular_model_index.json").write_text(json.dumps(index))
    checkpoint = Checkpoint.open(tmp_path)
    loaded = checkpoint.family.load(checkpoint, dtype="float32", device="cpu")
    assert checkpoint.family.name == "ernie-image"
    assert set(loaded.modules) == {"text_encoder", "transformer", "vae"}
    assert set(loaded.programs) == {"text_encode", "sample", "vae_decode"}


def test_decoding_draws_on_from_where_sampling_stopped(tmp_path: Path) -> None:
    session = Session(write("ltx", tmp_path))
    encoded = session.encode()
    made = session.stage("sample", encoded, width=64, height=64, frames=9, steps=2, seed=5)
    generator = torch.Generator().manual_seed(5)
    torch.randn(made["latent"].tensors["samples"].array.shape, generator=generator)
    kept = made["latent"].tensors["generator_state"].array
    assert torch.equal(torch.from_numpy(kept.copy()), generator.get_state())


def test_frame_rate_of_a_film_is_the_blocks_own_unless_given(tmp_path: Path) -> None:
    session = Session(write("ltx", tmp_path))
    encoded = session.encode()
    size = {"width": 64, "height": 64, "frames": 9, "steps": 2}
    for given, rate in (({}, 25), ({"fps": 12.5}, 12.5)):
        film = session.stage("vae_decode", session.stage("sample", encoded, **size, **given))
        assert film["video"].header["fps"] == rate
