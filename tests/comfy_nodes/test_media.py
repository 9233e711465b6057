"""Frames to and from ComfyUI's tensors."""

from __future__ import annotations

import io
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from omnistage.comfy_nodes import media
from omnistage.runtime.protocol.conversation import Conversation, Message
from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.runtime.protocol.frames import Frame, Tensor


def sent(image: torch.Tensor) -> torch.Tensor:
    """The pictures as they arrive at the runtime."""
    return media.frame_to_images(Frame.decode(media.images_to_frame(image).encode()))


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_pictures_of_any_batch_size_travel_bit_for_bit(batch):
    image = torch.rand(batch, 6, 4, 3)
    assert torch.equal(sent(image), image)


def test_grey_pictures_get_three_equal_channels():
    image = torch.rand(2, 6, 4, 1)
    assert torch.equal(sent(image), image.expand(-1, -1, -1, 3))
    assert torch.equal(sent(image[..., 0]), image.expand(-1, -1, -1, 3))


def test_transparent_layers_of_a_model_keep_their_alpha():
    layers = torch.rand(3, 4, 5, 4)
    frame = Frame({"kind": "images"}, {"images": Tensor.of(layers.numpy())})
    assert torch.equal(media.frame_to_images(Frame.decode(frame.encode())), layers)


def test_transparency_is_composited_on_white():
    image = torch.zeros(1, 1, 3, 4)
    image[0, 0, :, 3] = torch.tensor([0.0, 0.5, 1.0])
    assert sent(image)[0, 0, :, 0].tolist() == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    "shape", [(4, 4), (1, 4, 4, 2), (1, 4, 4, 5), (0, 4, 4, 3), (1, 1, 4, 4, 3)]
)
def test_other_shapes_are_refused(shape):
    with pytest.raises(InvalidRequest) as refusal:
        media.images_to_frame(torch.zeros(shape))
    assert refusal.value.field == "image"
    assert str(shape) in refusal.value.message


def test_half_precision_pictures_become_float32():
    assert sent(torch.rand(1, 2, 2, 3).half()).dtype == torch.float32


@pytest.mark.parametrize("shape", [(2, 16, 8, 4), (2, 16, 1, 8, 4)])
def test_latents_travel_with_a_frame_axis(shape):
    samples = torch.randn(shape)
    frame = Frame.decode(media.latent_to_frame({"samples": samples}).encode())
    assert frame.header["kind"] == "latent"
    assert torch.equal(media.frame_to_latent(frame)["samples"], samples.view(2, 16, 1, 8, 4))


def test_latents_without_a_frame_axis_come_as_they_are():
    ours = Tensor.of(np.ones((1, 2, 3, 4), np.float32))
    frame = Frame({"kind": "latent", "mean": [1.0, 2.0], "std": [3.0, 4.0]}, {"samples": ours})
    latent = media.frame_to_latent(frame)
    assert latent.keys() == {"samples"}
    assert latent["samples"].shape == (1, 2, 3, 4)
    assert latent["samples"][0, :, 0, 0].tolist() == [4.0, 6.0]


def test_the_latents_of_a_film_keep_their_frames():
    samples = torch.randn(1, 16, 5, 8, 4)
    frame = Frame.decode(media.latent_to_frame({"samples": samples}).encode())
    assert torch.equal(media.frame_to_latent(frame)["samples"], samples)


@pytest.mark.parametrize("shape", [(2, 1, 32, 48), (2, 32, 48), (32, 48)])
def test_a_noise_mask_travels_with_its_latents(shape):
    mask = torch.rand(shape)
    latent = {"samples": torch.zeros(2, 16, 4, 6), "noise_mask": mask}
    frame = Frame.decode(media.latent_to_frame(latent).encode())
    found = media.frame_to_latent(frame)["noise_mask"]
    assert torch.equal(found, mask.reshape(-1, 1, 32, 48))


def test_a_mask_in_a_models_own_form_stays_behind():
    tensors = {"samples": (1, 16, 4, 4), "mask": (1, 4, 64)}
    ones = {name: Tensor.of(np.ones(shape, np.float32)) for name, shape in tensors.items()}
    assert media.frame_to_latent(Frame({"kind": "latent"}, ones)).keys() == {"samples"}


def test_latents_without_a_mask_are_the_same_upload_as_ever():
    frame = media.latent_to_frame({"samples": torch.zeros(1, 16, 4, 4), "noise_mask": None})
    assert frame.tensors.keys() == {"samples"}
    assert frame.header == {"kind": "latent", "space": "vae"}


def test_masks_of_films_and_latents_of_several_kinds_are_refused():
    masked = {"samples": torch.zeros(1, 16, 2, 4, 4), "noise_mask": torch.ones(1, 2, 4, 4)}
    with pytest.raises(InvalidRequest, match="noise_mask has the shape"):
        media.latent_to_frame(masked)
    with pytest.raises(InvalidRequest, match="several kinds"):
        media.latent_to_frame({"samples": SimpleNamespace(is_nested=True)})


