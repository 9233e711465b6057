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


def test_a_list_can_be_made_before_a_runtime_was_seen():
    assert Catalogue(Runtimes()).choices("talker", "voice") == ["default"]
