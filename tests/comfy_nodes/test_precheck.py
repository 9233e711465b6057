"""Refusing a prompt before it is queued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from omnistage.comfy_nodes.planner import plan
from omnistage.comfy_nodes.precheck import problems, unknown_model
from omnistage.comfy_nodes.problem import refusal
from omnistage.runtime.models.chat import Chat, ThinkerParams
from omnistage.runtime.models.families.qwen_image import QwenImage
from omnistage.runtime.models.qwen_omni import QwenOmni
from omnistage.runtime.protocol.messages import ModelInfo
from omnistage.tests.fakes import fake_family

from .prompts import (
    chat,
    codec_decode,
    control,
    film,
    graph,
    guider,
    load_image,
    lora,
    message,
    queued,
    sampling,
    silence,
    speak,
    speech,
    talker,
    thinker,
    vae_encode,
)

STAGES = {name: stage.info() for name, stage in QwenImage().graph({}).stages.items()}
MODELS = {"demo": ModelInfo("demo", "qwen-image", "r1", STAGES)}


class Config:
    """What of a language model's checkpoint its stages depend on."""

    folder = Path()
    overrides: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, **index: Any) -> None:
        self.index = index

    def read_json(self, _: str) -> dict[str, Any]:
        return {}


def language_model(**index: Any) -> dict[str, ModelInfo]:
    graph = Chat().stages(Config(**index))
    stages = {name: stage.info() for name, stage in graph.stages.items()}
    return {"smollm2": ModelInfo("smollm2", "chat", "r1", stages)}


QWEN25 = "Qwen2_5OmniForConditionalGeneration"
QWEN3 = "Qwen3OmniMoeForConditionalGeneration"


def speaking_model(architecture: str = QWEN25) -> dict[str, ModelInfo]:
    talker = {"speaker_id": {"Chelsie": 1, "Ethan": 2}, "accept_hidden_layer": 2}
    index = {"architectures": [architecture], "talker_config": talker}
    graph = QwenOmni().stages(Config(**index, audio_config={}))
    stages = {name: stage.info() for name, stage in graph.stages.items()}
    return {"smollm2": ModelInfo("smollm2", "qwen-omni", "r1", stages)}


def problems_of(made: dict[str, Any], models=MODELS, picture=None, target="5"):
    seen = None if picture is None else (picture, torch.zeros(picture.shape[:3]))
    planned = plan(queued(made, target), lambda _: seen, lambda _: silence())
    return list(problems(made, planned, models))


def found(**changes: dict[str, Any]):
    return [(p.node, p.input, p.message) for p in problems_of(graph(**changes))]


def test_a_good_prompt_has_no_problems():
    assert found() == []


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("width", 100, "a multiple of 16"),
        ("height", 8192, "at least 16, at most 2048, a multiple of 16"),
        ("count", 65, "at most 64"),
        ("steps", 1001, "at most 1000"),
        ("guidance", 100.5, "at most 100"),
        ("scheduler", "sigmoid", "allowed: default"),
    ],
)
def test_a_value_out_of_range_names_node_input_value_and_range(field, value, words):
    ((node, name, message),) = found(_3={field: value})
    assert (node, name) == ("3", field)
    assert f"{field} = {value!r} " in message
    assert words in message


def test_a_text_over_the_limit_is_refused_by_its_length():
    ((node, name, message),) = found(_2={"prompt": "x" * 20_001})
    assert (node, name) == ("2", "prompt")
    assert "at most 20000 characters" in message
    assert len(message) < 500


def test_a_parameter_the_model_does_not_know():
    poor = {"sample": {"properties": {"count": {}, "seed": {}}}}
    stage = STAGES["sample"].__class__(poor["sample"], {}, (), {})
    models = {"demo": ModelInfo("demo", "x", "r", {**STAGES, "sample": stage})}
    assert {p.input for p in problems_of(graph(), models)} == {"width", "height", "steps"}


def test_a_stage_the_model_does_not_have():
    stages = {name: stage for name, stage in STAGES.items() if name != "vae_decode"}
    models = {"demo": ModelInfo("demo", "x", "r", stages)}
    ((node, message),) = [(p.node, p.message) for p in problems_of(graph(), models)]
    assert node == "4"
    assert message.startswith("model 'demo' has no vae_decode; it has ")


def test_an_unknown_model_is_answered_with_the_known_ones():
    assert unknown_model("x", ["a", "b"]) == "model 'x' is not on this runtime; it has a, b"
    assert unknown_model("x", []).endswith("it has none")


