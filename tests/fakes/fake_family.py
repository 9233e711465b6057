"""Diffusion models that compute nothing, with all that a family may have: served without torch.

`plain` draws; `studio` also edits, inpaints and takes adapters, ControlNets and guiders; `film`
makes films with sound. What they were asked is kept in `TASKS`.
"""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from pydantic import Field

from omnistage.runtime.config import load_config
from omnistage.runtime.engine.core import EngineEvent
from omnistage.runtime.executor.core_spec import CoreSpec
from omnistage.runtime.executor.group import EngineGroup
from omnistage.runtime.executor.inline import InlineExecutor
from omnistage.runtime.models.catalogue import Catalogue, ModelEntry
from omnistage.runtime.models.component_source import ComponentSource
from omnistage.runtime.models.control_params import with_control
from omnistage.runtime.models.lora_params import LoRAList
from omnistage.runtime.models.modular.guider_params import guider_type
from omnistage.runtime.models.stage import Params, Stage, StageGraph
from omnistage.runtime.protocol.frames import Frame, Tensor
from omnistage.runtime.server.app import build_services

from .fake_server import FakeServer

LORAS = ("ink", "paint")
CONTROLNETS = ("lines", "depth")
FPS = 8.0
RATE_HZ = 16000


class VAEParams(Params):
    strict: bool = False


class FilmDecodeParams(VAEParams):
    fps: float = Field(FPS, gt=0.0, le=240.0)


class PlainTextParams(VAEParams):
    prompt: str = ""
    negative_prompt: str = Field("", max_length=0)


class TextParams(PlainTextParams):
    negative_prompt: str = ""
    loras: LoRAList


class PlainSampleParams(VAEParams):
    width: int = Field(64, ge=16, le=512, multiple_of=16)
    height: int = Field(48, ge=16, le=512, multiple_of=16)
    count: int = Field(1, ge=1, le=4)
    steps: int = Field(2, ge=1, le=100)
    guidance: float = Field(4.0, ge=0.0)
    denoise: float = Field(1.0, gt=0.0, le=1.0)
    seed: int = Field(0, ge=0, le=2**64 - 1)


class SampleParams(PlainSampleParams):
    guider: guider_type(frozenset({"cfg", "apg", "slg", "cfg_zero_star"})) = None
    loras: LoRAList


class FilmParams(SampleParams):
    count: int = Field(1, ge=1, le=1)
    frames: int = Field(5, ge=1, le=33)


def _encode(params, references=(), needed=frozenset()):
    texts = dict.fromkeys(("prompt", "negative_prompt"), "text")
    pictures = dict.fromkeys(references, "images")
    return Stage(
        "text_encode",
        params,
        inputs=texts | pictures,
        outputs={"conditioning": "conditioning"},
        optional=frozenset(texts | pictures) - needed,
    )


def _sample(params, **inputs):
    return Stage(
        "sample",
        params,
        inputs={"conditioning": "conditioning", **inputs},
        outputs={"latent": "latent"},
        optional=frozenset(inputs),
    )


def _vae_encode(**mask):
    return Stage(
        "vae_encode",
        VAEParams,
        inputs={"images": "images", **mask},
        outputs={"latent": "latent"},
        optional=frozenset(mask),
    )


def _decode(params, **outputs):
    return Stage("vae_decode", params, inputs={"latent": "latent"}, outputs=outputs)


GRAPHS = {
    "plain": StageGraph.of(
        _encode(PlainTextParams),
        _sample(PlainSampleParams, latent="latent"),
        _vae_encode(),
        _decode(VAEParams, images="images"),
    ),
    "studio": StageGraph.of(
        _encode(TextParams, ["images", "images_2"]),
        _sample(with_control(SampleParams), latent="latent", control="images"),
        _vae_encode(mask="images"),
        _decode(VAEParams, images="images"),
    ),
    "film": StageGraph.of(
        _encode(TextParams, ["images"], needed={"images"}),
        _sample(FilmParams),
        _decode(FilmDecodeParams, video="video", audio="audio"),
    ),
}


class Model(ModelEntry):
    """A configured model; `source` is the folder that holds its adapters, and nothing else."""

    @property
    def checkpoint(self):
        folder = Path(self.source)
        names = CONTROLNETS if self.id == "studio" else ()
        return SimpleNamespace(
            family=SimpleNamespace(name=self.id),
            folder=folder,
            controlnets={name: ComponentSource(name, folder) for name in names},
        )

    @property
    def graph(self):
        return GRAPHS[self.id]

    @property
    def revision(self):
        return "r1"


