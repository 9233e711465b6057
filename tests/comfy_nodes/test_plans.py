"""What each node asks for."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import pytest
import torch

from omnistage.comfy_nodes import plans
from omnistage.comfy_nodes.guidance import input_of, param_of
from omnistage.comfy_nodes.media import frame_to_images
from omnistage.comfy_nodes.values import (
    Answer,
    Chat,
    Codes,
    Conditioning,
    Model,
    Remote,
    RemoteText,
    Text,
)
from omnistage.runtime.models.modular import guider_params
from omnistage.runtime.protocol.conversation import Conversation
from omnistage.runtime.protocol.errors import InvalidRequest
from omnistage.runtime.protocol.frames import Frame
from omnistage.runtime.protocol.recipe import Handle, JobSpec

MODEL = Model("demo")
NEUTRAL = {
    "width": 0,
    "height": 0,
    "count": 1,
    "steps": 0,
    "guidance": -1.0,
    "scheduler": "default",
    "denoise": 1.0,
    "seed": 0,
}


@pytest.fixture
def conditioning() -> Conditioning:
    return plans.text_encode(MODEL, "a red circle", "")


def spec_of(result: Remote) -> JobSpec:
    assert isinstance(result.source, Handle)
    return result.source.recipe.jobs[-1]


def test_equal_inputs_give_equal_jobs(conditioning):
    again = plans.text_encode(MODEL, "a red circle", "")
    assert again == conditioning
    one = plans.sample(MODEL, conditioning, **NEUTRAL)
    assert one == plans.sample(MODEL, again, **NEUTRAL)


def test_a_models_own_defaults_are_left_out(conditioning):
    assert spec_of(plans.sample(MODEL, conditioning, **NEUTRAL)).params == {"count": 1, "seed": 0}


def test_what_is_given_is_sent(conditioning):
    given = {
        "width": 64,
        "height": 128,
        "count": 3,
        "steps": 7,
        "guidance": 0.0,
        "scheduler": "euler",
        "denoise": 0.5,
        "seed": 2**64 - 1,
    }
    assert spec_of(plans.sample(MODEL, conditioning, **given)).params == given


def test_a_handle_carries_its_whole_recipe(conditioning):
    images = plans.vae_decode(MODEL, plans.sample(MODEL, conditioning, **NEUTRAL))
    assert [job.stage for job in images.source.recipe] == ["text_encode", "sample", "vae_decode"]


def test_an_uploaded_picture_travels_with_the_handle(conditioning):
    picture = torch.rand(2, 32, 48, 3)
    latent = plans.vae_encode(MODEL, picture)
    assert latent.size == (48, 32)
    sampled = plans.sample(MODEL, conditioning, **NEUTRAL, latent=latent)
    assert isinstance(sampled.source, Handle)
    assert spec_of(sampled).params["width"] == 48
    (data,) = sampled.source.blobs.values()
    assert set(sampled.source.blobs) == sampled.source.recipe.blobs()
    assert torch.equal(frame_to_images(Frame.decode(data)), picture)


def test_an_explicit_size_wins_over_the_latents(conditioning):
    latent = plans.vae_encode(MODEL, torch.rand(1, 32, 48, 3))
    sampled = plans.sample(MODEL, conditioning, **{**NEUTRAL, "width": 64}, latent=latent)
    assert spec_of(sampled).params["width"] == 64
    assert spec_of(sampled).params["height"] == 32


CONTROL = {"controlnet": "lines", "strength": 0.5, "start": 0.0, "end": 0.7}


def test_a_picture_to_keep_to_travels_with_the_conditioning(conditioning):
    picture = torch.rand(1, 32, 48, 3)
    steered = plans.control(MODEL, conditioning, picture, **CONTROL)
    assert steered.source == conditioning.source
    sampled = plans.sample(MODEL, steered, **NEUTRAL)
    spec = spec_of(sampled)
    assert spec.params["control"] == {"name": "lines", "strength": 0.5, "start": 0.0, "end": 0.7}
    assert (spec.params["width"], spec.params["height"]) == (48, 32)
    assert isinstance(sampled.source, Handle)
    data = sampled.source.blobs[spec.inputs["control"].digest]
    assert torch.equal(frame_to_images(Frame.decode(data)), picture)


def test_a_latents_size_wins_over_that_of_a_picture_to_keep_to(conditioning):
    steered = plans.control(MODEL, conditioning, torch.rand(1, 32, 48, 3), **CONTROL)
    latent = plans.vae_encode(MODEL, torch.rand(1, 64, 64, 3))
    sampled = plans.sample(MODEL, steered, **NEUTRAL, latent=latent)
    assert (spec_of(sampled).params["width"], spec_of(sampled).params["height"]) == (64, 64)


def test_a_controlnet_without_strength_changes_nothing(conditioning):
    picture = torch.rand(1, 32, 48, 3)
    assert plans.control(MODEL, conditioning, picture, **CONTROL | {"strength": 0.0}) is (
        conditioning
    )


def test_a_second_controlnet_is_refused(conditioning):
    picture = torch.rand(1, 32, 48, 3)
    steered = plans.control(MODEL, conditioning, picture, **CONTROL)
    with pytest.raises(InvalidRequest, match="there can be one"):
        plans.control(MODEL, steered, picture, **CONTROL)


def test_a_latent_of_comfyui_is_an_upload_without_a_job(conditioning):
    latent = plans.from_latent(MODEL, {"samples": torch.zeros(1, 16, 8, 8)})
    assert not isinstance(latent.source, Handle)
    sampled = plans.sample(MODEL, conditioning, **{**NEUTRAL, "width": 64}, latent=latent)
    assert spec_of(sampled).inputs["latent"] == latent.source.ref


def test_an_address_is_taken_without_blanks_and_slash():
    assert plans.load_model("demo", " http://host:1/ ") == Model("demo", "http://host:1")


def test_strict_goes_with_every_stage_of_the_model():
    model = plans.load_model("demo", strict=True)
    handle = plans.vae_decode(model, a_latent(model)).source
    assert [job.params["strict"] for job in handle.recipe] == [True] * 3


def a_latent(model: Model):
    conditioning = plans.text_encode(model, "a star")
    sizes = {"width": 0, "height": 0, "count": 1, "steps": 0}
    choices = {"guidance": -1.0, "scheduler": plans.DEFAULT, "denoise": 1.0, "seed": 1}
    return plans.sample(model, conditioning, **sizes, **choices)


# --- pictures in, film, adapters, guidance --------------------------------------------------------

OWN_GUIDANCE = {
    "start": -1.0,
    "stop": -1.0,
    "guidance_rescale": -1.0,
    "use_original_formulation": False,
    "scale": -1.0,
    "scale_start": -1.0,
    "scale_stop": -1.0,
    "layers": "",
    "momentum": -2.0,
    "norm_limit": -1.0,
    "eta": -1.0,
    "start_step": -1,
    "zero_init_steps": -1,
    "alpha": -1.0,
}


def guided(kind: str, **inputs) -> Mapping[str, Any]:
    return plans.guider(kind, **{**OWN_GUIDANCE, **inputs}).params


def test_reference_pictures_are_uploads_of_the_stages_names():
    small, large = torch.rand(2, 4, 6, 3), torch.rand(1, 8, 8, 4)
    encoded = plans.text_encode(MODEL, "a hat on it", images=small, images_3=large)
    spec = spec_of(encoded)
    assert spec.params == {"prompt": "a hat on it", "negative_prompt": ""}
    assert spec.inputs.keys() == {"images", "images_3"}
    sent = {
        name: frame_to_images(Frame.decode(encoded.source.blobs[ref.digest]))
        for name, ref in spec.inputs.items()
    }
    assert torch.equal(sent["images"], small)
    assert sent["images_3"].shape == (1, 8, 8, 3)


def test_a_mask_goes_with_its_picture():
    picture, mask = torch.rand(2, 4, 6, 3), torch.rand(1, 4, 6)
    latent = plans.vae_encode(MODEL, picture, mask)
    spec = spec_of(latent)
    sent = Frame.decode(latent.source.blobs[spec.inputs["mask"].digest])
    assert (spec.params, spec.inputs.keys()) == ({}, {"images", "mask"})
    assert sent.header == {"kind": "images"}
    assert np.array_equal(sent.tensors["images"].array, mask.unsqueeze(-1).numpy())
    assert spec_of(plans.vae_encode(MODEL, picture)).inputs.keys() == {"images"}


def test_a_mask_of_another_size_is_refused():
    with pytest.raises(InvalidRequest, match="mask is of 64 x 64 px, but the picture is of 6 x 4"):
        plans.vae_encode(MODEL, torch.rand(1, 4, 6, 3), torch.zeros(1, 64, 64))


def test_frames_and_a_guider_are_sent(conditioning):
    how = plans.guider("tcfg", **{**OWN_GUIDANCE, "stop": 0.5})
    params = spec_of(plans.sample(MODEL, conditioning, **NEUTRAL, frames=17, guider=how)).params
    own = {"kind": "tcfg", "stop": 0.5}
    assert params == {"count": 1, "seed": 0, "frames": 17, "guider": own}
    assert plans.sample(MODEL, conditioning, **NEUTRAL, frames=0) == plans.sample(
        MODEL, conditioning, **NEUTRAL
    )


def test_a_film_is_what_the_decoder_of_its_pictures_makes(conditioning):
    latent = plans.sample(MODEL, conditioning, **NEUTRAL)
    film = plans.video_decode(MODEL, latent, 0.0)
    pictures = plans.vae_decode(MODEL, latent)
    assert film.source.output == "video"
    assert film.source.job == pictures.source.job
    assert film.output("audio").source.job == film.source.job
    assert pictures.output("video").source == film.source
    assert spec_of(plans.video_decode(MODEL, latent, 12.5)).params == {"fps": 12.5}


def test_adapters_are_told_to_the_stages_that_they_change():
    model = plans.lora(plans.lora(MODEL, "paint", 0.8), "ink", -0.5)
    handle = plans.vae_decode(model, a_latent(model)).source
    loras = [
        {"name": "paint", "strength": 0.8, "noise": "all"},
        {"name": "ink", "strength": -0.5, "noise": "all"},
    ]
    assert [job.params.get("loras") for job in handle.recipe] == [loras, loras, None]
    assert MODEL.adapters == ()


def test_the_same_adapter_twice_is_one_as_strong_as_both():
    assert plans.lora(plans.lora(MODEL, "ink", 0.5), "ink", 0.25).adapters == (
        ("ink", 0.75, "all"),
    )


def test_an_adapter_for_high_noise_and_one_for_low_noise_are_two():
    model = plans.lora(plans.lora(MODEL, "ink", 0.5, "high"), "ink", 0.25, "low")
    assert model.adapters == (("ink", 0.5, "high"), ("ink", 0.25, "low"))


def test_an_adapter_without_effect_is_none():
    assert plans.lora(MODEL, "ink", 0.0) == MODEL
    assert plans.lora(plans.lora(MODEL, "ink", 0.5), "ink", -0.5) == MODEL


def test_a_guiders_own_defaults_are_left_out():
    assert guided("cfg") == {"kind": "cfg"}
    assert guided("apg", momentum=-1.0)["adaptive_projected_guidance_momentum"] == -1.0


def test_what_a_kind_of_guider_does_not_have_is_sent_as_it_is_called():
    """So that it is refused, by the name that stands on the node."""
    assert guided("cfg", layers="7", scale=2.0) == {"kind": "cfg", "layers": [7], "scale": 2.0}


GIVEN = {
    "start": 0.0,
    "stop": 0.75,
    "guidance_rescale": 0.25,
    "use_original_formulation": True,
    "scale": 3.0,
    "scale_start": 0.125,
    "scale_stop": 0.5,
    "layers": " 7,8  9",
    "momentum": -0.75,
    "norm_limit": 12.0,
    "eta": 0.5,
    "start_step": 3,
    "zero_init_steps": 2,
    "alpha": 6.0,
}


@pytest.mark.parametrize("kind", sorted(guider_params.KINDS))
def test_the_node_has_all_that_a_kind_of_guider_takes(kind):
    model = next(m for m in guider_params.GuiderParams.__subclasses__() if kind_of(m) == kind)
    own = {name for name in GIVEN if param_of(kind, name) in model.model_fields}
    sent = guided(kind, **{name: GIVEN[name] for name in own})
    assert sent.keys() == model.model_fields.keys()
    assert model.model_validate(dict(sent)).model_dump() == dict(sent)
    assert {input_of(kind, param) for param in sent} == {"kind", *own}


def kind_of(model: type[guider_params.GuiderParams]) -> str:
    (kind,) = get_args(model.model_fields["kind"].annotation)
    return str(kind)


@pytest.mark.parametrize("text", ["7-9", "a", "-1", "1.5", "1000", "²"])
def test_layers_are_numbers(text):
    with pytest.raises(InvalidRequest, match="are no numbers of layers") as refusal:
        guided("slg", layers=text)
    assert refusal.value.field == "layers"


# --- language -------------------------------------------------------------------------------------

WRITER = Model("smollm2")
MODELS_OWN = {"max_tokens": 0, "temperature": -1.0, "seed": 3}
PLAIN = {"top_p": 0.0, "top_k": -1, "min_p": -1.0, "repetition_penalty": 0.0}
NO_TEXTS = {"stop": "", "json_schema": ""}


def think(prompt: str | Text = "Say hello.", system: str = "", **inputs) -> Answer:
    return plans.thinker(WRITER, prompt, system, **{**MODELS_OWN, **inputs})


def said(chat: Chat) -> list[tuple[str, tuple]]:
    conversation = Conversation.from_frame(Frame.decode(chat.source.data))
    return [(message.role, message.parts) for message in conversation.messages]


def test_a_language_models_own_defaults_are_left_out():
    assert spec_of(think().text).params == {"prompt": "Say hello.", "seed": 3}
    nothing = plans.text_sampling(**PLAIN, **NO_TEXTS)
    assert think(sampling=nothing) == think()


def test_what_is_said_about_the_answer_is_sent():
    sampling = plans.text_sampling(
        top_p=0.9,
        top_k=0,
        min_p=0.0,
        repetition_penalty=1.2,
        stop="###\n\n two words \r\nEnd.\n",
        json_schema=' {"type": "object"}\n',
    )
    answer = think(system="Be brief.", max_tokens=7, temperature=0.0, sampling=sampling)
    assert spec_of(answer.text).params == {
        "prompt": "Say hello.",
        "system": "Be brief.",
        "max_tokens": 7,
        "temperature": 0.0,
        "seed": 3,
        "top_p": 0.9,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.2,
        "stop": ["###", " two words ", "End."],
        "json_schema": '{"type": "object"}',
    }


def test_the_outputs_of_one_answer_are_of_one_job():
    answer = think()
    assert [output.source.output for output in answer] == ["text", "hidden", "history"]
    assert len({output.source.job for output in answer}) == 1
    assert [len(output.source.recipe.jobs) for output in answer] == [1, 1, 1]


def test_media_are_uploads_of_the_stages_names():
    sound = {"waveform": torch.zeros(1, 1, 4), "sample_rate": 16000}
    spec = spec_of(think(image=torch.rand(2, 4, 4, 3), audio=sound).text)
    assert spec.inputs.keys() == {"images", "audio"}


def test_a_history_that_a_model_made_is_taken_where_it_is():
    first = think("My name is Ada.")
    second = think("What is my name?", history=first.history)
    assert spec_of(second.text).inputs["history"] == first.history.source.ref
    assert [job.params["prompt"] for job in second.text.source.recipe] == [
        "My name is Ada.",
        "What is my name?",
    ]


@pytest.mark.parametrize("name", ["prompt", "negative_prompt"])
def test_a_text_to_encode_is_the_same_job_before_it_is_written_and_after(name):
    texts = {"prompt": "a star", "negative_prompt": ""}
    ahead = think().text
    before = plans.text_encode(WRITER, **{**texts, name: ahead})
    after = plans.text_encode(WRITER, **{**texts, name: RemoteText("a red circle", ahead)})
    assert before == after
    texts.pop(name)
    assert spec_of(after).params == texts
    assert spec_of(after).inputs == {name: ahead.source.ref}


def test_a_prompt_that_another_answer_writes_is_the_same_job_before_and_after():
    ahead = think().text
    assert think(ahead) == think(RemoteText("Hello!", ahead))
    assert "prompt" not in spec_of(think(ahead).text).params


def test_a_text_is_told_to_another_runtime_in_words():
    elsewhere = Model("demo", "http://host:1")
    ahead = think().text
    encoded = plans.text_encode(elsewhere, RemoteText("a star", ahead))
    assert encoded == plans.text_encode(elsewhere, "a star")
    with pytest.raises(TypeError):
        plans.text_encode(elsewhere, ahead)


def test_a_written_text_is_a_text_until_something_else_is_made_of_it():
    text = RemoteText(" a star", think().text)
    assert text == " a star"
    assert {type(other) for other in (text.strip(), text + "!", f"{text}", text[1:])} == {str}
    twin = copy.deepcopy(text)
    assert (twin, twin.remote) == (text, text.remote)


@pytest.mark.parametrize(
    "use",
    [
        lambda text: think(system=text),
        lambda text: plans.text_sampling(**PLAIN, stop=text, json_schema=""),
        lambda text: plans.text_sampling(**PLAIN, stop="", json_schema=text),
        lambda text: plans.message(role="user", text=text),
        lambda text: plans.load_model("demo", text),
    ],
)
def test_nothing_else_can_be_planned_with_a_text_that_is_not_there(use):
    with pytest.raises((AttributeError, TypeError)):
        use(think().text)


def test_messages_make_a_conversation():
    first = plans.message(role="system", text="Be brief.")
    second = plans.message(role="user", text=RemoteText("Hi.", think().text), history=first)
    assert said(second) == [("system", ("Be brief.",)), ("user", ("Hi.",))]
    spec = spec_of(think("", history=second).text)
    assert spec.inputs == {"history": second.source.ref}


def test_a_message_says_its_media_first():
    picture = plans.message(role="user", text="What is this?", image=torch.zeros(2, 4, 4, 3))
    ((role, (one, two, text)),) = said(picture)
    assert (role, one.kind, two.kind, text) == ("user", "image", "image", "What is this?")


def test_a_message_must_say_something():
    with pytest.raises(InvalidRequest) as refusal:
        plans.message(role="user", text=" \n")
    assert refusal.value.field == "text"
    assert said(plans.message(role="user", text="", image=torch.zeros(1, 4, 4, 3)))


def test_a_message_after_an_answer_waits_for_its_words():
    with pytest.raises(InvalidRequest, match="still on the runtime"):
        plans.message(role="user", text="And?", history=think().history)


def test_strict_goes_to_a_language_model_too_which_will_say_no():
    answer = plans.thinker(plans.load_model("smollm2", strict=True), "Hi.", "", **MODELS_OWN)
    assert spec_of(answer.text).params["strict"] is True


# --- speech ---------------------------------------------------------------------------------------


def say(voice: str = "default", **inputs) -> Codes:
    return plans.talker(WRITER, think().hidden, voice, **{"max_seconds": 0.0, "seed": 5, **inputs})


def test_a_talkers_own_defaults_are_left_out():
    assert spec_of(say()).params == {"seed": 5}
    assert spec_of(say()).inputs == {"hidden": think().hidden.source.ref}
    assert spec_of(say("Default")).params == {"seed": 5}


def test_a_voice_is_the_same_in_any_letters():
    assert say("Chelsie") == say("chelsie") == say("CHELSIE")
    assert spec_of(say("Chelsie")).params["voice"] == "chelsie"


def test_what_is_said_about_the_speech_is_sent():
    sampling = plans.text_sampling(**{**PLAIN, "top_k": 1}, **NO_TEXTS)
    params = spec_of(say("ethan", max_seconds=2.5, sampling=sampling)).params
    assert params == {"voice": "ethan", "max_seconds": 2.5, "seed": 5, "top_k": 1}


def test_a_codecs_own_defaults_are_left_out():
    sound = plans.codec_decode(WRITER, say(), seed=1)
    assert spec_of(sound).params == {"seed": 1}
    given = plans.codec_decode(WRITER, say(), steps=4, guidance=0.0, seed=1)
    assert spec_of(given).params == {"steps": 4, "guidance": 0.0, "seed": 1}


def test_speech_that_is_played_is_the_same_job():
    assert plans.codec_decode(WRITER, say(), play=True) == plans.codec_decode(WRITER, say())


def test_a_sound_carries_its_whole_recipe():
    sound = plans.codec_decode(WRITER, say())
    assert [job.stage for job in sound.source.recipe] == ["thinker", "talker", "codec_decode"]


def test_to_speak_is_to_think_to_talk_and_to_decode():
    text = RemoteText("Say hello.", think("What to say?").text)
    spoken = plans.speak(WRITER, text, "Ethan", play=True, seed=5)
    answer = plans.thinker(WRITER, text, "", **{**MODELS_OWN, "seed": 5})
    codes = plans.talker(WRITER, answer.hidden, "ethan", max_seconds=0.0, seed=5)
    assert spoken.text == answer.text
    assert spoken.codes == codes
    assert spoken.sound == plans.codec_decode(WRITER, codes, seed=5)