def test_the_refusal_has_comfyuis_form():
    made = graph(_3={"width": 100})
    body = refusal(problems_of(made), made)
    assert body["error"]["type"] == "prompt_outputs_failed_validation"
    assert "width = 100" in body["error"]["details"]
    (error,) = body["node_errors"]["3"]["errors"]
    assert error["extra_info"] == {"input_name": "width"}
    assert body["node_errors"]["3"]["class_type"] == "OmniStageSample"


def test_a_value_from_a_literal_node_is_checked_too():
    made = graph(_3={"steps": ["9", 0]}) | {
        "9": {"class_type": "PrimitiveInt", "inputs": {"value": 2000}}
    }
    ((node, name),) = [(p.node, p.input) for p in problems_of(made)]
    assert (node, name) == ("3", "steps")


def test_a_size_that_comes_from_a_picture_is_left_to_the_runtime():
    """Which picture it is does not matter to the check, so neither does its size."""
    made = graph(_3={"latent": ["8", 0], "width": 0, "height": 100}) | {
        "7": {"class_type": "LoadImage", "inputs": {"image": "cat.png"}},
        "8": {"class_type": "OmniStageVAEEncode", "inputs": {"model": ["1", 0], "image": ["7", 0]}},
    }
    assert [p.input for p in problems_of(made, picture=torch.zeros(1, 1, 1, 3))] == ["height"]


# --- language -------------------------------------------------------------------------------------


def of_chat(models=None, **nodes: dict[str, Any]):
    """What is wrong with a prompt around Thinker "7"."""
    models = language_model() if models is None else models
    found = problems_of(chat(**nodes), models, torch.zeros(1, 1, 1, 3), target="9")
    return [(problem.node, problem.input, problem.message) for problem in found]


def test_a_good_question_has_no_problems():
    schema = '{"type": "object", "properties": {"colour": {"type": "string"}}}'
    words = sampling(top_p=0.5, top_k=0, stop="a\nb", json_schema=schema)
    assert of_chat(_8=words, _7=thinker(max_tokens=9, temperature=0.0, sampling=["8", 0])) == []


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [("max_tokens", 1_000_001, "at most 1000000"), ("temperature", 2.5, "at most 2")],
)
def test_the_thinkers_ranges_are_its_models(field, value, words):
    ((node, name, message),) = of_chat(_7=thinker(**{field: value}))
    assert (node, name) == ("7", field)
    assert f"{field} = {value!r} " in message
    assert words in message


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("top_p", 1.5, "more than 0, at most 1"),
        ("min_p", 1.5, "at most 1"),
        ("repetition_penalty", 2.5, "at most 2"),
        ("stop", "\n".join(map(str, range(17))), "at most 16"),
        ("json_schema", "x" * 100_001, "at most 100000 characters"),
    ],
)
def test_a_value_of_the_sampling_is_named_where_it_stands(field, value, words):
    node, name, message = of_chat(_8=sampling(**{field: value}), _7=thinker(sampling=["8", 0]))[0]
    assert (node, name) == ("8", field)
    assert words in message


@pytest.mark.parametrize("text", ['{"type": ', "{'type': 'object'}", "[1]", "[" * 50_000])
def test_what_is_no_json_schema_is_named_where_it_stands(text):
    words = sampling(json_schema=text)
    ((node, name, message),) = of_chat(_8=words, _7=thinker(sampling=["8", 0]))
    assert (node, name) == ("8", "json_schema")
    assert message.startswith("json_schema is no JSON schema: ")


@pytest.mark.parametrize("blank", ["", " \n"])
def test_an_empty_prompt_is_refused(blank):
    ((node, name, message),) = of_chat(_7=thinker(prompt=blank))
    assert (node, name) == ("7", "prompt")
    assert message.startswith("prompt is empty")


def test_an_empty_prompt_is_refused_after_an_answer():
    turns = {"_8": thinker(), "_7": thinker(prompt="", history=["8", 2])}
    assert [(node, name) for node, name, _ in of_chat(**turns)] == [("7", "prompt")]
    turns["_8"] = message(role="assistant")
    turns["_7"] = thinker(prompt="", history=["8", 0])
    assert [(node, name) for node, name, _ in of_chat(**turns)] == [("7", "prompt")]


