"""A model whose stages compute hashes: every kind of edge, and every way to go wrong."""

from types import SimpleNamespace

from pydantic import Field

from omnistage.runtime.models.catalogue import Catalogue, ModelEntry
from omnistage.runtime.models.lora import LoRAFolders
from omnistage.runtime.models.stage import Params, Stage, StageGraph


class FakeParams(Params):
    text: str = ""
    steps: int = Field(1, ge=1, le=100_000)
    size: int = Field(16, ge=0, le=100_000_000, description="Values in the result.")
    trouble: str = Field("", description="See FakeCore.")


GRAPH = StageGraph.of(
    Stage("encode", FakeParams, outputs={"conditioning": "conditioning"}),
    Stage(
        "sample",
        FakeParams,
        inputs={"conditioning": "conditioning", "latent": "latent"},
        optional=frozenset({"latent"}),
        outputs={"latent": "latent"},
    ),
    Stage("decode", FakeParams, inputs={"latent": "latent"}, outputs={"images": "images"}),
    Stage("load", FakeParams, inputs={"images": "images"}, outputs={"latent": "latent"}),
    Stage(
        "think",
        FakeParams,
        outputs={"hidden": "hidden", "text": "text"},
        streams=frozenset({"hidden"}),
    ),
    Stage(
        "talk",
        FakeParams,
        inputs={"hidden": "hidden", "latent": "latent"},
        optional=frozenset({"latent"}),
        outputs={"codes": "codes"},
        streams=frozenset({"codes"}),
        follows=frozenset({"hidden"}),
    ),
    Stage(
        "sound",
        FakeParams,
        inputs={"codes": "codes"},
        outputs={"audio": "audio"},
        streams=frozenset({"audio"}),
        follows=frozenset({"codes"}),
    ),
)


class FakeModel(ModelEntry):
    """A configured model without files; `source` is its family."""

    @property
    def checkpoint(self):
        return SimpleNamespace(family=SimpleNamespace(name=self.source), controlnets={})

    @property
    def loras(self):
        return LoRAFolders([])

    @property
    def graph(self):
        return GRAPH

    @property
    def revision(self):
        return f"revision-of-{self.id}"


def fake_catalogue(**families: str) -> Catalogue:
    """A catalogue of fake models: family by id; by default one model `fake`."""
    families = families or {"fake": "fake"}
    return Catalogue({name: FakeModel(name, family) for name, family in families.items()})
