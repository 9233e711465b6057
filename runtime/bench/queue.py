"""16 prompts queued into a real ComfyUI: queue-ahead on and off, and against a plain node."""

from __future__ import annotations

import os
import sysconfig
import tempfile
from collections.abc import Sequence
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
SIZE = 128
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
        ahead_s, serial_s, pictures, counters = _with_pack(Path(folder) / "pack", source)
        plain_s, plain = _with_plain_node(Path(folder) / "plain", source)
    case = f"{COUNT} prompts, {SIZE} px, queue-ahead"
    diff = max(_difference(a, b) for a, b in zip(pictures, plain, strict=True))
    report.add(Row(case, ahead_s, "queue-ahead off", serial_s, counters=counters))
    report.add(Row(case, ahead_s, "plain diffusers node", plain_s, diff, 1.0, counters))
    report.finish()


def _with_pack(
    folder: Path, source: Path
) -> tuple[float, float, list[Image.Image], dict[str, float]]:
    """Seconds with queue-ahead on and off, the pictures, and batch counters (on)."""
    folder.mkdir()
    with Runtime(folder) as runtime, ComfyUI(folder, source, comfyui_python(source)) as server:
        runtime.start()
        server.start({"OMNISTAGE_ADDRESS": runtime.url})
        comfy = Comfy(server)
        comfy.run_all(_graphs(seed=500)[:4])  # loads the model, measures its step costs
        before = runtime.stats["engines"]["diffusion"]["core"]
        ahead_s, pictures = _timed(comfy, _graphs(seed=SEED))
        after = runtime.stats["engines"]["diffusion"]["core"]
        comfy.set_queue_ahead(False)
        serial_s, _ = _timed(comfy, _graphs(seed=100))
    counters = {"mean_batch": round(share(before, after), 2), "peak_batch": after["peak_batch"]}
    return ahead_s, serial_s, pictures, counters


def _with_plain_node(folder: Path, source: Path) -> tuple[float, list[Image.Image]]:
    folder.mkdir()
    with ComfyUI(folder, source, comfyui_python(source), pack=_PLAIN) as server:
        packages = sysconfig.get_paths()["purelib"]
        server.start({"PYTHONPATH": packages, "PLAIN_NODE_MODEL": str(model_folder("demo"))})
        comfy = Comfy(server)
        comfy.run(_plain_graph(0, seed=500))
        return _timed(comfy, [_plain_graph(i, seed=SEED + i) for i in range(COUNT)])


def _graphs(*, seed: int) -> list[Graph]:
    made = [graph(PROMPTS[i % len(PROMPTS)], seed=seed + i) for i in range(COUNT)]
    sampling = {"width": SIZE, "height": SIZE, "steps": STEPS, "guidance": GUIDANCE}
    return [with_inputs(g, "OmniStageSample", **sampling) for g in made]


def _plain_graph(index: int, *, seed: int) -> Graph:
    inputs = {
        "prompt": PROMPTS[index % len(PROMPTS)],
        "negative_prompt": " ",
        "size": SIZE,
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
