"""Speech: when the first sound is there, and what several that speak at once gain."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from ..config import Config
from ..models.location import VOICE
from .chats import settings_of
from .report import Report, Row, fastest
from .servers import Runtime
from .speeches import Speech, Speeches

SEED = 0
RUNS = 2
LONG = ("7 1 9 4 0 2 8 3 6 5",)
"""Three to four seconds, the longest that the demo voice has learnt to speak."""
EIGHT = (
    "3 1 4 1 5 9",
    "2 7 1 8 2 8",
    "1 6 1 8 0 3",
    "5 7 7 2 1 5",
    "1 4 1 4 2 1",
    "6 6 2 6 0 7",
    "9 1 5 9 6 5",
    "0 1 2 3 5 8",
)
_ROUNDING = 1e-3


def run() -> None:
    """Print and write the comparisons."""
    report = Report("speech", SEED)
    model = Config().catalogue()[VOICE]
    with (
        tempfile.TemporaryDirectory(prefix="omnistage-bench-") as folder,
        Runtime(Path(folder), *settings_of(model)) as runtime,
        Speeches(runtime.url, model.id) as speeches,
    ):
        runtime.start()
        for texts in (LONG, EIGHT):  # loads the stages, and meets batches of all sizes
            speeches.together(texts)
        _one(report, speeches)
        _eight(report, speeches)
        _eight_codes(report, speeches)
    report.finish()


def _one(report: Report, speeches: Speeches) -> None:
    """One speech: streamed, in one piece, and by stages that wait for each other."""
    streamed, whole, in_turn = soonest(
        RUNS,
        lambda: speeches.together(LONG),
        lambda: speeches.together(LONG, whole=True),
        lambda: speeches.stage_by_stage(LONG),
    )
    counters = {"sound_s": round(streamed.length_s, 2)}
    ends = {"in one piece": whole.last_s, "stage by stage": in_turn.last_s}
    for case, ours_s, others in (
        ("first sound", streamed.first_s, {"its end": streamed.last_s, **ends}),
        ("last sound", streamed.last_s, ends),
    ):
        for name, other_s in others.items():
            report.add(Row(f"{case}, streamed", ours_s, name, other_s, counters=counters))


def _eight(report: Report, speeches: Speeches) -> None:
    """Eight speeches at once, against one by one and against stages that wait for each other."""
    (together_s, together), (serial_s, serial), (turns_s, turns) = fastest(
        RUNS,
        lambda: speeches.together(EIGHT),
        lambda: speeches.one_by_one(EIGHT),
        lambda: speeches.stage_by_stage(EIGHT),
    )
    facts = {
        "sound_s": round(sum(speech.length_s for speech in together), 2),
        "first_s": round(median(speech.first_s for speech in together), 3),
    }
    for name, seconds, others in (
        ("one by one", serial_s, serial),
        ("stage by stage", turns_s, turns),
    ):
        first_s = round(median(speech.first_s for speech in others), 3)
        counters = {**facts, "baseline_first_s": first_s, "equal": equal(together, others), "of": 8}
        report.add(Row("8 at once, streamed", together_s, name, seconds, counters=counters))


def _eight_codes(report: Report, speeches: Speeches) -> None:
    """The talker's part of it, without the codec, which on a CPU gains little by sharing."""
    (together_s, together), (serial_s, serial) = fastest(
        RUNS,
        lambda: speeches.codes(EIGHT, together=True),
        lambda: speeches.codes(EIGHT, together=False),
    )
    same = sum(map(np.array_equal, together, serial))
    counters = {"codes": sum(map(len, together)), "equal": same, "of": 8}
    report.add(Row("codes of 8 at once", together_s, "one by one", serial_s, counters=counters))


def soonest(runs: int, *works: Callable[[], Sequence[Speech]]) -> list[Speech]:
    """Have several works make one speech each, in turn; of each work's the one that ended first."""
    made = [[work()[0] for work in works] for _ in range(runs)]
    return [min(own, key=lambda speech: speech.last_s) for own in zip(*made, strict=True)]


def equal(ours: Sequence[Speech], theirs: Sequence[Speech]) -> int:
    """How many of the speeches sound the same but for rounding."""
    return sum(
        mine.sound.shape == other.sound.shape
        and float(np.abs(mine.sound - other.sound).max(initial=0)) < _ROUNDING
        for mine, other in zip(ours, theirs, strict=True)
    )
