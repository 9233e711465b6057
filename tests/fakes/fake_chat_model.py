"""Models with the real parameters and inputs of chat models, without files."""

from omnistage.runtime.models.catalogue import Catalogue
from omnistage.runtime.models.chat import ThinkerParams, media_inputs
from omnistage.runtime.models.qwen_omni import Token2WavParams, speaking
from omnistage.runtime.models.stage import Stage, StageGraph

from .fake_model import FakeModel

OMNI = {"vision_config": {}, "audio_config": {}, "video_token_id": 1}


class FakeChatModel(FakeModel):
    """`source` is `omni` for one that sees and hears, and anything else for one that does not."""

    @property
    def graph(self):
        media = media_inputs(OMNI if self.source == "omni" else {})
        thinker = Stage(
            "thinker",
            ThinkerParams,
            inputs={"prompt": "text", "history": "chat", **media},
            outputs={"text": "text", "hidden": "hidden", "history": "chat"},
            optional=frozenset({"prompt", "history", *media}),
            engines=("ar",),
        )
        if self.id != "speaks":
            return StageGraph.of(thinker)
        return speaking(thinker, ("ada", "bob"), (-1,), Token2WavParams)


def fake_chat_catalogue() -> Catalogue:
    """`omni` takes media, `words` text only, `speaks` has voices, and `draws` has no thinker."""
    return Catalogue(
        {
            "omni": FakeChatModel("omni", "omni"),
            "words": FakeChatModel("words", "words"),
            "speaks": FakeChatModel("speaks", "words"),
            "draws": FakeModel("draws", "fake"),
        }
    )
