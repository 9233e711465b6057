"""Planning a prompt before it runs."""

from __future__ import annotations

import pytest
import torch

from omnistage.comfy_nodes import plans
from omnistage.comfy_nodes.planner import plan
from omnistage.comfy_nodes.values import Model

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
    silence,
    speak,
    speech,
    talker,
    thinker,
    vae_encode,
    written,
)


def planned(made, *targets, **readers):
    return plan(queued(made, *targets), **readers)


def test_the_plan_is_what_the_nodes_ask_for():
    result = planned(graph())
    model = Model("demo")
    inputs = graph()["3"]["inputs"]
    literals = {k: v for k, v in inputs.items() if not isinstance(v, list)}
    conditioning = plans.text_encode(model, "a red circle", "")
    latent = plans.sample(model, conditioning, **literals)
    assert result.models == {"1": model}
    assert result.results == {
        "2": conditioning,
        "3": latent,
        "4": plans.vae_decode(model, latent),
    }
    assert result.addresses == [""]


def test_upstream_nodes_come_first():
    assert list(planned(graph()).results) == ["2", "3", "4"]


def test_what_no_target_needs_is_not_planned():
    assert list(planned(graph(), "3").results) == ["2", "3"]
    assert planned(graph(), "9").results == {}


@pytest.mark.parametrize("kind", ["PrimitiveString", "PrimitiveStringMultiline"])
def test_literal_nodes_are_resolved(kind):
    made = graph(_2={"prompt": ["9", 0]}) | {
        "9": {"class_type": kind, "inputs": {"value": "a red circle"}}
    }
    assert planned(made).results == planned(graph()).results


def test_a_value_only_the_execution_knows_ends_the_plan():
    made = graph(_3={"seed": ["9", 0]}) | {"9": {"class_type": "RandomSeed", "inputs": {}}}
    assert list(planned(made).results) == ["2"]


def image_to_image():
    return graph(_3={"latent": ["8", 0]}) | {
        "7": {"class_type": "LoadImage", "inputs": {"image": "cat.png"}},
        "8": {"class_type": "OmniStageVAEEncode", "inputs": {"model": ["1", 0], "image": ["7", 0]}},
    }


def test_a_readable_picture_is_planned_with():
    picture = torch.rand(1, 64, 64, 3)
    seen = (picture, torch.zeros(1, 64, 64))
    result = planned(image_to_image(), read_image={"cat.png": seen}.get)
    assert list(result.results) == ["2", "8", "3", "4"]
    assert result.results["8"] == plans.vae_encode(Model("demo"), picture)


def test_an_unreadable_picture_is_left_to_the_execution():
    assert list(planned(image_to_image()).results) == ["2"]


def test_pixels_the_runtime_makes_are_not_known_ahead():
    made = image_to_image()
    made["8"]["inputs"]["image"] = ["4", 0]
    made["3"]["inputs"].pop("latent")
    assert list(planned(made, "8").results) == ["2", "3", "4"]


def test_an_output_that_a_node_does_not_have_is_no_other():
    made = image_to_image()
    made["8"]["inputs"]["image"] = ["7", 2]
    seen = (torch.rand(1, 64, 64, 3), torch.rand(1, 64, 64))
    assert "8" not in planned(made, read_image=lambda _: seen).results


def test_a_mask_is_planned_with_its_picture():
    picture, mask = torch.rand(1, 64, 64, 3), torch.rand(1, 64, 64)
    made = image_to_image()
    made["8"] = vae_encode(mask=["7", 1])
    result = planned(made, read_image={"cat.png": (picture, mask)}.get)
    assert list(result.results) == ["2", "8", "3", "4"]
    assert result.results["8"] == plans.vae_encode(Model("demo"), picture, mask)


def test_reference_pictures_are_planned_with():
    picture = torch.rand(1, 8, 8, 3)
    made = graph(_2={"images": ["7", 0]}) | {"7": load_image()}
    result = planned(made, read_image=lambda _: (picture, torch.zeros(1, 64, 64)))
    assert list(result.results) == ["2", "3", "4"]
    encoded = plans.text_encode(Model("demo"), "a red circle", "", images=picture)
    assert result.results["2"] == encoded
    assert planned(made).results == {}


