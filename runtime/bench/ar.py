"""Autoregressive stages: against vLLM by itself, and transformers or diffusers one by one."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from ..engine.ar.settings import ARSettings
from ..engine.diffusion.settings import EngineSettings
from ..executor import ar, diffusion
from ..models.ar_stage import ARRequest
from ..models.catalogue import ModelEntry
from ..models.location import SMOLLM2
from .chats import QUESTIONS, STAGE, Answer, RuntimeChats, TransformersChats, requests_of
from .encodes import STAGE as ENCODE
from .encodes import CoreEncodes, DiffusersEncodes, HostedCore, embeds_difference
from .pictures import PROMPTS
from .raw_vllm import RawVLLM
from .report import Report, Row, fastest
from .servers import Runtime
from .tiny import tiny_chat, tiny_image_model

SEED = 0
RUNS = 2
MAX_TOKENS = 32
WARM_TOKENS = 4
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
    models = [
        ModelEntry("tiny", str(folder / "chat")),
        ModelEntry("smollm2", SMOLLM2, dtype="bfloat16"),
    ]
    settings = [s for model in models for s in settings_of(model)]
    with Runtime(folder, *settings) as runtime, RuntimeChats(runtime.url) as ours:
        runtime.start()
        for model in models:
            with RawVLLM(model, STAGE) as vllm:
                _warm_up(model, ours, vllm)
                _speeds(report, model, ours, vllm)
                _first_tokens(report, model, ours, vllm)


def settings_of(model: ModelEntry) -> list[str]:
    """The settings that have a runtime serve a model."""
    name = f"models.{model.id}"
    return [f"{name}.source={model.checkpoint.folder}", f"{name}.dtype={model.dtype}"]


def _warm_up(model: ModelEntry, ours: RuntimeChats, vllm: RawVLLM) -> None:
    """Load the model, and meet a batch of the size that will occur."""
    ours.together(model.id, QUESTIONS, WARM_TOKENS)
    vllm.generate(requests_of(model, QUESTIONS, WARM_TOKENS))


def _speeds(report: Report, model: ModelEntry, ours: RuntimeChats, vllm: RawVLLM) -> None:
    """Tokens a second, and what is known of first tokens by then.

    What goes one by one takes long, and meets disturbances of all kinds on its way: once is enough.
    """
    requests = requests_of(model, QUESTIONS, MAX_TOKENS)
    transformers = TransformersChats(model)
    transformers.one_by_one(requests[:1])
    together, by_vllm = fastest(
        RUNS,
        lambda: ours.together(model.id, QUESTIONS, MAX_TOKENS),
        lambda: vllm.generate(requests),
    )
    alone, by_transformers = fastest(
        1,
        lambda: ours.one_by_one(model.id, QUESTIONS, MAX_TOKENS),
        lambda: transformers.one_by_one(requests),
    )
    case = f"{len(QUESTIONS)} streams, {model.id}, 1000 tokens"
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
    equal = sum(a == b for a, b in zip(ours[1], theirs[1], strict=True))
    counters = {
        "equal": equal,
        "of": len(ours[1]),
        "tokens_per_s": round(counts[0] / ours[0], 1),
        "baseline_tokens_per_s": round(counts[1] / theirs[0], 1),
    }
    seconds = [s * 1000 / n for (s, _), n in zip((ours, theirs), counts, strict=True)]
    return Row(case, seconds[0], baseline, seconds[1], counters=counters)


def _first_tokens(report: Report, model: ModelEntry, ours: RuntimeChats, vllm: RawVLLM) -> None:
    """Medians of the questions; the least of several runs."""
    requests = requests_of(model, QUESTIONS, WARM_TOKENS)
    many: list[tuple[float, float]] = []
    one: list[tuple[float, float]] = []
    for _ in range(RUNS):
        together = ours.together(model.id, QUESTIONS, WARM_TOKENS)
        many.append((_first_s(together), median(vllm.first_token_s(requests))))
        alone = ours.one_by_one(model.id, QUESTIONS, WARM_TOKENS)
        one.append((_first_s(alone), _alone_s(vllm, requests)))
    for streams, found in ((f"{len(QUESTIONS)} streams", many), ("one stream", one)):
        case = f"first token, {model.id}, {streams}"
        report.add(Row(case, min(a for a, _ in found), "vLLM by itself", min(b for _, b in found)))


def _first_s(answers: Sequence[Answer]) -> float:
    return median(answer.first_s for answer in answers)


def _alone_s(vllm: RawVLLM, requests: Sequence[ARRequest]) -> float:
    return median(vllm.first_token_s([request])[0] for request in requests)


def _tokens(answers: Sequence[Answer]) -> list[list[int]]:
    return [answer.tokens for answer in answers]


# text encodes


def _encodes(report: Report, folder: Path) -> None:
    prompts = [f"{m}{p}{place}" for m in _MANNERS for place in _PLACES for p in PROMPTS]
    assert len(set(prompts)) == ENCODES
    tiny_image_model(folder / "image", prompts)
    entry = ModelEntry("tiny", str(folder / "image"), engine="ar")
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