def test_a_prompt_may_be_empty_where_something_else_is_asked():
    assert of_chat(_8=message(), _7=thinker(prompt="", history=["8", 0])) == []
    assert of_chat(_8=thinker(), _7=thinker(prompt=["8", 0])) == []
    seeing = language_model(vision_config={})
    picture = {"class_type": "LoadImage", "inputs": {"image": "cat.png"}}
    assert of_chat(seeing, _8=picture, _7=thinker(prompt="", image=["8", 0])) == []


@pytest.mark.parametrize("source", ["LoadImage", "EmptyImage"])
def test_a_picture_for_a_model_of_text_is_refused_whatever_it_is(source):
    picture = {"class_type": source, "inputs": {"image": "cat.png"}}
    assert of_chat(_8=picture, _7=thinker(image=["8", 0])) == [
        ("7", "image", "model 'smollm2' takes no image; it takes text")
    ]


def test_sound_for_a_model_of_pictures_is_refused():
    sound = {"class_type": "LoadAudio", "inputs": {"audio": "a.wav"}}
    found = of_chat(language_model(vision_config={}), _8=sound, _7=thinker(audio=["8", 0]))
    assert found == [("7", "audio", "model 'smollm2' takes no audio; it takes text, image")]


def test_a_picture_in_the_history_counts():
    picture = {"class_type": "LoadImage", "inputs": {"image": "cat.png"}}
    shown = {"_10": picture, "_8": message(image=["10", 0]), "_7": thinker(history=["8", 0])}
    assert of_chat(**shown) == [
        ("7", "history", "model 'smollm2' takes no image; it takes text"),
    ]
    assert of_chat(language_model(vision_config={}), **shown) == []


def test_a_thinker_nobody_needs_does_not_matter():
    assert of_chat(_8=thinker(image=["6", 0], prompt=""), _7=thinker()) == []


def test_a_model_that_cannot_write_is_refused_once():
    picture = {"class_type": "LoadImage", "inputs": {"image": "cat.png"}}
    made = chat(_8=picture, _7=thinker(image=["8", 0]))
    made["6"]["inputs"]["model"] = "demo"
    (problem,) = problems_of(made, picture=torch.zeros(1, 1, 1, 3), target="9")
    assert problem.message.startswith("model 'demo' has no thinker; it has text_encode, ")


def test_strict_is_named_at_the_model():
    made = chat(_7=thinker())
    made["6"]["inputs"]["strict"] = True
    (problem,) = problems_of(made, language_model(), target="9")
    assert (problem.node, problem.input) == ("6", "strict")
    assert problem.message == "strict means nothing to the thinker of model 'smollm2'"


def test_the_sampling_covers_the_models_parameters():
    """What the two nodes offer, and the parameters that are no business of a graph's."""
    offered = {*thinker()["inputs"], *sampling()["inputs"]} - {"model"}
    assert offered == ThinkerParams.model_fields.keys() - {"hidden_layers", "answer"}


# --- speech ---------------------------------------------------------------------------------------


def of_speech(models=None, **nodes: dict[str, Any]):
    """What is wrong with a prompt that saves the sound of node "12"."""
    models = speaking_model() if models is None else models
    found = problems_of(speech(**nodes), models, torch.zeros(1, 1, 1, 3), target="13")
    return [(problem.node, problem.input, problem.message) for problem in found]


def chain(**changes: dict[str, Any]) -> dict[str, Any]:
    """Thinker "7", Talker "8" and Codec Decode "12"."""
    return {"_7": thinker(), "_8": talker(), "_12": codec_decode(), **changes}


@pytest.mark.parametrize("architecture", [QWEN25, QWEN3])
@pytest.mark.parametrize("voice", ["default", "Default", "ethan", "Chelsie", "ETHAN"])
def test_a_voice_of_the_models_is_good_in_any_letters(architecture, voice):
    models = speaking_model(architecture)
    assert of_speech(models, **chain(_8=talker(voice=voice))) == []
    assert of_speech(models, _12=speak(voice=voice)) == []


@pytest.mark.parametrize(
    ("nodes", "node"),
    [(chain(_8=talker(voice="Nova")), "8"), ({"_12": speak(voice="Nova")}, "12")],
)
def test_a_voice_the_model_lacks_is_refused_with_those_it_has(nodes, node):
    words = "voice = 'nova' is not possible with model 'smollm2'; allowed: chelsie, ethan"
    assert of_speech(**nodes) == [(node, "voice", words)]


