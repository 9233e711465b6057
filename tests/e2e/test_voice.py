"""The voice that comes along, asked in OpenAI's ways: a recogniser hears what it says."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator

import numpy as np
import openai
import pytest
import soundfile
import torch

from omnistage.runtime.bench.servers import Runtime
from omnistage.runtime.demo.speech.pitch import pitch_hz
from omnistage.runtime.demo.speech.recogniser import Recogniser, hear, load_recogniser
from omnistage.runtime.demo.speech.voices import PITCH_BORDER_HZ

pytestmark = pytest.mark.e2e

RATE_HZ = 24000


@pytest.fixture(scope="module")
def recogniser() -> Recogniser:
    return load_recogniser()


@pytest.fixture
def client(runtime: Runtime) -> Iterator[openai.OpenAI]:
    http = openai.DefaultHttpxClient(verify=False)  # reads no certificates
    url = f"{runtime.url}/v1"
    with openai.OpenAI(base_url=url, api_key="x", max_retries=0, http_client=http) as made:
        yield made


def read(data: bytes) -> torch.Tensor:
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    assert rate == RATE_HZ
    return torch.from_numpy(samples)


def words(recogniser: Recogniser, wave: torch.Tensor) -> str:
    return " ".join(hear(recogniser, wave))


@pytest.mark.parametrize("voice", ["chelsie", "ethan"])
@pytest.mark.parametrize("text", ["three one four", "3 1 4", "Three, 14!"])
def test_a_text_is_said_in_the_voice_asked_for(
    client: openai.OpenAI, recogniser: Recogniser, text: str, voice: str
):
    reply = client.audio.speech.create(
        model="voice", voice=voice, input=text, response_format="wav"
    )
    wave = read(reply.content)
    assert words(recogniser, wave) == "three one four"
    assert (pitch_hz(wave) > PITCH_BORDER_HZ) == (voice == "chelsie")


def test_what_is_streamed_is_heard_in_order(client: openai.OpenAI, recogniser: Recogniser):
    create = client.audio.speech.with_streaming_response.create
    fields = {"model": "voice", "voice": "chelsie", "input": "7 0 7 4 2"}
    with create(**fields, response_format="pcm") as reply:
        data = b"".join(reply.iter_bytes())
    wave = torch.from_numpy(np.frombuffer(data, "<i2") / np.float32(32767))
    assert words(recogniser, wave) == "seven zero seven four two"


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [("count from two to five", "two three four five"), ("say 6 5", "six five")],
)
def test_a_chat_is_answered_in_text_and_sound_alike(
    client: openai.OpenAI, recogniser: Recogniser, prompt: str, answer: str
):
    reply = client.chat.completions.create(
        model="voice",
        messages=[{"role": "user", "content": prompt}],
        modalities=["text", "audio"],
        audio={"voice": "ethan", "format": "wav"},
    )
    audio = reply.choices[0].message.audio
    assert audio.transcript == answer
    assert words(recogniser, read(base64.b64decode(audio.data))) == answer
