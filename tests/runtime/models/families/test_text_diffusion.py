"""Text diffusion: what its stage takes, what it refuses, and whose code is run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diffusers import BlockRefinementScheduler, DDIMScheduler, EntropyBoundScheduler

from omnistage.comfy_nodes import plans
from omnistage.runtime.bench.pictures import make_engine
from omnistage.runtime.engine.core import EngineEvent, StageTask
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.protocol.conversation import Conversation, Media, Message
from omnistage.runtime.protocol.errors import InvalidRequest, ModelLoadFailed, OmniStageError
from omnistage.runtime.protocol.frames import Frame, Tensor
from omnistage.tests.fakes.tiny_text import (
    CANVAS,
    LONGEST,
    TEXT_CHECKPOINTS,
    diffusion_gemma,
    diffusion_gemma_alone,
    llada2,
    llada2_with_code,
)

Write = Callable[[Path], None]
NEUTRAL = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "stop": [],
    "json_schema": "",
    "hidden_layers": [],
    "answer": "",
}
"""Parameters of other Thinkers that these models have no use for."""
ASKED: Mapping[str, Any] = {
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "stop": ["end"],
    "json_schema": "{}",
    "hidden_layers": [-1],
    "answer": "yes",
}


def model(folder: Path, write: Write, **facts: Any) -> ModelEntry:
    write(folder)
    return ModelEntry("tiny", str(folder), **facts)


@pytest.fixture(params=TEXT_CHECKPOINTS)
def tiny(request: pytest.FixtureRequest, tmp_path: Path) -> ModelEntry:
    return model(tmp_path, TEXT_CHECKPOINTS[request.param])


@pytest.fixture
def copied(tmp_path_factory: pytest.TempPathFactory, monkeypatch: Any) -> Iterator[Path]:
    """The folder into which transformers copies code before it runs it."""
    folder = tmp_path_factory.mktemp("code")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    yield folder


def events_of(
    entry: ModelEntry, inputs: Mapping[str, Frame] | None = None, **params: Any
) -> list[EngineEvent]:
    """All that an engine says of a question."""
    checked = entry.graph["thinker"].check_params({"prompt": "red", **params})
    engine = make_engine(entry, profile=False)
    engine.submit(StageTask("a", entry.id, "thinker", checked, inputs or {}))
    events: list[EngineEvent] = []
    while engine.busy:
        events += engine.step()
    return events


def answer(entry: ModelEntry, inputs: Mapping[str, Frame] | None = None, **params: Any) -> Any:
    """What comes of a question: the output `text`'s facts.

    Raises:
        OmniStageError: why nothing does.
    """
    end = events_of(entry, inputs, **params)[-1]
    if end.error is not None:
        raise end.error
    return end.outputs["text"].header


def refusal(entry: ModelEntry, inputs: Mapping[str, Frame] | None = None, **params: Any) -> Any:
    with pytest.raises(OmniStageError) as caught:
        answer(entry, inputs, **params)
    return caught.value


def with_picture() -> dict[str, Frame]:
    picture = Media("image", Tensor.of(np.zeros((8, 8, 3), np.uint8)))
    return {"history": Conversation((Message("user", (picture, "red")),)).to_frame()}


def test_defaults_are_those_of_the_pipelines(tmp_path: Path) -> None:
    for name, write in TEXT_CHECKPOINTS.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name)
    llada, gemma = (
        ModelEntry(name, str(tmp_path / name)).graph["thinker"].check_params({})
        for name in ("llada2", "diffusion_gemma")
    )
    assert (llada["max_tokens"], llada["steps"], llada["temperature"]) == (2048, 32, 0.0)
    assert (llada["block_length"], llada["threshold"], llada["editing_threshold"]) == (8, 0.7, 0.5)
    assert (gemma["max_tokens"], gemma["steps"], gemma["temperature"]) == (256, 48, 0.0)
    assert gemma["confidence_threshold"] == 0.005


def test_a_checkpoint_may_say_otherwise(tmp_path: Path) -> None:
    entry = model(tmp_path, llada2)
    own = {"thinker": {"max_tokens": {"default": 64, "maximum": 128}}}
    (tmp_path / "omnistage.json").write_text(json.dumps(own))
    stage = entry.graph["thinker"]
    assert stage.check_params({})["max_tokens"] == 64
    with pytest.raises(InvalidRequest, match="at most 128"):
        stage.check_params({"max_tokens": 129})


def test_what_a_plain_thinker_node_asks_for_is_taken(tiny: ModelEntry) -> None:
    loaded = plans.load_model("tiny")
    untouched = plans.text_sampling(
        top_p=-1.0, top_k=-1, min_p=-1.0, repetition_penalty=-1.0, stop="", json_schema=""
    )
    asked = plans.thinker(
        loaded, "red", "", max_tokens=0, temperature=-1.0, seed=0, sampling=untouched
    )
    (spec,) = asked.text.source.recipe
    stage = tiny.graph["thinker"]
    stage.check_params(spec.params)
    assert {"text", "history"} <= stage.outputs.keys()


def test_what_asks_for_nothing_is_taken(tiny: ModelEntry) -> None:
    tiny.graph["thinker"].check_params({**NEUTRAL, "top_p": 1.0, "top_k": 0})


@pytest.mark.parametrize("name", ASKED)
def test_what_it_cannot_do_is_refused(tiny: ModelEntry, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        tiny.graph["thinker"].check_params({name: ASKED[name]})
    assert (caught.value.field, caught.value.value) == (name, ASKED[name])
    assert caught.value.allowed


@pytest.mark.parametrize(("name", "value"), [("top_p", 0.5), ("top_k", 5)])
def test_only_llada_chooses_among_likely_tokens(tmp_path: Path, name: str, value: Any) -> None:
    entry = model(tmp_path, llada2)
    question = {"max_tokens": 16, "steps": 4, "temperature": 1.0, "seed": 1}
    assert answer(entry, **question, **{name: value}) != answer(entry, **question)
    (tmp_path / "gemma").mkdir()
    with pytest.raises(InvalidRequest) as caught:
        model(tmp_path / "gemma", diffusion_gemma).graph["thinker"].check_params({name: value})
    assert caught.value.field == name


@pytest.mark.parametrize(
    "params", [{"block_length": 4}, {"threshold": 0.0}, {"editing_threshold": 0.0}, {"steps": 1}]
)
def test_lladas_own_parameters_count(tmp_path: Path, params: Mapping[str, Any]) -> None:
    entry = model(tmp_path, llada2)
    question = {"max_tokens": 16, "steps": 4, "temperature": 1.0, "editing_threshold": 0.01}
    assert answer(entry, **{**question, **params}) != answer(entry, **question)


def test_a_canvas_is_left_when_it_is_sure_enough(tmp_path: Path) -> None:
    entry = model(tmp_path, diffusion_gemma)
    sure = BlockRefinementScheduler(block_length=CANVAS, threshold=0.0)  # of all, at once
    sure.save_pretrained(tmp_path / "scheduler")

    def steps(confidence_threshold: float) -> int:
        question = {"max_tokens": CANVAS, "steps": 32, "confidence_threshold": confidence_threshold}
        return sum(event.kind == "progress" for event in events_of(entry, **question))

    assert steps(20.0) < steps(0.0) == 32


def test_pictures_are_for_gemma(tmp_path: Path) -> None:
    entry = model(tmp_path, llada2)
    assert "images" not in entry.graph["thinker"].inputs
    error = refusal(entry, with_picture(), max_tokens=8)
    assert (error.field, error.value, error.allowed) == ("image", 1, "at most 0")
    (tmp_path / "gemma").mkdir()
    gemma = model(tmp_path / "gemma", diffusion_gemma)
    assert set(gemma.graph["thinker"].inputs) == {"prompt", "history", "images"}
    seen = answer(gemma, with_picture(), max_tokens=8, steps=2, prompt="")
    assert seen["prompt_tokens"] > answer(gemma, max_tokens=8, steps=2)["prompt_tokens"]


def test_what_is_longer_than_the_model_reads_is_refused(tiny: ModelEntry) -> None:
    error = refusal(tiny, max_tokens=LONGEST)
    assert (error.field, error.value) == ("max_tokens", LONGEST)
    assert str(LONGEST) in error.allowed


def test_the_usual_length_leaves_room_for_the_prompt(tmp_path: Path) -> None:
    entry = model(tmp_path, llada2)
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace(str(LONGEST), "64"))
    assert entry.graph["thinker"].check_params({})["max_tokens"] == 32
    assert answer(entry, steps=1)["completion_tokens"] <= 32


def test_an_empty_question_is_refused(tiny: ModelEntry) -> None:
    assert refusal(tiny, prompt=" ").field == "prompt"


def test_transformers_layout_is_served_with_the_same_result(tmp_path: Path) -> None:
    texts = set()
    for name, write in (("parts", diffusion_gemma), ("alone", diffusion_gemma_alone)):
        (tmp_path / name).mkdir()
        entry = model(tmp_path / name, write)
        texts.add(answer(entry, max_tokens=16, steps=4)["text"])
    assert len(texts) == 1


def test_code_of_a_checkpoint_is_not_run_unless_that_is_allowed(
    tmp_path: Path, copied: Path
) -> None:
    entry = model(tmp_path, llada2_with_code)
    with pytest.raises(ModelLoadFailed, match=r"LLaDA2MoeModelLM.*modeling\.py") as caught:
        entry.info()
    assert "trust_remote_code = true" in caught.value.message
    assert caught.value.field == "trust_remote_code"
    assert not list(copied.iterdir())


def test_code_that_is_allowed_is_run(tmp_path: Path, copied: Path) -> None:
    entry = model(tmp_path, llada2_with_code, trust_remote_code=True)
    assert answer(entry, max_tokens=16, steps=2)["completion_tokens"] == 16
    assert list(copied.rglob("modeling.py"))


def test_a_change_of_code_is_another_revision(tmp_path: Path) -> None:
    entry = model(tmp_path, llada2_with_code, trust_remote_code=True)
    before = entry.checkpoint.revision
    (tmp_path / "modeling.py").write_text("changed")
    assert ModelEntry("tiny", str(tmp_path)).checkpoint.revision != before


def test_a_class_that_nobody_knows_is_said(tmp_path: Path) -> None:
    entry = model(tmp_path, llada2)
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace("Qwen3ForCausalLM", "NobodysModel"))
    assert "NobodysModel" in refusal(entry).message


def test_a_scheduler_must_be_the_pipelines(tmp_path: Path) -> None:
    entry = model(tmp_path, diffusion_gemma)
    question = {"max_tokens": 8, "steps": 4}
    before = answer(entry, **question)
    EntropyBoundScheduler().save_pretrained(tmp_path / "scheduler")
    assert answer(entry, **question) != before
    DDIMScheduler().save_pretrained(tmp_path / "scheduler")
    error = refusal(entry, **question)
    assert (error.field, error.value) == ("scheduler", "DDIMScheduler")
    assert "EntropyBoundScheduler" in error.allowed


@pytest.mark.parametrize("missing", ["chat_template", "mask"])
def test_a_tokenizer_must_have_what_the_pipeline_reads(tmp_path: Path, missing: str) -> None:
    entry = model(tmp_path, llada2)
    folder = tmp_path / "tokenizer"
    if missing == "mask":
        config = json.loads((folder / "tokenizer_config.json").read_text())
        del config["mask_token"]
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    else:
        (folder / "chat_template.jinja").unlink()
    assert refusal(entry).field == missing


def test_a_folder_without_its_model_is_said(tmp_path: Path) -> None:
    entry = model(tmp_path, llada2)
    (tmp_path / "model" / "config.json").unlink()
    with pytest.raises(ModelLoadFailed, match=r"model/config\.json"):
        entry.info()