def test_a_voice_is_checked_although_what_it_is_to_say_is_not_known_yet():
    computed = {"class_type": "StringConcatenate", "inputs": {"string_a": "a", "string_b": "b"}}
    asked = thinker(prompt=["10", 0])
    nodes = chain(_10=computed, _7=asked, _8=talker(voice="nova"))
    assert [(node, name) for node, name, _ in of_speech(**nodes)] == [("8", "voice")]


def test_a_single_voice_is_a_list_too():
    models = speaking_model()
    schema = models["smollm2"].stages["talker"].params
    schema["properties"]["voice"] = {"const": "chelsie", "default": "chelsie"}
    ((_, _, message),) = of_speech(models, **chain(_8=talker(voice="ethan")))
    assert message.endswith("allowed: chelsie")
    assert of_speech(models, **chain(_8=talker(voice="chelsie"))) == []


@pytest.mark.parametrize(
    ("nodes", "node", "field", "words"),
    [
        (chain(_8=talker(max_seconds=601.0)), "8", "max_seconds", "more than 0, at most 600"),
        (chain(_12=codec_decode(steps=1)), "12", "steps", "at least 2, at most 100"),
        (chain(_12=codec_decode(guidance=11.0)), "12", "guidance", "at most 10"),
    ],
)
def test_the_ranges_of_speech_are_its_models(nodes, node, field, words):
    ((own, name, message),) = of_speech(**nodes)
    assert (own, name) == (node, field)
    assert words in message


@pytest.mark.parametrize(("field", "value"), [("steps", 10), ("guidance", 0.0)])
def test_a_codec_without_a_solver_takes_no_word_about_it(field, value):
    words = f"{field} means nothing to the codec_decode of model 'smollm2'"
    nodes = chain(_12=codec_decode(**{field: value}))
    assert of_speech(speaking_model(QWEN3), **nodes) == [("12", field, words)]
    assert of_speech(speaking_model(QWEN3), **chain()) == []


def test_what_a_sampling_says_of_words_alone_is_refused_for_speech():
    words = sampling(top_p=0.5, stop="a")
    ((node, name, message),) = of_speech(
        **chain(_10=words, _8=talker(sampling=["10", 0])),
    )
    assert (node, name) == ("10", "stop")
    assert message == "stop means nothing to the talker of model 'smollm2'"


@pytest.mark.parametrize("blank", ["", " \n"])
def test_nothing_said_is_refused_at_the_node_that_says_it(blank):
    ((node, name, message),) = of_speech(_12=speak(text=blank))
    assert (node, name) == ("12", "text")
    assert message.startswith("text is empty")
    assert of_speech(_7=thinker(), _12=speak(text=["7", 0])) == []


def test_a_model_that_cannot_speak_is_told_what_it_has():
    found = of_speech(language_model(), **chain())
    assert [(node, name) for node, name, _ in found] == [("8", "model"), ("12", "model")]
    assert found[0][2] == "model 'smollm2' has no talker; it has thinker"
    found = of_speech(language_model(), _12=speak())
    assert [(node, name) for node, name, _ in found] == [("12", "model")] * 2


def test_each_problem_is_said_once():
    made = speech(**chain())
    made["6"]["inputs"]["strict"] = True
    found = [(p.node, p.input) for p in problems_of(made, speaking_model(), target="13")]
    assert found == [("6", "strict")] * 3, "one for each stage"
    both = {"_7": speak(), "_12": speak(voice="nova", text=["7", 1])}
    assert [(node, name) for node, name, _ in of_speech(**both)] == [("12", "voice")]


# --- what some families of diffusion have, and others lack ----------------------------------------


@pytest.fixture
def families(tmp_path) -> dict[str, ModelInfo]:
    """A model that draws only, one that does all with pictures, and one of film."""
    return {name: entry.info() for name, entry in fake_family.models(tmp_path).items()}


def of_families(families, made, target="5"):
    found = problems_of(made, families, torch.zeros(1, 1, 1, 3), target)
    return [(problem.node, problem.input, problem.message) for problem in found]


def drawing(model: str, **changes: dict[str, Any]) -> dict[str, Any]:
    """Text to image of another model's."""
    return graph(**{**changes, "_1": {"model": model}})


SHOWN = {"7": load_image()}


@pytest.mark.parametrize("source", ["LoadImage", "EmptyImage"])
def test_a_picture_to_go_by_for_a_model_of_text_alone(families, source):
    made = drawing("plain", _2={"images": ["7", 0]})
    made["7"] = {"class_type": source, "inputs": {"image": "cat.png"}}
    words = (
        "model 'plain' takes no images: it is for models that edit or animate pictures; "
        "on this runtime: studio, film"
    )
    assert of_families(families, made) == [("2", "images", words)]
    made["1"]["inputs"]["model"] = "studio"
    assert of_families(families, made) == []