def test_other_latent_shapes_are_refused():
    with pytest.raises(InvalidRequest, match="samples has the shape"):
        media.latent_to_frame({"samples": torch.zeros(16, 8, 8)})


def test_a_models_normalisation_is_undone():
    ours = Tensor.of(np.ones((1, 2, 1, 1, 1), np.float32))
    frame = Frame({"kind": "latent", "mean": [1.0, 2.0], "std": [3.0, 4.0]}, {"samples": ours})
    assert media.frame_to_latent(frame)["samples"].flatten().tolist() == [4.0, 6.0]


def test_bfloat16_arrives_as_the_same_numbers():
    values = torch.randn(1, 2, 1, 4, 4).bfloat16()
    wire = Tensor(values.view(torch.int16).numpy().view(np.uint16), "BF16")
    frame = Frame.decode(Frame({"kind": "latent"}, {"samples": wire}).encode())
    assert torch.equal(media.frame_to_latent(frame)["samples"], values.float())


def conditioning(*names: str) -> Frame:
    rng = np.random.default_rng(0)
    shapes = {name: (1, 3) if name.endswith("mask") else (1, 3, 4) for name in names}
    arrays = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
    return Frame({"kind": "conditioning"}, {k: Tensor.of(v) for k, v in arrays.items()})


def test_conditioning_with_a_negative_prompt():
    names = ("prompt_embeds", "prompt_embeds_mask")
    frame = conditioning(*names, *(f"negative_{name}" for name in names))
    ((embeddings, facts),), ((avoid, _),) = media.frame_to_conditioning(frame)
    assert np.array_equal(embeddings.numpy(), frame.tensors["prompt_embeds"].array)
    assert facts["attention_mask"].shape == (1, 3)
    assert np.array_equal(avoid.numpy(), frame.tensors["negative_prompt_embeds"].array)


def test_conditioning_without_a_negative_prompt_is_zeros():
    _, ((avoid, facts),) = media.frame_to_conditioning(
        conditioning("prompt_embeds", "prompt_embeds_mask")
    )
    assert not avoid.any()
    assert facts["attention_mask"].any()


def test_conditioning_of_one_text_in_a_list():
    arrays = {
        "prompt_embeds.0": (3, 4),
        "prompt_embeds_mask.0": (3,),
        "negative_prompt_embeds.0": (2, 4),
    }
    frame = Frame(
        {"kind": "conditioning"},
        {name: Tensor.of(np.ones(shape, np.float32)) for name, shape in arrays.items()},
    )
    ((embeddings, facts),), ((avoid, _),) = media.frame_to_conditioning(frame)
    assert embeddings.shape == (1, 3, 4)
    assert facts["attention_mask"].shape == (1, 3)
    assert avoid.shape == (1, 2, 4)


def test_conditioning_with_a_pooled_output():
    frame = Frame(
        {"kind": "conditioning"},
        {
            "prompt_embeds": Tensor.of(np.ones((1, 3, 4), np.float32)),
            "pooled_prompt_embeds": Tensor.of(np.ones((1, 8), np.float32)),
        },
    )
    ((_, facts),), ((_, none),) = media.frame_to_conditioning(frame)
    assert facts["pooled_output"].shape == (1, 8)
    assert not none["pooled_output"].any()


@pytest.mark.parametrize(
    "shapes",
    [
        {"text_embeds": (1, 3, 4)},
        {"prompt_embeds.0": (3, 4), "prompt_embeds.1": (2, 4)},
        {"prompt_embeds": (1, 2, 3, 4)},
        {
            "prompt_embeds": (1, 3, 4),
            "negative_prompt_embeds.0": (3, 4),
            "negative_prompt_embeds.1": (3, 4),
        },
    ],
)
def test_conditioning_that_comfyui_cannot_hold_is_refused(shapes):
    tensors = {name: Tensor.of(np.ones(shape, np.float32)) for name, shape in shapes.items()}
    with pytest.raises(InvalidRequest, match="ComfyUI's CONDITIONING cannot hold it") as refusal:
        media.frame_to_conditioning(Frame({"kind": "conditioning"}, tensors))
    assert all(name in refusal.value.message for name in shapes)


def test_a_preview_becomes_a_picture():
    data = io.BytesIO()
    Image.new("RGB", (8, 4), "red").save(data, "JPEG")
    assert media.preview_image(data.getvalue()).size == (8, 4)


# --- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4, 6), (4, 6)])
def test_masks_have_one_channel(shape):
    mask = torch.rand(shape)
    frame = Frame.decode(media.mask_to_frame(mask, (6, 4)).encode())
    assert frame.header == {"kind": "images"}
    assert np.array_equal(frame.tensors["images"].array, mask.view(-1, 4, 6, 1).numpy())


