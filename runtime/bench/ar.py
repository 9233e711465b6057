"""Autoregressive stages: against vLLM by itself, and transformers or diffusers one by one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from ..engine.ar.settings import ARSettings
from ..engine.diffusion.settings import EngineSettings
from ..executor import ar, diffusion
from ..models.catalogue import ModelEntry
from .chats import (
    QUESTIONS,
    STAGE,
    RuntimeChats,
    TransformersChats,
    requests_of,
    settings_of,
    smollm2,
)
from .encodes import STAGE as ENCODE
from .encodes import CoreEncodes, DiffusersEncodes, HostedCore, embeds_difference
from .pictures import PROMPTS
from .raw_vllm import RawVLLM
from .report import Report, Row, fastest
from .servers import Runtime
from .tiny import tiny_chat, tiny_image_model

SEED = 0
TINY = "tiny"
MAX_TOKENS = 64
RUNS = 3
ENCODES = 64
_MANNERS = ("", "seen from above, ", "in the style of a woodcut: ", "as a child would draw it, ")
_PLACES = (" in the morning", " in a museum, framed in dark wood and lit from the left side")


def run() -> None:
    """Print and write the comparisons of chats and of text encodes."""
    report = Report("ar", SEED)
    with tempfile.TemporaryDirectory(prefix="omnistage-bench-") as name:
        folder = Path(name)
        _chats(report, folder)
        _encodes(report, folder)
    report.finish()


# chats


def _chats(report: Report, folder: Path) -> None:
    tiny_chat(folder / "chat", QUESTIONS)
    models = [ModelEntry(TINY, str(folder / "chat")), smollm2()]
    settings = [setting for model in models for setting in settings_of(model)]
    with Runtime(folder, *settings) as runtime, RuntimeChats(runtime.url) as ours:
        runtime.start()
        for model in models:
            with RawVLLM(model, STAGE) as vllm:
                _model(report, model, ours, vllm)


def _model(report: Report, model: ModelEntry, ours: RuntimeChats, vllm: RawVLLM) -> None:
    requests = requests_of(model, QUESTIONS, MAX_TOKENS)
    transformers = TransformersChats(model)
    # all are warm then: models are loaded, connections open, batches of this size known
    ours.together(model.id, QUESTIONS, MAX_TOKENS)
    vllm.generate(requests)
    transformers.one_by_one(requests[:1])
    (together_s, together), by_vllm = fastest(
        RUNS,
        lambda: ours.together(model.id, QUESTIONS, MAX_TOKENS),
        lambda: vllm.generate(requests),
    )
    (alone_s, alone), by_transformers = fastest(
        1,  # they take long enough to be told apart
        lambda: ours.one_by_one(model.id, QUESTIONS, MAX_TOKENS),
        lambda: transformers.one_by_one(requests),
    )
    mine = together_s, [answer.tokens for answer in together]
    by_itself = alone_s, [answer.tokens for answer in alone]
    case = f"{len(QUESTIONS)} streams, {model.id} {model.dtype}, 1000 tokens"
    report.add(speed_row(case, mine, "vLLM by itself", by_vllm))
    report.add(speed_row(case, mine, "one by one", by_itself))
    report.add(speed_row(case, mine, "transformers one by one", by_transformers))
    many_s = vllm.first_token_s(requests)
    one_s = [vllm.first_token_s([request])[0] for request in requests]
    for streams, answers, theirs_s in (
        (f"{len(QUESTIONS)} streams", together, many_s),
        ("one stream", alone, one_s),
    ):
        case = f"first token, {model.id} {model.dtype}, {streams}, median"
        first_s = median(answer.first_s for answer in answers)
        report.add(Row(case, first_s, "vLLM by itself", median(theirs_s)))


def speed_row(
    case: str,
    ours: tuple[float, list[list[int]]],
    baseline: str,
    theirs: tuple[float, list[list[int]]],
) -> Row:
    """Seconds for 1000 tokens, from what two sides took and generated.

    `equal` counts the answers that have the same tokens on both sides.
    """
    counts = [sum(map(len, answers)) for _, answers in (ours, theirs)]
    counters = {
        "equal": sum(a == b for a, b in zip(ours[1], theirs[1], strict=True)),
        "of": len(ours[1]),
        "tokens_per_s": round(counts[0] / ours[0], 1),
        "baseline_tokens_per_s": round(counts[1] / theirs[0], 1),
    }
    seconds = [s * 1000 / n for (s, _), n in zip((ours, theirs), counts, strict=True)]
    return Row(case, seconds[0], baseline, seconds[1], counters=counters)


# text encodes


def _encodes(report: Report, folder: Path) -> None:
    prompts = [f"{m}{p}{place}" for m in _MANNERS for place in _PLACES for p in PROMPTS]
    assert len(set(prompts)) == ENCODES
    tiny_image_model(folder / "image", prompts)
    entry = ModelEntry(TINY, str(folder / "image"), engine="ar")
    diffusers = DiffusersEncodes(entry)
    ar_spec = ar.core_spec("ar", ARSettings.model_validate({}), entry, ENCODE)
    diffusion_spec = diffusion.core_spec(EngineSettings.model_validate({}), [entry])
    with HostedCore(ar_spec) as ar_core, HostedCore(diffusion_spec) as diffusion_core:
        cores = [CoreEncodes(core, entry) for core in (ar_core, diffusion_core)]
        for core in cores:
            core.together(prompts)  # loads the model
        diffusers.one_by_one(prompts[:1])
        ours, batched, serial = fastest(
            RUNS,
            *(lambda core=core: core.together(prompts) for core in cores),
            lambda: diffusers.one_by_one(prompts),
        )
    case = f"{ENCODES} text encodes, vLLM"
    for name, (seconds, result) in (
        ("diffusers one by one", serial),
        ("diffusion engine", batched),
    ):
        diff, scale = embeds_difference(ours[1], result)
        report.add(Row(case, ours[0], name, seconds, diff, scale))
