"""Decoders: what comes out of files, and what is refused before it fills the memory."""

import numpy as np
import pytest
from PIL import Image

from omnistage.runtime.protocol.errors import InvalidRequest, TooLarge
from omnistage.runtime.server.openai import audio, image, library, video
from omnistage.runtime.server.openai.audio import decode_audio
from omnistage.runtime.server.openai.budget import Budget
from omnistage.runtime.server.openai.image import decode_image
from omnistage.runtime.server.openai.video import decode_video
from omnistage.tests.fakes.media_files import (
    FPS,
    RATE,
    film,
    film_file,
    film_without_pictures,
    image_file,
    picture,
    quarter_turned,
    sound_file,
    wave,
)

PLENTY = 1 << 30


def pixels_of(data):
    media = decode_image(data, Budget(PLENTY))
    assert media.kind == "image"
    return media.tensor.array


def samples_of(data):
    media = decode_audio(data, Budget(PLENTY))
    assert (media.kind, media.rate, media.tensor.tag) == ("audio", RATE, "F32")
    return media.tensor.array


@pytest.mark.parametrize(("form", "options"), [("PNG", {}), ("WEBP", {"lossless": True})])
def test_a_picture_comes_out_exactly(form, options):
    pixels = picture(5, 7, 3)
    assert np.array_equal(pixels_of(image_file(pixels, form, **options)), pixels)


def test_lossy_pictures_come_out_nearly():
    pixels = np.full((16, 16, 3), (200, 30, 60), np.uint8)
    assert np.abs(pixels_of(image_file(pixels, "JPEG")).astype(int) - pixels).max() < 8


def test_grey_pictures_have_three_channels():
    grey = picture(4, 6)
    assert np.array_equal(pixels_of(image_file(grey)), np.stack([grey] * 3, 2))


def test_pictures_of_16_bits_keep_the_upper_8():
    grey = picture(4, 6)
    deep = grey.astype(np.uint16) * 256 + 77
    assert np.array_equal(pixels_of(image_file(deep)), np.stack([grey] * 3, 2))


def test_what_is_transparent_is_white():
    pixels = picture(2, 3, 4)
    pixels[..., 3] = [[0, 128, 255]] * 2
    seen = pixels_of(image_file(pixels))
    assert (seen[:, 0] == 255).all()
    assert np.array_equal(seen[:, 2], pixels[:, 2, :3])
    halfway = pixels[:, 1, :3] * (128 / 255) + 255 * (127 / 255)
    assert np.abs(seen[:, 1] - halfway).max() <= 1


def test_a_palette_may_be_transparent_too():
    colours = Image.fromarray(picture(3, 3, 3)).quantize(4)
    assert (pixels_of(image_file(np.asarray(colours) * 0, transparency=0)) == 255).all()


def test_a_picture_is_turned_as_its_camera_says():
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, 8:] = 255
    turned = Image.Exif()
    turned[0x0112] = 6  # turn by 90 degrees clockwise
    seen = pixels_of(image_file(pixels, "PNG", exif=turned))
    assert np.array_equal(seen, np.rot90(pixels, -1))


def test_only_the_first_picture_of_several_counts():
    first, second = (Image.fromarray(picture(4, 4, 3, seed=i)) for i in range(2))
    data = image_file(np.asarray(first), "PNG", save_all=True, append_images=[second])
    assert np.array_equal(pixels_of(data), np.asarray(first))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no picture at all",
        image_file(picture(9, 9, 3))[:-30],
        image_file(picture(9, 9, 3), "TIFF"),
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
    ],
)
def test_a_broken_or_unknown_picture_is_refused(data):
    with pytest.raises(InvalidRequest, match="cannot be read") as caught:
        decode_image(data, Budget(PLENTY))
    assert "PNG" in caught.value.allowed


def test_a_small_file_with_an_enormous_picture_is_not_unpacked(monkeypatch):
    data = image_file(np.zeros((20, 50), np.uint8))
    with pytest.raises(TooLarge, match="2999 bytes"):
        decode_image(data, Budget(2999))
    monkeypatch.setattr(image, "MAX_PIXELS", 999)
    with pytest.raises(TooLarge, match="999 pixels"):
        decode_image(data, Budget(PLENTY))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    with pytest.raises(TooLarge, match="999 pixels"):
        decode_image(data, Budget(PLENTY))