@pytest.mark.parametrize("shape", [(1, 6, 4), (1, 1, 4, 6), (0, 4, 6)])
def test_other_masks_are_refused(shape):
    with pytest.raises(InvalidRequest) as refusal:
        media.mask_to_frame(torch.zeros(shape), (6, 4))
    assert refusal.value.field == "mask"


# --- sound and film -------------------------------------------------------------------------------


def sound(*shape: int, rate_hz: int = 16000) -> dict[str, object]:
    return {"waveform": torch.rand(shape) * 2 - 1, "sample_rate": rate_hz}


def film(images: torch.Tensor, fps: float | Fraction = 24) -> SimpleNamespace:
    """What of ComfyUI's VIDEO is used."""
    parts = SimpleNamespace(images=images, frame_rate=fps, audio=None)
    return SimpleNamespace(get_components=lambda: parts)


@pytest.mark.parametrize("shape", [(1, 1, 8), (2, 2, 5)])
def test_sounds_travel_bit_for_bit_with_their_rate(shape):
    audio = sound(*shape, rate_hz=44100)
    frame = Frame.decode(media.audio_to_frame(audio).encode())
    assert frame.header == {"kind": "audio", "rate": 44100}
    assert torch.equal(torch.tensor(frame.tensors["waveform"].array), audio["waveform"])


def test_a_sound_comes_back_as_it_was():
    audio = sound(1, 1, 8, rate_hz=24000)
    found = media.frame_to_audio(Frame.decode(media.audio_to_frame(audio).encode()))
    assert found["sample_rate"] == 24000
    assert found["waveform"].dtype == torch.float32
    assert torch.equal(found["waveform"], audio["waveform"])


def test_samples_for_a_page_are_clipped_and_mixed_down():
    stereo = np.array([[[0.0, 1.0, -1.0, 4.0], [0.0, 0.0, -1.0, 4.0]]], np.float32)
    samples = np.frombuffer(media.pcm16(stereo), "<i2")
    assert samples.tolist() == [0, 16384, -32767, 32767]


def test_films_travel_as_bytes_with_their_rate():
    images = torch.tensor([0.0, 0.5, 1.0, 1.5]).view(4, 1, 1, 1).expand(4, 2, 3, 3)
    frame = Frame.decode(media.video_to_frame(film(images, Fraction(30000, 1001))).encode())
    assert frame.header == {"kind": "video", "fps": pytest.approx(29.97, abs=0.001)}
    tensor = frame.tensors["frames"]
    assert (tensor.tag, tensor.array.shape) == ("U8", (4, 2, 3, 3))
    assert tensor.array[:, 0, 0, 0].tolist() == [0, 128, 255, 255]


def test_a_films_pictures_come_as_an_image():
    frames = np.arange(3 * 2 * 4 * 3, dtype=np.uint8).reshape(3, 2, 4, 3)
    film = Frame({"kind": "video", "fps": 8.0}, {"frames": Tensor.of(frames)})
    images = media.frame_to_images(Frame.decode(film.encode()))
    assert images.dtype == torch.float32
    assert np.array_equal((images * 255).round().numpy(), frames)


@pytest.mark.parametrize(
    ("fps", "rate"),
    [(16.0, Fraction(16)), (12.5, Fraction(25, 2)), (30000 / 1001, Fraction(30000, 1001))],
)
def test_a_films_rate_is_exact(fps, rate):
    assert media.frame_rate(Frame({"kind": "video", "fps": fps})) == rate


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: media.audio_to_frame(sound(1, 8)), "audio"),
        (lambda: media.audio_to_frame(sound(1, 1, 0)), "audio"),
        (lambda: media.audio_to_frame(sound(1, 1, 8, rate_hz=0)), "audio"),
        (lambda: media.video_to_frame(film(torch.zeros(0, 3, 0, 0))), "video"),
        (lambda: media.video_to_frame(film(torch.zeros(1, 2, 2, 3), 0)), "video"),
    ],
)
def test_other_sounds_and_films_are_refused(make, field):
    with pytest.raises(InvalidRequest) as refusal:
        make()
    assert refusal.value.field == field
    assert field in refusal.value.message


def test_a_messages_media_are_what_a_conversation_takes():
    audio = sound(2, 2, 5)
    images = torch.rand(2, 4, 6, 3)
    parts = tuple(media.message_media(images, audio, film(torch.rand(3, 4, 6, 4), 8)))
    sent = Conversation((Message("user", parts),)).to_frame()
    (message,) = Conversation.from_frame(Frame.decode(sent.encode())).messages
    assert [part.kind for part in message.parts] == ["image", "image", "video", "audio", "audio"]
    assert [part.rate for part in message.parts] == [0, 0, 8, 16000, 16000]
    first, _, frames, _, last = (part.tensor.array for part in message.parts)
    assert np.array_equal(first, (images[0] * 255).round().to(torch.uint8).numpy())
    assert frames.shape == (3, 4, 6, 3)
    assert np.allclose(last, audio["waveform"][1].mean(0))
