"""What a node shows while its job runs."""

from __future__ import annotations

import numpy as np

from omnistage.comfy_nodes.display import MAX_SHOWN, WAITING, Display
from omnistage.runtime.protocol.frames import Frame, Tensor
from omnistage.runtime.protocol.messages import JobEvent


def event(kind, key="key", **facts) -> JobEvent:
    return JobEvent(key, kind, **facts)


def text(words: str) -> JobEvent:
    return event("text", text=words)


def test_steps_are_shown_with_the_latest_preview():
    steps = [event("progress", step=i, total=4, batch=2) for i in (1, 2)]
    shown = Display().after([event("preview", step=1, total=4, image=b"a"), *steps])
    assert (shown.text, shown.progress, shown.image) == ("step 2/4, batch 2", steps[1], b"a")


def test_a_text_grows():
    display = Display()
    assert display.after([event("running"), text("A red")]).text == "A red"
    assert display.after([text(" circle"), text(".")]).text == "A red circle."


def test_a_text_is_shown_instead_of_steps_and_the_bar_still_moves():
    display = Display()
    tokens = event("progress", step=2, total=64, batch=1)
    shown = display.after([text("A red"), tokens])
    assert (shown.text, shown.progress) == ("A red", tokens)
    shown = display.after([event("progress", step=3, total=64, batch=1)])
    assert (shown.text, shown.progress.step) == ("", 3)  # nothing new to read


def test_a_job_that_waits_says_so_until_there_is_more_to_say():
    display = Display()
    assert display.after([event("queued")]).text == WAITING
    assert display.after([event("running")]).text == ""
    assert display.after([text("A red")]).text == "A red"
    assert display.after([event("queued")]).text == WAITING, "another attempt"


def test_events_without_a_total_move_no_bar():
    shown = Display().after([event("queued"), event("running"), event("progress"), event("done")])
    assert (shown.text, shown.progress, shown.image) == ("", None, None)


def test_another_attempt_begins_anew():
    display = Display()
    display.after([text("A red")])
    assert display.after([event("queued"), event("running"), text("A")]).text == "A"


def test_words_are_shown_as_they_are_and_once():
    display = Display()
    assert display.after(["The engine is starting."]).text == "The engine is starting."
    assert display.after(["The engine is starting."]).text == ""
    assert display.after([text("A"), event("done"), "A\n\n1 tokens"]).text == "A\n\n1 tokens"
    assert display.after([""]).text == ""


def test_of_a_long_text_the_end_is_shown():
    shown = Display().after([text("x" * MAX_SHOWN), text("the end")])
    assert len(shown.text) == MAX_SHOWN
    assert shown.text.endswith("xthe end")


# --- sound ----------------------------------------------------------------------------------------


def sound(*seconds: float, key: str = "key") -> JobEvent:
    """Parts of a sound."""
    waves = [np.zeros((1, 1, round(24000 * s)), np.float32) for s in seconds]
    header = {"kind": "audio", "rate": 24000}
    parts = tuple(Frame(header, {"waveform": Tensor.of(wave)}) for wave in waves)
    return event("part", key, output="audio", parts=parts)


def test_a_sound_is_told_in_seconds():
    display = Display()
    assert display.after([event("running"), sound(0.5, 1.0)]).text == "1.5 s of sound"
    step = event("progress", step=8, total=20, batch=2)
    shown = display.after([sound(0.5), step])
    assert (shown.text, shown.progress) == ("2.0 s of sound, step 8/20, batch 2", step)


def test_another_attempt_makes_the_sound_anew():
    display = Display()
    display.after([sound(2.0)])
    assert display.after([event("queued")]).text == WAITING
    assert display.after([event("running"), sound(0.5)]).text == "0.5 s of sound"


def test_parts_of_anything_else_take_no_time():
    codes = Frame({"kind": "text", "text": "A"})
    assert Display().after([event("part", output="text", parts=(codes,))]).text == ""


def test_two_jobs_of_one_node_are_shown_together():
    display = Display()
    assert display.after([event("queued", "sound"), event("running")]).text == WAITING
    assert display.after([text("A red")]).text == "A red"
    assert display.after([event("running", "sound")]).text == ""
    assert display.after([sound(1.0, key="sound")]).text == "A red\n\n1.0 s of sound"
    both = display.after([text(" circle"), sound(0.2, key="sound")]).text
    assert both == "A red circle\n\n1.2 s of sound"


def test_a_result_changes_nothing():
    assert Display().after([Frame({"kind": "text", "text": "A"})]).text == ""
