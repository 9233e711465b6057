"""`make demo`: workflows through a real ComfyUI, pictures and speech saved, what sharing gained."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import soundfile
from PIL import Image, ImageDraw
from rich.console import Console

from ..models.smollm2 import smollm2_is_installed
from .comfyui import Comfy, Graph, with_inputs, workflow
from .servers import ComfyUI, Runtime, comfyui_python

PROMPTS = (
    "a red circle on a blue background",
    "two green stars on white",
    "an orange ring on a black background",
    "a small white star on the left on a purple background",
    "yellow background, a large blue square",
    "a pink triangle at the top on a cyan background",
    "two black diamonds on yellow",
    "a large cyan circle on a red background",
)
WISHES = (
    "I would like something round and blue, on a yellow background.",
    "Two stars, please. Green, in front of white.",
    "Perhaps a big red square? And the background is black.",
)
SAID = "say 3 1 4 1 5 9"
_TILE_PX = 160
_CAPTION_PX = 18
LANGUAGE_MODEL = "smollm2"


def run_demo(comfyui: Path, out: Path) -> None:
    """Queue the workflows, save the pictures and a contact sheet, and print the times.

    First text to image, with queue-ahead and without; then the demo voice; then a language model
    that writes the prompts, where one is installed.

    Args:
        comfyui: folder that holds ComfyUI's `main.py`.
        out: where the pictures and the sound go.
    """
    console = Console(highlight=False)
    out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="omnistage-demo-") as folder,
        Runtime(Path(folder)) as runtime,
        ComfyUI(Path(folder), comfyui.resolve(), comfyui_python(comfyui)) as server,
    ):
        console.print("starting the runtime and ComfyUI ...")
        runtime.start()
        server.start({"OMNISTAGE_ADDRESS": runtime.url})
        comfy = Comfy(server)
        comfy.run(graph(PROMPTS[0], seed=999))  # loads the model
        before = runtime.stats["engines"]["diffusion"]["core"]
        ahead_s, pictures = timed(comfy, graphs(seed=1))
        after = runtime.stats["engines"]["diffusion"]["core"]
        comfy.set_queue_ahead(False)
        serial_s, _ = timed(comfy, graphs(seed=101))
        comfy.set_queue_ahead(True)
        sound = say(comfy, out)
        written = enhance(comfy, out) if has_language_model(runtime) else []
    paths = save(pictures, out)
    for prompt, path in zip(PROMPTS, paths, strict=True):
        console.print(f"  {path}  {prompt}")
    console.print(f"contact sheet: {contact_sheet(pictures, out)}")
    mean = share(before, after)
    console.print(
        f"{len(PROMPTS)} prompts: {ahead_s:.2f} s with queue-ahead "
        f"(batch {mean:.1f} on average, {after['peak_batch']} at most), "
        f"{serial_s:.2f} s without: {serial_s / ahead_s:.1f}x"
    )
    console.print(f"demo voice: {sound}  {SAID}")
    for wish, prompt, path in written:
        console.print(f"{wish}\n  {LANGUAGE_MODEL}: {prompt}\n  {path}")


def graph(prompt: str, *, seed: int) -> Graph:
    """The text-to-image workflow for one prompt, with guidance on and the model's own size."""
    made = with_inputs(
        workflow("text_to_image"), "OmniStageTextEncode", prompt=prompt, negative_prompt=" "
    )
    return with_inputs(made, "OmniStageSample", seed=seed)


def graphs(*, seed: int) -> list[Graph]:
    """One workflow for each prompt, with seeds that count up."""
    return [graph(prompt, seed=seed + i) for i, prompt in enumerate(PROMPTS)]


def timed(comfy: Comfy, work: Sequence[Graph]) -> tuple[float, list[Image.Image]]:
    """Queue everything at once; seconds until the last is done, and the pictures."""
    start_s = perf_counter()
    pictures = comfy.run_all(work)
    return perf_counter() - start_s, [own[0] for own in pictures]


def share(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Requests per denoiser forward between two readings of the engine's counters."""
    forwards = after["denoise_forwards"] - before["denoise_forwards"]
    return float(after["denoise_requests"] - before["denoise_requests"]) / max(forwards, 1)


def say(comfy: Comfy, out: Path) -> Path:
    """Have the demo voice say something; the sound's path."""
    graph = with_inputs(workflow("text_to_speech"), "OmniStageSpeak", text=SAID)
    ((samples, rate_hz),) = comfy.sounds(comfy.finished(comfy.queue(graph)))
    path = out / "speech.wav"
    soundfile.write(path, samples.T, rate_hz)
    return path


def has_language_model(runtime: Runtime) -> bool:
    """Whether one is installed; waits until it has been converted, which happens once."""
    if not smollm2_is_installed():
        return False
    runtime.wait_for_model(LANGUAGE_MODEL)
    return True


def enhance(comfy: Comfy, out: Path) -> list[tuple[str, str, Path]]:
    """Have a language model write prompts: each wish, what it wrote, and the picture's path."""
    asked = [
        comfy.queue(with_inputs(workflow("enhance_prompt"), "OmniStageThinker", prompt=wish))
        for wish in WISHES
    ]
    written = []
    for i, (wish, prompt_id) in enumerate(zip(WISHES, asked, strict=True)):
        entry = comfy.finished(prompt_id)
        path = out / f"written_{i + 1}.png"
        comfy.pictures(entry)[0].save(path)
        written.append((wish, comfy.texts(entry)[0], path))
    return written


def save(pictures: Sequence[Image.Image], out: Path) -> list[Path]:
    """Write the pictures; returns their paths."""
    paths = [out / f"{i + 1:02}.png" for i in range(len(pictures))]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    return paths


def contact_sheet(pictures: Sequence[Image.Image], out: Path) -> Path:
    """All pictures with their prompts on one sheet, four in a row."""
    height = _TILE_PX + 2 * _CAPTION_PX
    rows = (len(pictures) + 3) // 4
    sheet = Image.new("RGB", (4 * (_TILE_PX + 8), rows * height), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (picture, prompt) in enumerate(zip(pictures, PROMPTS, strict=True)):
        left, top = i % 4 * (_TILE_PX + 8), i // 4 * height
        sheet.paste(picture.resize((_TILE_PX, _TILE_PX), Image.Resampling.NEAREST), (left, top))
        words, half = prompt.split(), (len(prompt.split()) + 1) // 2
        caption = " ".join(words[:half]) + "\n" + " ".join(words[half:])
        draw.multiline_text((left + 2, top + _TILE_PX + 2), caption, fill="black", spacing=1)
    path = out / "contact_sheet.png"
    sheet.save(path)
    return path