def test_a_film_is_planned_and_its_pictures_are_not_known_ahead():
    assert list(planned(film()).results) == ["2", "3", "4"]
    for slot in (0, 1):
        behind = film() | {"7": vae_encode(image="4")}
        behind["7"]["inputs"]["image"] = ["4", slot]
        assert list(planned(behind, "7").results) == ["2", "3", "4"]


def test_adapters_are_part_of_every_job_behind_them():
    made = graph(_2={"model": ["8", 0]}, _3={"model": ["8", 0]}) | {
        "7": lora(),
        "8": lora("7", lora="paint", strength=0.5),
    }
    result = planned(made)
    adapted = plans.lora(plans.lora(Model("demo"), "ink", 1.0), "paint", 0.5)
    assert (result.models["7"], result.models["8"]) == (
        plans.lora(Model("demo"), "ink", 1.0),
        adapted,
    )
    loras = [
        {"name": "ink", "strength": 1.0, "noise": "all"},
        {"name": "paint", "strength": 0.5, "noise": "all"},
    ]
    recipe = result.results["4"].source.recipe
    assert [job.params.get("loras") for job in recipe] == [loras, loras, None]


def test_a_guider_is_part_of_the_job_it_guides():
    made = graph(_3={"guider": ["7", 0]}) | {"7": guider(kind="slg", layers="3", stop=0.5)}
    *_, job = planned(made).results["3"].source.recipe
    own = {"kind": "slg", "stop": 0.5, "skip_layer_guidance_layers": [3]}
    assert job.params["guider"] == own
    made["7"]["inputs"]["layers"] = "three"
    assert list(planned(made).results) == ["2"]


def test_a_picture_to_keep_to_is_part_of_the_job_it_steers():
    picture = torch.rand(1, 48, 32, 3)
    made = graph(_3={"conditioning": ["8", 0], "width": 0, "height": 0})
    made |= {"7": load_image(), "8": control(strength=0.5, end=0.7)}
    result = planned(made, read_image=lambda name: (picture, picture[..., 0]))
    *_, job = result.results["3"].source.recipe
    assert job.params["control"] == {"name": "lines", "strength": 0.5, "start": 0.0, "end": 0.7}
    assert (job.params["width"], job.params["height"]) == (32, 48)
    (encode,) = plans.vae_encode(Model("demo"), picture).source.recipe
    assert job.inputs["control"] == encode.inputs["images"]
    assert "3" not in planned(made).results  # a picture that only the execution can tell


def test_two_runtimes_in_one_prompt():
    made = graph() | {
        "6": {"class_type": "OmniStageLoadModel", "inputs": {"model": "x", "address": "http://b"}},
        "7": {"class_type": "OmniStageTextEncode", "inputs": {"model": ["6", 0], "prompt": "y"}},
    }
    assert planned(made, "5", "7").addresses == ["", "http://b"]


@pytest.mark.parametrize(
    "broken",
    [
        {"3": None},
        {"3": {"class_type": "OmniStageSample"}},
        {"3": {"inputs": {}}},
        {"3": {"class_type": ["x"], "inputs": {}}},
        {"3": {"class_type": "OmniStageSample", "inputs": {"unheard_of": 1}}},
        {"2": {"class_type": "OmniStageTextEncode", "inputs": {"model": ["3", 0]}}},
    ],
)
def test_a_malformed_prompt_is_left_to_comfyui(broken):
    assert "3" not in planned(graph() | broken).results


def test_a_cycle_ends():
    made = graph(_2={"prompt": ["4", 0]})
    assert planned(made).results == {}


# --- language -------------------------------------------------------------------------------------


def test_a_picture_of_a_text_that_is_still_to_be_written_is_planned_whole():
    result = planned(written())
    assert list(result.results) == ["7", "2", "3", "4"]
    stages = [job.stage for job in result.results["4"].source.recipe]
    assert stages == ["thinker", "text_encode", "sample", "vae_decode"]
    (text,) = result.results["2"].source.recipe.jobs[-1].inputs.values()
    assert text == result.results["7"].source.ref


def test_each_output_of_an_answer_is_found_by_its_place():
    made = chat(_8=thinker(prompt="Hi."), _7=thinker(history=["8", 2]))
    job = planned(made, "9").results["7"].source.recipe.jobs[-1]
    assert job.inputs["history"].output == "history"


@pytest.mark.parametrize("slot", [3, -1, 1.5, "0", None])
def test_an_output_that_is_not_there_is_left_to_comfyui(slot):
    made = chat(_8=thinker(), _7=thinker(history=["8", slot]))
    assert list(planned(made, "9").results) == ["8"]


