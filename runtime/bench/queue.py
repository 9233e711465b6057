"""16 prompts queued into a real ComfyUI: queue-ahead on and off, and against a plain node.

The first comparison is bounded by what a batch gains over one request alone, and alone the engine
is well ahead of diffusers already: `make bench BENCH=engine` shows both.
"""

from __future__ import annotations

import os
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from PIL import Image

from ..models.location import model_folder
from ..protocol.errors import InvalidRequest
from .comfyui import Comfy, Graph, with_inputs
from .demo import graph, share
from .pictures import PROMPTS
from .report import Report, Row
from .servers import ComfyUI, Runtime, comfyui_python

SEED = 0
COUNT = 16
SIZES_PX = (64, 128)
STEPS = 20
GUIDANCE = 4.0
_PLAIN = Path(__file__).parent / "plain_node"


def run() -> None:
    """Print and write the comparison; `COMFYUI` names the folder with ComfyUI's main.py.

    Raises:
        InvalidRequest: it does not.
    """
    if "COMFYUI" not in os.environ:
        raise InvalidRequest(
            "COMFYUI does not name a ComfyUI folder; run `make bench BENCH=queue`.", field="COMFYUI"
        )
    source = Path(os.environ["COMFYUI"]).resolve()
    report = Report("queue", SEED)
    with tempfile.TemporaryDirectory(prefix="omnistage-bench-") as folder:
        with _with_pack(Path(folder) / "pack", source) as (runtime, comfy):
            queued = [_queued(runtime, comfy, size_px) for size_px in SIZES_PX]
        plain = _with_plain_node(Path(folder) / "plain", source)
    for size_px, ours, (plain_s, pictures) in zip(SIZES_PX, queued, plain, strict=True):
        case = f"{COUNT} prompts, {size_px} px, queue-ahead"
        report.add(
            Row(case, ours.ahead_s, "queue-ahead off", ours.serial_s, counters=ours.counters)
        )
        diff = max(_difference(a, b) for a, b in zip(ours.pictures, pictures, strict=True))
        row = Row(case, ours.ahead_s, "plain diffusers node", plain_s, diff, 1.0, ours.counters)
        report.add(row)
    report.finish()


@dataclass(frozen=True, slots=True)
class _Queued:
    """Seconds with queue-ahead on and off, the pictures, and batch counters (on)."""

    ahead_s: float
    serial_s: float
    pictures: list[Image.Image]
    counters: dict[str, float]


@contextmanager
def _with_pack(folder: Path, source: Path) -> Iterator[tuple[Runtime, Comfy]]:
    folder.mkdir()
    with Runtime(folder) as runtime, ComfyUI(folder, source, comfyui_python(source)) as server:
        runtime.start()
        server.start({"OMNISTAGE_ADDRESS": runtime.url})
        yield runtime, Comfy(server)


def _queued(runtime: Runtime, comfy: Comfy, size_px: int) -> _Queued:
    comfy.run_all(_graphs(size_px, seed=500)[:4])  # loads the model, measures its step costs
    before = runtime.stats["engines"]["diffusion"]["core"]
    ahead_s, pictures = _timed(comfy, _graphs(size_px, seed=SEED))
    after = runtime.stats["engines"]["diffusion"]["core"]
    comfy.set_queue_ahead(False)
    serial_s, _ = _timed(comfy, _graphs(size_px, seed=100))
    comfy.set_queue_ahead(True)
    counters = {"mean_batch": round(share(before, after), 2), "peak_batch": after["peak_batch"]}
    return _Queued(ahead_s, serial_s, pictures, counters)


def _with_plain_node(folder: Path, source: Path) -> list[tuple[float, list[Image.Image]]]:
    """Seconds and pictures of each size."""
    folder.mkdir()
    with ComfyUI(folder, source, comfyui_python(source), pack=_PLAIN) as server:
        packages = str(_packages(folder / "packages"))
        server.start({"PYTHONPATH": packages, "PLAIN_NODE_MODEL": str(model_folder("demo"))})
        comfy = Comfy(server)
        comfy.run(_plain_graph(0, SIZES_PX[0], seed=500))
        return [
            _timed(comfy, [_plain_graph(i, size_px, seed=SEED + i) for i in range(COUNT)])
            for size_px in SIZES_PX
        ]


def _packages(folder: Path) -> Path:
    """Links to the runtime's packages but for torch and its kin, of which ComfyUI has its own."""
    folder.mkdir()
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not path.name.startswith("torch"):
            (folder / path.name).symlink_to(path)
    return folder


def _graphs(size_px: int, *, seed: int) -> list[Graph]:
    made = [graph(PROMPTS[i % len(PROMPTS)], seed=seed + i) for i in range(COUNT)]
    sampling = {"width": size_px, "height": size_px, "steps": STEPS, "guidance": GUIDANCE}
    return [with_inputs(g, "OmniStageSample", **sampling) for g in made]


def _plain_graph(index: int, size_px: int, *, seed: int) -> Graph:
    inputs = {
        "prompt": PROMPTS[index % len(PROMPTS)],
        "negative_prompt": " ",
        "size": size_px,
        "steps": STEPS,
        "seed": seed,
        "guidance": GUIDANCE,
    }
    return {
        "1": {"class_type": "PlainQwenImage", "inputs": inputs},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "p"}},
    }


def _timed(comfy: Comfy, work: Sequence[Graph]) -> tuple[float, list[Image.Image]]:
    start_s = perf_counter()
    pictures = comfy.run_all(work)
    return perf_counter() - start_s, [own[0] for own in pictures]


def _difference(a: Image.Image, b: Image.Image) -> float:
    """Largest difference between two 8-bit pictures, in 0..1."""
    return float(np.abs(np.asarray(a, np.int16) - np.asarray(b, np.int16)).max()) / 255