@pytest.mark.parametrize(
    ("form", "options"), [("WAV", {}), ("WAV", {"subtype": "FLOAT"}), ("FLAC", {})]
)
def test_a_sound_comes_out_exactly(form, options):
    assert np.array_equal(samples_of(sound_file(wave(), form, **options)), wave()[:, 0])


def test_an_mp3_comes_out_nearly():
    samples = samples_of(sound_file(wave(4000), "MP3"))
    assert len(samples) == 4000
    assert np.abs(samples - wave(4000)[:, 0])[100:-100].max() < 0.05


def test_channels_are_mixed(monkeypatch):
    monkeypatch.setattr(audio, "_BLOCK_SAMPLES", 64)  # several blocks
    samples = samples_of(sound_file(wave(channels=3), subtype="FLOAT"))
    assert np.allclose(samples, wave(channels=3).mean(1), atol=1e-7)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Format not recognised"),
        (b"no sound at all", "Format not recognised"),
        (sound_file(wave(), "OGG"), "it is OGG"),
        (sound_file(wave(0)), "it is empty"),
        (sound_file(wave() + np.float32(np.nan), subtype="FLOAT"), "not all samples are numbers"),
    ],
)
def test_a_broken_or_unknown_sound_is_refused(data, why):
    with pytest.raises(InvalidRequest, match=f"cannot be read: {why}") as caught:
        decode_audio(data, Budget(PLENTY))
    assert caught.value.allowed == "wav, flac, mp3"


def test_a_long_sound_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(audio, "_BLOCK_SAMPLES", 64)
    with pytest.raises(TooLarge, match="1599 bytes"):
        decode_audio(sound_file(wave(400)), Budget(1599))
    decode_audio(sound_file(wave(400)), Budget(1600))


@pytest.mark.parametrize("form", ["mp4", "matroska"])
def test_a_film_comes_out_exactly(form):
    media = decode_video(film_file(film(), form), Budget(PLENTY))
    assert (media.kind, media.rate) == ("video", FPS)
    assert np.array_equal(media.tensor.array, film())


def test_a_film_is_turned_as_its_camera_says():
    media = decode_video(quarter_turned(film_file(film())), Budget(PLENTY))
    assert np.array_equal(media.tensor.array, np.rot90(film(), -1, axes=(1, 2)))


@pytest.mark.parametrize(
    ("frames", "most", "stride"), [(8, 8, 1), (9, 8, 2), (9, 5, 2), (17, 3, 8), (7, 1, 8)]
)
def test_of_a_long_film_every_second_or_fourth_frame_is_kept(monkeypatch, frames, most, stride):
    monkeypatch.setattr(video, "MAX_KEPT_FRAMES", most)
    media = decode_video(film_file(film(frames)), Budget(PLENTY))
    assert np.array_equal(media.tensor.array, film(frames)[::stride])
    assert media.rate == FPS / stride


def test_a_film_is_thinned_until_the_budget_has_room_for_it():
    frame_bytes = film(1).nbytes
    budget = Budget(5 * frame_bytes - 1)
    media = decode_video(film_file(film(8)), budget)
    assert np.array_equal(media.tensor.array, film(8)[::2])
    assert budget.left_bytes == frame_bytes - 1
    with pytest.raises(TooLarge):
        decode_video(film_file(film(8)), budget)


def test_a_film_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(video, "MAX_FRAMES", 7)
    with pytest.raises(TooLarge, match="7 frames"):
        decode_video(film_file(film(8)), Budget(PLENTY))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Invalid data found"),
        (b"no film at all", "Invalid data found"),
        (film_file(film())[:200], "Invalid data found"),
        (film_file(film(), "matroska")[:1000], "it has no whole picture"),
        (film_without_pictures(), "it has no pictures"),
        (sound_file(wave()), "Invalid argument"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "Invalid argument"),  # not even opened
    ],
)
def test_a_broken_or_unknown_film_is_refused(data, why):
    with pytest.raises(InvalidRequest, match=f"cannot be read: {why}") as caught:
        decode_video(data, Budget(PLENTY))
    assert "MP4" in caught.value.allowed


@pytest.mark.parametrize(("decode", "name"), [(decode_audio, "soundfile"), (decode_video, "av")])
def test_a_decoder_that_is_not_installed_is_named(monkeypatch, decode, name):
    def import_module(name):
        raise ImportError(name)

    monkeypatch.setattr(library.importlib, "import_module", import_module)
    with pytest.raises(InvalidRequest, match=f"package {name} is not installed"):
        decode(b"", Budget(PLENTY))