def test_more_pictures_than_a_model_takes(families):
    made = drawing("studio", _2={name: ["7", 0] for name in ("images", "images_2", "images_3")})
    ((node, name, words),) = of_families(families, made | SHOWN)
    assert (node, name) == ("2", "images_3")
    assert words.endswith("on this runtime: none")


def test_what_to_avoid_for_a_model_that_cannot_avoid(families):
    ((node, name, words),) = of_families(families, drawing("plain", _2={"negative_prompt": "red"}))
    assert (node, name) == ("2", "negative_prompt")
    assert words.endswith("is not possible with model 'plain'; it takes none")


def test_a_model_that_needs_a_picture_says_so(families):
    made = film()
    assert of_families(families, made) == [("2", "images", "model 'film' needs images")]
    made["2"]["inputs"]["images"] = ["7", 0]
    assert of_families(families, made | SHOWN) == []


def test_a_mask_for_a_model_that_cannot_inpaint(families):
    made = drawing("plain", _3={"latent": ["8", 0]}) | SHOWN | {"8": vae_encode(mask=["7", 1])}
    ((node, name, words),) = of_families(families, made)
    assert (node, name) == ("8", "mask")
    assert words.endswith("on this runtime: studio")
    made["1"]["inputs"]["model"] = "studio"
    assert of_families(families, made) == []


def test_frames_of_a_picture_are_refused_once(families):
    ((node, name, words),) = of_families(families, drawing("studio", _3={"frames": 9}))
    assert (node, name) == ("3", "frames")
    assert words.endswith("it is for models of film; on this runtime: film")
    assert of_families(families, drawing("studio", _3={"frames": 0})) == []
    computed = {"7": {"class_type": "PrimitiveInt", "inputs": {"value": 9}}}
    linked = drawing("studio", _3={"frames": ["7", 0]}) | computed
    assert [(node, name) for node, name, _ in of_families(families, linked)] == [("3", "frames")]


def test_a_latent_for_a_model_that_starts_from_noise(families):
    made = drawing("film", _2={"images": ["7", 0]}, _3={"latent": ["8", 0]}) | SHOWN
    made["8"] = vae_encode()
    found = [(node, name) for node, name, _ in of_families(families, made)]
    assert sorted(found) == [("3", "latent"), ("8", "model")]


def test_a_film_of_a_model_of_pictures(families):
    made = film()
    made["1"]["inputs"]["model"] = "studio"
    made["3"]["inputs"].pop("frames")
    words = "model 'studio' makes no films; VAE Decode gives its pictures"
    assert of_families(families, made) == [("4", "model", words)]


def test_the_pictures_of_a_film_can_be_decoded(families):
    made = drawing("film", _2={"images": ["7", 0]}, _3={"frames": 9}) | SHOWN
    assert of_families(families, made) == []


def test_an_adapter_that_there_is_not_is_named_with_those_there_are(families):
    made = drawing("studio", _3={"model": ["8", 0]}) | {"7": lora(), "8": lora("7", lora="oil")}
    words = "LoRA 'oil' is not on this runtime; it has ink, paint"
    assert of_families(families, made) == [("8", "lora", words)]
    made["8"]["inputs"] |= {"lora": "paint", "strength": 11.0}
    ((node, name, words),) = of_families(families, made)
    assert (node, name) == ("8", "strength")
    assert words.endswith("allowed: at least -10.0, at most 10.0")
    made["8"]["inputs"]["strength"] = -1.0
    assert of_families(families, made) == []


def test_a_model_without_adapters_is_refused_at_the_adapter(families):
    made = drawing("plain", _2={"model": ["7", 0]}, _3={"model": ["7", 0]}) | {"7": lora()}
    ((node, name, words),) = of_families(families, made)
    assert (node, name) == ("7", "lora")
    assert words.endswith("on this runtime: studio, film")


def test_a_language_model_takes_no_adapter():
    made = chat(_8=lora("6"), _7=thinker(model=["8", 0]))
    (problem,) = problems_of(made, language_model(), target="9")
    assert (problem.node, problem.input) == ("8", "lora")


