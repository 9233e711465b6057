"""The models of a runtime, and the lists that nodes are filled with."""

from __future__ import annotations

from omnistage.comfy_nodes.catalogue import Catalogue
from omnistage.runtime.protocol.messages import ModelInfo, StageInfo


class Runtimes:
    """Runtimes that all serve the same models."""

    def __init__(self, *models: ModelInfo) -> None:
        self._models = list(models)

    def client(self, _: str) -> Runtimes:
        return self

    async def models(self) -> list[ModelInfo]:
        return self._models


def speaks(name: str, **voice: object) -> ModelInfo:
    stage = StageInfo({"properties": {"voice": voice, "seed": {}}}, {}, (), {})
    return ModelInfo(name, "qwen-omni", "r1", {"talker": stage})


async def test_a_list_has_the_choices_of_all_models_once():
    models = [
        speaks("a", enum=["chelsie", "ethan"]),
        speaks("b", enum=["ethan", "nova"]),
        speaks("c", const="ada"),
        ModelInfo("draws", "qwen-image", "r1", {"sample": StageInfo({}, {}, (), {})}),
    ]
    catalogue = Catalogue(Runtimes(*models))
    await catalogue.refresh()
    voices = ["default", "chelsie", "ethan", "nova", "ada"]
    assert catalogue.choices("talker", "voice") == voices
    assert catalogue.choices("talker", "seed") == ["default"]
    assert catalogue.choices("codec_decode", "steps") == ["default"]


async def test_choices_inside_objects_are_found_through_references():
    guider = {
        "anyOf": [
            {"oneOf": [{"$ref": "#/$defs/CFG"}, {"$ref": "#/$defs/APG"}]},
            {"type": "null"},
        ]
    }
    defs = {
        "CFG": {"properties": {"kind": {"const": "cfg"}}},
        "APG": {"properties": {"kind": {"const": "apg"}, "eta": {"type": "number"}}},
    }
    params = {"properties": {"guider": guider}, "$defs": defs}
    stage = StageInfo(params, {}, (), {})
    catalogue = Catalogue(Runtimes(ModelInfo("a", "wan", "r1", {"sample": stage})))
    await catalogue.refresh()
    assert catalogue.names("sample", "guider", "kind") == ["cfg", "apg"]
    assert catalogue.names("sample", "guider", "eta") == []
    assert catalogue.names("sample", "guider", "alpha") == []


async def test_the_adapters_of_all_models_are_listed_once():
    models = [ModelInfo(name, "wan", "r1", {}, ("ink", name)) for name in ("a", "b")]
    catalogue = Catalogue(Runtimes(*models))
    await catalogue.refresh()
    assert catalogue.loras() == ["ink", "a", "b"]


async def test_the_controlnets_of_all_models_are_listed_once():
    models = [ModelInfo(name, "x", "r1", {}, (), ("lines", name)) for name in ("a", "b")]
    catalogue = Catalogue(Runtimes(*models))
    await catalogue.refresh()
    assert catalogue.controlnets() == ["lines", "a", "b"]


def test_a_list_can_be_made_before_a_runtime_was_seen():
    assert Catalogue(Runtimes()).choices("talker", "voice") == ["default"]
