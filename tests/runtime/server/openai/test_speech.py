"""Speech, and chats that are spoken, with OpenAI's own client."""

import base64
import io
import json
from typing import get_args

import av
import numpy as np
import openai
import pytest

from omnistage.runtime.client import RuntimeClient
from omnistage.runtime.protocol.errors import EngineLost
from omnistage.runtime.protocol.frames import Frame, Tensor
from omnistage.runtime.protocol.messages import JobEvent
from omnistage.runtime.protocol.pcm import pcm16
from omnistage.runtime.protocol.recipe import JobSpec, handle_of
from omnistage.runtime.server.openai.sound import FORMATS, SoundFile
from omnistage.runtime.server.openai.soundtrack import Soundtrack
from omnistage.runtime.server.openai.speech import SpeechRequest
from omnistage.tests.fakes.fake_chat_core import SAMPLES, said

TEXT = "It takes a while to say all of this, so that it comes in pieces."


def decoded(data):
    """The sound in a file, and its rate."""
    with av.open(io.BytesIO(data)) as file:
        rate = file.streams.audio[0].rate
        resampler = av.AudioResampler(format="fltp", layout="mono", rate=rate)
        frames = [part for f in file.decode(audio=0) for part in resampler.resample(f)]
    return np.concatenate([frame.to_ndarray()[0] for frame in frames]), rate


def bare(data):
    return np.frombuffer(data, "<i2") / np.float32(32767)


async def speech(server, **fields):
    fields = {"model": "speaks", "voice": "ada", "input": TEXT, "response_format": "wav", **fields}
    return await server.client.audio.speech.create(**fields)


async def test_a_text_is_said_as_it_is(server):
    await server.start()
    sound, rate = decoded((await speech(server)).content)
    assert (said(sound), rate) == (TEXT, 24000)


@pytest.mark.parametrize("kind", sorted(FORMATS.keys() - {"pcm"}))
async def test_every_format_can_be_read_and_is_as_long(server, kind):
    await server.start()
    reply = await speech(server, response_format=kind)
    assert reply.response.headers["content-type"] == FORMATS[kind].media_type
    sound, rate = decoded(reply.content)
    seconds = len(TEXT) * SAMPLES / 24000
    assert len(sound) / rate == pytest.approx(seconds, abs=0.1)
    assert np.abs(sound).max() > 0.08


async def test_bare_samples_come_while_the_rest_is_still_being_said(server, tmp_path):
    await server.start(say=TEXT, at=1, folder=str(tmp_path))
    create = server.client.audio.speech.with_streaming_response.create
    fields = {"model": "speaks", "voice": "ada", "input": TEXT, "response_format": "pcm"}
    async with create(**fields) as reply:
        pieces = reply.iter_bytes()
        first = await anext(pieces)
        assert said(bare(first)) == TEXT[:24], "the thinker waits, and the sound so far is here"
        (tmp_path / "go").touch()
        data = first + b"".join([piece async for piece in pieces])
    assert said(bare(data)) == TEXT


async def test_as_events(server):
    await server.start()
    reply = await speech(server, response_format="pcm", stream_format="sse")
    bodies = [line[6:] for line in reply.text.splitlines() if line.startswith("data: ")]
    events = [json.loads(body) for body in bodies]
    sound = b"".join(base64.b64decode(e["audio"]) for e in events[:-1])
    assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
    assert said(bare(sound)) == TEXT
    usage = events[-1]["usage"]
    assert usage["output_tokens"] == len(TEXT)


async def test_a_failure_before_the_first_sound_has_a_status(server):
    await server.start(trouble="fail", at=0)
    with pytest.raises(openai.InternalServerError, match="lost its thread"):
        await speech(server)


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
async def test_a_text_that_the_thinker_refuses_is_the_requests_fault(server, stream_format):
    await server.start(trouble="prompt", at=0)
    with pytest.raises(openai.BadRequestError, match="too long") as caught:
        await speech(server, stream_format=stream_format)
    assert caught.value.param == "input"


async def test_a_failure_in_the_middle_breaks_off(server, tmp_path):
    await server.start(say=TEXT, trouble="fail", at=1, folder=str(tmp_path))
    create = server.client.audio.speech.with_streaming_response.create
    fields = {"model": "speaks", "voice": "ada", "input": TEXT, "response_format": "pcm"}
    async with create(**fields) as reply:
        pieces = reply.iter_bytes()
        assert await anext(pieces)
        (tmp_path / "go").touch()
        with pytest.raises(Exception, match="peer closed connection"):
            async for _ in pieces:
                pass


