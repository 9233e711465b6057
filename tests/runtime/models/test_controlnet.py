"""ControlNets of a model: found, checked, named, and part of what a job's result depends on."""

from __future__ import annotations

import json
from pathlib import Path

import diffusers
import pytest

from omnistage.runtime.config import Config
from omnistage.runtime.models.catalogue import Catalogue, ModelEntry
from omnistage.runtime.models.families import DIFFUSION
from omnistage.runtime.models.modular.family import ModularFamily
from omnistage.runtime.protocol.errors import InvalidRequest, ModelLoadFailed
from omnistage.runtime.protocol.messages import ModelInfo

QWEN = "QwenImageControlNetModel"


def a_controlnet(folder: Path, class_name: str = QWEN, **more: object) -> str:
    folder.mkdir(exist_ok=True)
    config = {"_class_name": class_name, **more}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.fixture
def entry(tmp_path: Path) -> ModelEntry:
    return ModelEntry("demo", "demo", controlnets={"lines": a_controlnet(tmp_path / "lines")})


def pinned(entry: ModelEntry, **control: object) -> dict[str, object]:
    stage = entry.graph["sample"]
    found: dict[str, object] = entry.pinned(stage, stage.check_params({"control": control}))
    return found["control"]  # type: ignore[return-value]


@pytest.mark.parametrize(
    "family", [f for f in DIFFUSION if f.pipelines], ids=lambda family: family.name
)
def test_what_a_family_says_of_controlnets_is_what_its_blocks_take(family: ModularFamily) -> None:
    for name in family.pipelines.values():
        denoise = getattr(diffusers, name)().sub_blocks["denoise"]
        takes = {given.name for given in denoise.inputs}
        assert (family.controlnet is not None) == ("controlnet_conditioning_scale" in takes)
        if family.controlnet is not None:
            used = {spec.type_hint.__name__ for spec in _specs(denoise, "controlnet")}
            assert family.controlnet in used


def _specs(block: object, name: str) -> list[object]:
    """All that a block and those in it expect of a component."""
    found = [spec for spec in block.expected_components if spec.name == name]  # type: ignore[attr-defined]
    for inner in getattr(block, "sub_blocks", {}).values():
        found += _specs(inner, name)
    return found


def test_a_model_lists_its_controlnets_and_their_names_are_the_choices(entry: ModelEntry) -> None:
    info = entry.info()
    assert info.controlnets == ("lines",)
    own = info.stages["sample"].params["$defs"]["Control"]["properties"]
    assert own["name"]["enum"] == ["lines"]
    assert ModelInfo.from_json(info.to_json()) == info
    assert ModelEntry("demo", "demo").info().controlnets == ()


def test_they_are_configured_by_name(tmp_path: Path) -> None:
    made = {"lines": a_controlnet(tmp_path / "lines")}
    config = Config.model_validate({"models": {"mine": {"source": "demo", "controlnets": made}}})
    assert config.catalogue()["mine"].info().controlnets == ("lines",)


def test_a_job_is_pinned_to_the_content_of_its_controlnet(
    entry: ModelEntry, tmp_path: Path
) -> None:
    first = pinned(entry, name="lines", strength=0.5)
    assert first == pinned(entry, name="lines", strength=0.5)
    revision = first.pop("revision")
    assert first == {"name": "lines", "strength": 0.5, "start": 0.0, "end": 1.0}
    a_controlnet(tmp_path / "lines", num_layers=3)
    assert pinned(entry, name="lines")["revision"] != revision


def test_a_name_that_there_is_not_is_refused_with_those_there_are(entry: ModelEntry) -> None:
    with pytest.raises(InvalidRequest, match=r"'pose' is not on this runtime; it has lines\."):
        pinned(entry, name="pose")
    with pytest.raises(InvalidRequest, match=r"it has none\."):
        pinned(ModelEntry("demo", "demo"), name="lines")


@pytest.mark.parametrize(
    "control",
    [
        {"name": ""},
        {"name": "lines", "strength": -0.1},
        {"name": "lines", "start": 1.0},
        {"name": "lines", "start": 0.5, "end": 0.5},
        {"name": "lines", "mode": 1},
    ],
)
def test_what_is_out_of_range_is_refused(entry: ModelEntry, control: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        pinned(entry, **control)
    assert caught.value.field == "control"


def test_one_for_another_family_or_none_at_all_is_a_problem_of_its_model(tmp_path: Path) -> None:
    for made, words in (
        (a_controlnet(tmp_path / "other", "ControlNetModel"), f"take {QWEN}"),
        (str(tmp_path / "nowhere"), "holds no ControlNet"),
    ):
        entry = ModelEntry("demo", "demo", controlnets={"lines": made})
        problem = Catalogue({"demo": entry}).problems()["demo"]
        assert isinstance(problem, ModelLoadFailed)
        assert words in str(problem)
        assert problem.field == "controlnets.lines"