def steered(families, model: str = "studio", **inputs: Any):
    made = drawing(model, _3={"conditioning": ["8", 0], "width": 0, "height": 0})
    return of_families(families, made | SHOWN | {"8": control(**inputs)})


def test_a_good_controlnet_has_no_problems(families):
    assert steered(families) == []
    assert steered(families, controlnet="depth", strength=10.0, start=0.2, end=0.3) == []


def test_a_controlnet_that_there_is_not_is_named_with_those_there_are(families):
    words = "ControlNet 'pose' is not on model 'studio'; it has lines, depth"
    assert steered(families, controlnet="pose") == [("8", "controlnet", words)]


def test_a_model_without_controlnets_says_so(families):
    families["studio"] = replace(families["studio"], controlnets=())
    ((_, name, words),) = steered(families)
    assert (name, words.split("; ")[1]) == ("controlnet", "it has none")


def test_a_model_that_no_controlnet_can_steer_is_refused_at_the_controlnet(families):
    found = steered(families, "plain")
    assert ("8", "controlnet") in [(node, name) for node, name, _ in found]
    assert all(words.endswith("on this runtime: studio") for _, _, words in found)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"strength": 11.0}, "strength"),
        ({"start": 1.0}, "start"),
        ({"end": 0.0}, "end"),
        ({"start": 0.5, "end": 0.5}, "end"),
    ],
)
def test_when_and_how_much_a_controlnet_counts_is_checked(families, given, field):
    assert field in [name for node, name, _ in steered(families, **given) if node == "8"]


def test_a_second_controlnet_is_refused_where_it_is(families):
    made = drawing("studio", _3={"conditioning": ["9", 0], "width": 0, "height": 0}) | SHOWN
    found = of_families(families, made | {"8": control(), "9": control("8")})
    assert [(node, name) for node, name, _ in found] == [("9", "conditioning")]


def guided(families, model: str = "studio", **inputs: Any):
    made = drawing(model, _3={"guider": ["7", 0]}) | {"7": guider(**inputs)}
    return of_families(families, made)


def test_a_good_guider_has_no_problems(families):
    assert guided(families) == []
    assert guided(families, kind="slg", layers="2, 3", scale=2.0, start=0.0) == []
    assert guided(families, kind="apg", momentum=-0.5, eta=0.5, norm_limit=20.0) == []


def test_a_kind_of_guider_that_a_model_does_not_have(families):
    ((node, name, words),) = guided(families, kind="mag")
    assert (node, name) == ("7", "kind")
    assert "kind = 'mag' is not possible with model 'studio'" in words
    assert words.endswith("allowed: cfg, cfg_zero_star, apg, slg")


def test_a_number_that_a_kind_does_not_take(families):
    ((node, name, words),) = guided(families, kind="cfg", zero_init_steps=2)
    assert (node, name) == ("7", "zero_init_steps")
    assert words.endswith("it takes guidance_rescale, use_original_formulation, start, stop")
    ((_, name, words),) = guided(families, kind="apg", layers="7")
    assert (name, words.split(";")[0]) == ("layers", "layers means nothing to guidance of kind apg")
    assert "momentum, norm_limit, eta" in words


def test_a_number_out_of_a_kinds_range(families):
    ((node, name, words),) = guided(families, kind="slg", layers="1", scale_start=1.0)
    assert (node, name) == ("7", "scale_start")
    assert words.endswith("allowed: at least 0.0, less than 1.0")


def test_a_kind_that_needs_layers(families):
    assert guided(families, kind="slg") == [("7", "layers", "guidance of kind slg needs layers")]


def test_layers_that_are_no_numbers(families):
    words = (
        "layers = 'all' are no numbers of layers. Allowed: whole numbers from 0 to 999, such as 7"
    )
    ((node, name, said),) = guided(families, kind="slg", layers="all")
    assert (node, name) == ("7", "layers")
    assert said.startswith(words)


def test_a_guider_for_a_model_whose_guidance_is_built_in(families):
    ((node, name, words),) = guided(families, "plain")
    assert (node, name) == ("3", "guider")
    assert words.endswith("on this runtime: studio, film")


def test_a_stage_is_missed_although_what_it_is_to_do_is_not_known_yet(families):
    made = drawing("film") | {"7": vae_encode(image="9"), "9": {"class_type": "X", "inputs": {}}}
    ((node, name, words),) = of_families(families, made, "7")
    assert (node, name) == ("7", "model")
    assert words == "model 'film' has no vae_encode; it has text_encode, sample, vae_decode"