async def test_a_crash_in_the_middle_is_not_heard(server, tmp_path):
    (tmp_path / "go").touch()
    await server.start(say=TEXT, trouble="crash", at=1, folder=str(tmp_path))
    data = (await speech(server, response_format="pcm")).content
    assert said(bare(data)) == TEXT


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"voice": "nobody"}, "voice", "ada, bob"),
        ({"model": "words"}, "model", "does not speak"),
        ({"model": "gone"}, "model", "words"),
        ({"input": ""}, "input", "at least 1"),
        ({"response_format": "midi"}, "response_format", "wav"),
        ({"speed": 2.0}, "speed", "1"),
    ],
)
async def test_what_is_wrong_is_refused_by_its_field(server, fields, param, words):
    await server.start()
    with pytest.raises(openai.APIStatusError) as caught:
        await speech(server, **fields)
    assert caught.value.status_code in (400, 404)
    assert caught.value.param == param
    assert words in caught.value.message
    assert server.orchestrator.stats()["remembered"] == 0


async def test_voices_are_known_in_any_case_and_one_is_usual(server):
    await server.start()
    for voice in ("ADA", "default"):
        assert (await speech(server, voice=voice)).content


async def test_a_chat_is_answered_in_writing_and_in_sound(server):
    await server.start(say=TEXT)
    audio = {"voice": "bob", "format": "wav"}
    reply = await server.ask(model="speaks", modalities=["text", "audio"], audio=audio, n=2)
    for choice in reply.choices:
        assert choice.message.content is None
        assert choice.message.audio.transcript == TEXT
        sound, _ = decoded(base64.b64decode(choice.message.audio.data))
        assert said(sound) == TEXT


@pytest.mark.parametrize("fields", [{}, {"stream": True}])
async def test_a_spoken_chat_that_the_thinker_refuses_is_the_requests_fault(server, fields):
    await server.start(trouble="fault", at=0)
    spoken = {"modalities": ["text", "audio"], "audio": {"voice": "bob", "format": "pcm16"}}
    with pytest.raises(openai.BadRequestError, match="too long") as caught:
        await server.ask(model="speaks", **spoken, **fields)
    assert caught.value.param == "messages[0].content"


async def test_a_chat_is_written_and_said_at_the_same_time(server):
    await server.start(say=TEXT)
    audio = {"voice": "bob", "format": "pcm16"}
    fields = {"modalities": ["text", "audio"], "audio": audio, "stream": True}
    text, sound, names = "", b"", set()
    async for chunk in await server.ask(model="speaks", **fields):
        for choice in chunk.choices:
            piece = choice.delta.to_dict().get("audio", {})
            names |= {piece["id"]} if piece else set()
            text += piece.get("transcript", "")
            sound += base64.b64decode(piece.get("data", ""))
    assert text == TEXT
    assert said(bare(sound)) == TEXT
    assert len(names) == 1


async def test_the_native_client_hears_the_sound_in_parts(server):
    await server.start(say=TEXT)
    thinker = JobSpec.make("speaks", "thinker", {"prompt": "Speak."}, {})
    hidden = handle_of(thinker, "hidden")
    talker = handle_of(
        JobSpec.make("speaks", "talker", {}, {"hidden": hidden.ref}), "codes", [hidden]
    )
    codec = JobSpec.make("speaks", "codec_decode", {}, {"codes": talker.ref})
    heard = []

    def listen(event):
        heard.extend(frame.tensors["waveform"].array for frame in event.parts)

    async with RuntimeClient(server.url) as client:
        handle = handle_of(codec, "audio", [talker])
        whole = await client.run(handle, owner="a", client="c", on_event=listen)
    assert len(heard) > 1
    assert (np.concatenate(heard, -1) == whole.tensors["waveform"].array).all()
    assert said(whole.tensors["waveform"].array[0, 0]) == TEXT


def part(*samples):
    wave = np.array(samples, np.float32)[None, None]
    frame = Frame({"kind": "audio"}, {"waveform": Tensor.of(wave)})
    return JobEvent("k", "part", output="audio", parts=(frame,))


def test_another_attempt_goes_on_where_the_first_was_lost():
    track = Soundtrack()
    assert list(track.take(part(1, 2))) == [1, 2]
    assert list(track.take(JobEvent("k", "running"))) == []
    assert list(track.take(part(1))) == []
    assert list(track.take(part(2, 3))) == [3]
    assert list(track.finish(np.array([1, 2, 3, 4], np.float32))) == [4]
    with pytest.raises(EngineLost):
        track.finish(np.zeros(2, np.float32))


def test_samples_beyond_full_scale_are_cut():
    assert list(np.frombuffer(pcm16(np.array([2, -2, 0.5], np.float32)), "<i2")) == [
        32767,
        -32767,
        16384,
    ]


def test_a_file_of_nothing_is_whole():
    for kind in FORMATS:
        assert SoundFile(kind, 24000).end() is not None


def test_the_formats_are_those_of_the_request():
    field = SpeechRequest.model_fields["response_format"]
    assert set(get_args(field.annotation)) == FORMATS.keys()
