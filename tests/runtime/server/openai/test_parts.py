"""Media in messages reach the engine as they are, and what is wrong with them is said where."""

import base64
import json
from hashlib import sha256

import numpy as np
import openai
import pytest

from omnistage.runtime.server.openai import messages
from omnistage.tests.fakes.media_files import (
    FPS,
    RATE,
    data_url,
    film,
    film_file,
    image_file,
    picture,
    sound_file,
    wave,
)

PNG = image_file(picture(5, 7, 3))
IMAGE = {"type": "image_url", "image_url": {"url": data_url(PNG), "detail": "low"}}


def text(words):
    return {"type": "text", "text": words}


def image(url):
    return {"type": "image_url", "image_url": {"url": url}}


def sound(data, form="wav"):
    data = base64.b64encode(data).decode() if isinstance(data, bytes) else data
    return {"type": "input_audio", "input_audio": {"data": data, "format": form}}


def video(data):
    return {"type": "video_url", "video_url": {"url": data_url(data, "video/mp4")}}


def described(tag, array):
    return [tag, list(array.shape), sha256(np.ascontiguousarray(array).tobytes()).hexdigest()]


async def refused(server, content, model="omni"):
    with pytest.raises(openai.APIStatusError) as caught:
        await server.ask(content, model=model)
    assert server.orchestrator.stats()["remembered"] == 0
    assert caught.value.type == "invalid_request_error"
    return caught.value


async def test_all_kinds_of_media_arrive_in_their_places(server):
    await server.start()
    parts = [text("See"), IMAGE, text("hear"), text(" "), sound(sound_file(wave()))]
    answer = await server.ask([*parts, video(film_file(film()))], max_tokens=999)
    got = json.loads(answer.choices[0].message.content)
    assert got["messages"][0]["content"] == [
        text("See"),
        {"type": "image", "tensor": "0"},
        text("hear "),
        {"type": "audio", "tensor": "1", "rate": RATE},
        {"type": "video", "tensor": "2", "fps": FPS},
    ]
    assert got["media"] == {
        "0": described("U8", picture(5, 7, 3)),
        "1": described("F32", wave()[:, 0]),
        "2": described("U8", film()),
    }


@pytest.mark.parametrize("form", ["flac", "mp3"])
async def test_sound_may_be_compressed(server, form):
    await server.start()
    answer = await server.ask([sound(sound_file(wave(4000), form.upper()), form)])
    got = json.loads(answer.choices[0].message.content)
    assert got["messages"][0]["content"] == [{"type": "audio", "tensor": "0", "rate": RATE}]
    assert got["media"]["0"][:2] == ["F32", [4000]]


@pytest.mark.parametrize(
    ("part", "param"),
    [
        (image("http://example.com/a.png"), "image_url.url"),
        (image("HTTPS://example.com/a.png"), "image_url.url"),
        (image("file:///etc/passwd"), "image_url.url"),
        (image("/etc/passwd"), "image_url.url"),
        (image("data:image/png,abc"), "image_url.url"),
        (image("data:image/png;base64"), "image_url.url"),
        (image("data:image/png;base64,a"), "image_url.url"),
        (image("data:image/png;base64,ä"), "image_url.url"),
        (image("data:image/png;base64,$$$$"), "image_url.url"),
        (image(None), "image_url"),
        ({"type": "image_url", "image_url": "data:image/png;base64,"}, "image_url"),
        ({"type": "image_url"}, "image_url"),
        (image(data_url(b"")), "image_url"),
        (image(data_url(PNG[:60])), "image_url"),
        (image(data_url(sound_file(wave()))), "image_url"),
        (sound(b"noise"), "input_audio"),
        (sound(PNG), "input_audio"),
        (sound(sound_file(wave()), "ogg"), "input_audio.format"),
        (sound(sound_file(wave()), None), "input_audio.format"),
        (sound(sound_file(wave()), ["wav"]), "input_audio.format"),
        (sound("?"), "input_audio.data"),
        (sound(None), "input_audio"),
        ({"type": "input_audio", "input_audio": []}, "input_audio"),
        (video(b"noise"), "video_url"),
        ({"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}, "video_url.url"),
        ({"type": "file", "file": {"file_id": "x"}}, "type"),
        ({"type": "refusal", "refusal": "no"}, "type"),
        ({"type": ["text"], "text": "a"}, "type"),
        ({"text": "a"}, "type"),
        ("a", "type"),
        (None, "type"),
        (text(None), "text"),
        (text(7), "text"),
        ({**text("a"), "image_url": {"url": "x"}}, "image_url"),
        ({**IMAGE, "cache_control": {"type": "ephemeral"}}, "cache_control"),
    ],
)
async def test_a_wrong_part_is_refused_by_its_path(server, part, param):
    await server.start()
    error = await refused(server, [text("See"), part])
    assert error.status_code == 400
    assert error.param == f"messages[0].content[1].{param}"


async def test_http_addresses_are_refused_with_the_reason(server):
    await server.start()
    error = await refused(server, [image("http://example.com/a.png")])
    assert "fetches nothing" in error.message
    assert "data:<type>;base64" in error.message


@pytest.mark.parametrize("part", [IMAGE, sound(sound_file(wave())), video(film_file(film()))])
async def test_a_model_of_words_alone_takes_no_media(server, part):
    await server.start()
    error = await refused(server, [text("See"), part], model="words")
    assert error.param == f"messages[0].content[1].{part['type']}"
    assert error.message.endswith("Allowed: text.")


async def test_only_the_user_brings_media(server):
    await server.start()
    messages = [{"role": "assistant", "content": [IMAGE]}, {"role": "user", "content": "?"}]
    with pytest.raises(openai.BadRequestError) as caught:
        await server.ask(messages=messages)
    assert caught.value.param == "messages[0].content[0].type"


async def test_media_that_would_fill_the_memory_are_refused(server):
    await server.start("server.max_body_mb=1")
    black = image_file(np.zeros((300, 600, 3), np.uint8))
    assert (await server.ask([image(data_url(black))])).choices
    with pytest.raises(openai.APIStatusError) as caught:
        await server.ask([image(data_url(black))] * 2)
    assert (caught.value.status_code, caught.value.code) == (413, "too_large")
    assert caught.value.param == "messages[0].content[1].image_url"


async def test_the_number_of_media_has_a_limit(server, monkeypatch):
    await server.start()
    monkeypatch.setattr(messages, "MAX_MEDIA", 2)
    assert (await server.ask([IMAGE, text("and"), IMAGE])).choices
    with pytest.raises(openai.BadRequestError, match="2 at most"):
        await server.ask([IMAGE] * 3)
