"""How soon a stage answers, started cold, loaded and unloaded, and what memory it takes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import perf_counter

from ..executor import worker, zygote
from ..models.catalogue import ModelEntry
from .chats import QUESTIONS, STAGE, RuntimeChats, requests_of, settings_of, smollm2
from .processes import children_of, memory_mb
from .raw_vllm import RawVLLM
from .report import Report, Row
from .servers import Runtime

SEED = 0
RUNS = 2
MAX_TOKENS = 4
ASKED = QUESTIONS[:5]
_COMPARISONS = {
    "cold runtime": "vLLM by itself, cold",
    "second engine": "vLLM by itself, cold",
    "loaded engine": "vLLM by itself, loaded",
    "unloading": "ending vLLM by itself",
    "unloaded engine": "vLLM by itself, cold",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that was waited for.

    Attributes:
        seconds: how long; until the first text, if it is an answer.
        memory_mb: at its end: of `all` processes, and of each where that is of interest.
        answers: ids of the generated tokens, by question.
    """

    seconds: float
    memory_mb: dict[str, float] = field(default_factory=dict)
    answers: list[list[int]] = field(default_factory=list)


def run() -> None:
    """Print and write seconds and memory, beside those of vLLM without a runtime around it."""
    report = Report("residency", SEED)
    model = smollm2()
    with tempfile.TemporaryDirectory(prefix="omnistage-bench-") as folder:
        runs = [{**_vllm(model), **_runtime(model, Path(folder))} for _ in range(RUNS)]
    quickest = {name: min((run[name] for run in runs), key=lambda m: m.seconds) for name in runs[0]}
    for case, baseline in _COMPARISONS.items():
        report.add(row(case, quickest[case], baseline, quickest[baseline]))
    report.finish()


def row(case: str, ours: Moment, baseline: str, theirs: Moment) -> Row:
    """A comparison; `equal` counts the answers that have the same tokens on both sides."""
    counters = {f"{name}_mb": round(mb) for name, mb in ours.memory_mb.items()}
    if theirs.memory_mb:
        counters["baseline_mb"] = round(theirs.memory_mb["all"])
    if ours.answers:
        counters["equal"] = sum(a == b for a, b in zip(ours.answers, theirs.answers, strict=True))
        counters["of"] = len(ours.answers)
    return Row(case, ours.seconds, baseline, theirs.seconds, counters=counters)


def _vllm(model: ModelEntry) -> dict[str, Moment]:
    """One life of vLLM's own process."""
    requests = requests_of(model, ASKED, MAX_TOKENS)
    start_s = perf_counter()
    with RawVLLM(model, STAGE) as vllm:
        up_s = perf_counter() - start_s
        first_s = vllm.first_token_s(requests[:1])[0]
        answers = [vllm.generate([request])[0] for request in requests]
        loaded_s = median(vllm.first_token_s([request])[0] for request in requests)
        memory = {"all": memory_mb(vllm.pid)}
        end_s = perf_counter()
    return {
        "vLLM by itself, cold": Moment(up_s + first_s, memory, answers[:1]),
        "vLLM by itself, loaded": Moment(loaded_s, memory, answers),
        "ending vLLM by itself": Moment(perf_counter() - end_s),
    }


def _runtime(model: ModelEntry, folder: Path) -> dict[str, Moment]:
    """One life of a runtime that has the model twice, each an engine of its own."""
    other = replace(model, id="second")
    settings = [*settings_of(model), *settings_of(other)]
    with _Runtime(folder, *settings) as runtime, RuntimeChats(runtime.url) as chats:

        def ask(entry: ModelEntry, count: int = 1) -> Moment:
            answers = chats.one_by_one(entry.id, ASKED[:count], MAX_TOKENS)
            first_s = median(answer.first_s for answer in answers)
            memory = {"all": runtime.memory_mb()["all"]}
            return Moment(first_s, memory, [answer.tokens for answer in answers])

        start_s = perf_counter()
        runtime.start()
        up_s = perf_counter() - start_s
        cold = ask(model)
        second = ask(other)
        loaded = replace(ask(model, len(ASKED)), memory_mb=runtime.memory_mb())
        start_s = perf_counter()
        chats.unload(f"ar/{model.id}/{STAGE}")
        unloading_s = perf_counter() - start_s
        left_mb = runtime.memory_mb()["all"]
        memory = {"all": left_mb, "freed": loaded.memory_mb["all"] - left_mb}
        return {
            "cold runtime": replace(cold, seconds=up_s + cold.seconds),
            "second engine": second,
            "loaded engine": loaded,
            "unloading": Moment(unloading_s, memory),
            "unloaded engine": ask(model),
        }


class _Runtime(Runtime):
    """A runtime that can say which of its processes has how much memory."""

    def memory_mb(self) -> dict[str, float]:
        """Memory by process: `ar1` is the oldest engine that was forked; and of `all`."""
        assert self._process is not None
        memory = {"server": memory_mb(self._process.pid)}
        for child in children_of(self._process.pid):
            if worker.__name__ in child.command:
                memory["diffusion"] = memory_mb(child.pid)
            elif zygote.__name__ in child.command:
                memory["zygote"] = memory_mb(child.pid)
                engines = enumerate(children_of(child.pid), start=1)
                memory |= {f"ar{i}": memory_mb(engine.pid) for i, engine in engines}
        return {**memory, "all": sum(memory.values())}