def test_a_text_can_come_through_a_literal_node():
    made = written()
    made["2"]["inputs"]["prompt"] = ["10", 0]
    made["10"] = {"class_type": "PrimitiveString", "inputs": {"value": ["7", 0]}}
    assert planned(made).results == planned(written()).results


def test_a_text_that_another_node_changes_is_known_only_when_it_runs():
    made = written()
    made["2"]["inputs"]["prompt"] = ["10", 0]
    made["10"] = {"class_type": "StringConcatenate", "inputs": {"string_a": ["7", 0]}}
    assert list(planned(made).results) == ["7"]


def test_a_system_prompt_that_is_still_to_be_written_ends_the_plan():
    made = chat(_8=thinker(), _7=thinker(system=["8", 0]))
    assert list(planned(made, "9").results) == ["8"]


def test_messages_ahead_of_an_answer_are_planned_and_those_behind_one_are_not():
    ahead = chat(_8=message(), _7=thinker(history=["8", 0], prompt=""))
    assert list(planned(ahead, "9").results) == ["7"]
    behind = chat(
        _10=thinker(), _8=message(history=["10", 2]), _7=thinker(history=["8", 0], prompt="")
    )
    assert list(planned(behind, "9").results) == ["10"]


def test_an_upload_alone_asks_nothing_of_a_runtime():
    made = {"1": message(), "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}}}
    assert planned(made, "2").addresses == []


def test_a_plan_names_all_nodes_that_will_run():
    made = graph(_3={"seed": ["9", 0]}) | {"9": {"class_type": "RandomSeed", "inputs": {}}}
    made["unused"] = thinker()
    assert planned(made).needed == {"1", "2", "3", "4", "5", "9"}


def test_the_part_of_one_runtime():
    made = graph() | {
        "6": {"class_type": "OmniStageLoadModel", "inputs": {"model": "x", "address": "http://b"}},
        "7": {"class_type": "OmniStageTextEncode", "inputs": {"model": ["6", 0], "prompt": "y"}},
    }
    part = planned(made, "5", "7").at("http://b")
    assert (list(part.models), list(part.results)) == (["6"], ["7"])


# --- speech ---------------------------------------------------------------------------------------


def spoken(**changes):
    return speech(**{"_7": thinker(), "_8": talker(), "_12": codec_decode(), **changes})


@pytest.mark.parametrize("targets", [("13",), ("9", "13"), ("13", "9")])
def test_speech_is_planned_as_one_chain_whether_its_text_is_shown_or_not(targets):
    result = planned(spoken(), *targets)
    assert sorted(result.results) == ["12", "7", "8"]
    recipe = result.results["12"].source.recipe
    assert [job.stage for job in recipe] == ["thinker", "talker", "codec_decode"]
    assert recipe.jobs[0].id == result.results["7"].source.job


def test_a_sound_that_can_be_read_is_planned_with():
    heard = spoken(
        _7=thinker(audio=["10", 0]),
        _10={"class_type": "LoadAudio", "inputs": {"audio": "a.wav", "audioUI": ""}},
    )
    ahead = planned(heard, "13", read_audio={"a.wav": silence()}.get)
    assert sorted(ahead.results) == ["12", "7", "8"]
    assert ahead.results["7"].source.blobs
    assert planned(heard, "13").results == {}


def test_sound_the_runtime_makes_is_not_known_ahead():
    heard = spoken(_14=thinker(audio=["12", 0]), _15={"class_type": "PreviewAny", "inputs": {}})
    heard["15"]["inputs"]["source"] = ["14", 0]
    assert sorted(planned(heard, "15").results) == ["12", "7", "8"]


def test_what_is_spoken_can_be_read_ahead_of_its_sound():
    made = speech(_12=speak(), _7=thinker(prompt=["12", 1]))
    result = planned(made, "9", "13")
    assert sorted(result.results) == ["12", "7"]
    first, second = result.results["7"].source.recipe
    assert (first.stage, second.inputs["prompt"].output) == ("thinker", "text")


def test_a_played_sound_is_planned_as_any():
    played = spoken(_12=codec_decode(play=True))
    assert planned(played, "13").results == planned(spoken(), "13").results
    short = spoken()
    for name in ("steps", "guidance", "play", "seed"):
        del short["12"]["inputs"][name]
    assert "12" in planned(short, "13").results