def models(folder):
    """The models by id; those that take adapters have some of this folder."""
    (folder / "loras").mkdir(exist_ok=True)
    for name in LORAS:
        (folder / "loras" / f"{name}.safetensors").write_bytes(name.encode())
    nowhere = folder / "nothing"
    nowhere.mkdir(exist_ok=True)
    return {name: Model(name, str(nowhere if name == "plain" else folder)) for name in GRAPHS}


# --- the engine -----------------------------------------------------------------------------------

TASKS = []
"""Every task that was run in this process, oldest first."""


def build(config):
    """The entry point."""
    return Core()


class Core:
    def __init__(self):
        self._waiting = []

    def submit(self, task):
        self._waiting.append(task)

    def feed(self, task, name, part):
        raise AssertionError("nothing here follows anything")

    def cancel(self, task):
        pass

    @property
    def busy(self):
        return bool(self._waiting)

    def step(self):
        tasks, self._waiting = self._waiting, []
        TASKS.extend(tasks)
        return [event for task in tasks for event in _run(task)]

    def stats(self):
        return {}

    def check_integrity(self):
        pass


def _run(task):
    yield EngineEvent(task.id, "started")
    yield EngineEvent(task.id, "done", outputs=_OUTPUTS[task.stage](task))


def _conditioning(task):
    embeddings = Tensor.of(np.full((1, 3, 4), len(task.params["prompt"]), np.float32))
    return {"conditioning": Frame({"kind": "conditioning"}, {"prompt_embeds": embeddings})}


def _latent(task):
    if "images" in task.inputs:
        rows, height, width, _ = task.inputs["images"].tensors["images"].array.shape
        mask = {}
        if "mask" in task.inputs:
            mask["mask"] = Tensor.of(task.inputs["mask"].tensors["images"].array[:, None, ..., 0])
        size = (rows, 4, 1, height // 8, width // 8)
    else:
        mask = {}
        frames = (task.params.get("frames", 1) + 3) // 4
        size = (
            task.params["count"],
            4,
            frames,
            task.params["height"] // 8,
            task.params["width"] // 8,
        )
    samples = Tensor.of(np.zeros(size, np.float32))
    return {"latent": Frame({"kind": "latent"}, {"samples": samples, **mask})}


def _pixels(task):
    rows, _, frames, height, width = task.inputs["latent"].tensors["samples"].array.shape
    if "fps" not in task.params:
        pictures = np.full((rows, height * 8, width * 8, 3), 0.5, np.float32)
        return {"images": Frame({"kind": "images"}, {"images": Tensor.of(pictures)})}
    count, fps = 4 * frames - 3, task.params["fps"]
    brightness = np.linspace(0, 255, count).astype(np.uint8)
    film = np.broadcast_to(brightness.reshape(-1, 1, 1, 1), (count, height * 8, width * 8, 3))
    tone = np.sin(np.arange(int(count / fps * RATE_HZ)) / 20).astype(np.float32)
    return {
        "video": Frame({"kind": "video", "fps": fps}, {"frames": Tensor.of(film.copy())}),
        "audio": Frame(
            {"kind": "audio", "rate": RATE_HZ}, {"waveform": Tensor.of(tone[None, None])}
        ),
    }


_OUTPUTS = {
    "text_encode": _conditioning,
    "sample": _latent,
    "vae_encode": _latent,
    "vae_decode": _pixels,
}


# --- the server -----------------------------------------------------------------------------------


class Serving:
    """The real server with these models, on a loop of its own; a context manager."""

    def __init__(self, folder):
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server = FakeServer()

    def __enter__(self):
        self._thread.start()
        self._call(self._start())
        self.url = self._server.url
        return self

    def __exit__(self, *error):
        self._call(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self):
        def make(engine):
            return InlineExecutor(CoreSpec("omnistage.tests.fakes.fake_family:build", {}, engine))

        services = build_services(
            load_config(assignments=(), environ={}).config,
            catalogue=Catalogue(models(self._folder)),
            engines=EngineGroup(make, eager=("diffusion",)),
        )
        await self._server.serve(services)

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)
