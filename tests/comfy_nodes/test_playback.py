"""What a page is sent of a sound."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from omnistage.comfy_nodes.media import pcm16
from omnistage.comfy_nodes.playback import Playback
from omnistage.runtime.protocol.frames import Frame, Tensor
from omnistage.runtime.protocol.messages import JobEvent

RATE = 100


def frame(waveform: np.ndarray) -> Frame:
    return Frame({"kind": "audio", "rate": RATE}, {"waveform": Tensor.of(waveform)})


def wave(samples: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (1, 1, samples)).astype(np.float32)


def parts(*waves: np.ndarray, key: str = "codec") -> JobEvent:
    return JobEvent(key, "part", output="audio", parts=tuple(map(frame, waves)))


def heard(messages: list[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(message["pcm"]) for message in messages)


def test_parts_are_played_in_order_and_then_the_rest_and_the_end():
    whole = wave(70)
    first, second, rest = np.split(whole, [10, 30], -1)
    playback = Playback()
    messages = [*playback.after([JobEvent("codec", "running"), parts(first, second)])]
    assert [message["number"] for message in messages] == [0, 1]
    assert heard(messages) == pcm16(whole[..., :30])
    messages += playback.after([JobEvent("codec", "done"), frame(whole), "70 samples"])
    assert [message["number"] for message in messages] == [0, 1, 2, 3]
    assert [message["last"] for message in messages] == [False, False, False, True]
    assert heard(messages) == pcm16(whole)
    assert heard(messages[2:]) == pcm16(rest)
    assert {message["rate"] for message in messages} == {RATE}


def test_a_sound_that_was_there_already_is_sent_in_pieces():
    whole = wave(12 * RATE)
    messages = [*Playback().after([frame(whole)])]
    assert [message["number"] for message in messages] == [0, 1, 2, 3]
    assert max(len(base64.b64decode(message["pcm"])) for message in messages) == 2 * 5 * RATE
    assert heard(messages) == pcm16(whole)


def test_another_attempt_is_played_from_its_beginning():
    playback = Playback()
    old = [*playback.after([parts(wave(20))])]
    news = [JobEvent("codec", "queued"), JobEvent("codec", "running"), parts(wave(10, 1))]
    new = [*playback.after(news)]
    assert [message["number"] for message in (*old, *new)] == [0, 0]
    assert heard([*new, *playback.after([frame(wave(30, 1))])]) == pcm16(wave(30, 1))


def test_what_other_jobs_of_the_node_do_is_not_heard():
    playback = Playback()
    messages = [*playback.after([parts(wave(20)), JobEvent("thinker", "running")])]
    news = [JobEvent("thinker", "text", text="A"), Frame({"kind": "text", "text": "A"})]
    assert list(playback.after(news)) == []
    messages += playback.after([frame(wave(20))])
    assert [message["number"] for message in messages] == [0, 1]
    assert heard(messages) == pcm16(wave(20))
