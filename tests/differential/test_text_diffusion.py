"""Text that is denoised: alone, together, staggered, and beside neighbours that fail or stop.

The reference is diffusers' own pipeline, called directly. The words of the tiny models tell their
tokens, so that equal texts are equal tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from omnistage.runtime.bench.pictures import make_engine
from omnistage.runtime.engine.core import EngineEvent, StageTask
from omnistage.runtime.engine.diffusion.engine import DiffusionEngine
from omnistage.runtime.engine.diffusion.residency import HOST, Residency
from omnistage.runtime.engine.diffusion.settings import EngineSettings
from omnistage.runtime.models.catalogue import ModelEntry
from omnistage.runtime.models.program import LoadedModel
from omnistage.runtime.protocol.conversation import Conversation
from omnistage.runtime.protocol.frames import Frame, Tensor
from omnistage.tests.fakes.tiny_text import BEYOND, TEXT_CHECKPOINTS


@dataclass(frozen=True)
class Question:
    """One request for an answer; `arrive` is the engine step at which it comes."""

    prompt: str
    params: Mapping[str, Any] = field(default_factory=dict)
    picture: np.ndarray[Any, Any] | None = None
    arrive: int = 0
    model: str = "tiny"


@dataclass
class Answer:
    """What came of a question; `told` is what was streamed of it."""

    end: EngineEvent | None = None
    told: str = ""
    steps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def facts(self) -> Mapping[str, Any]:
        assert self.end is not None
        assert self.end.kind == "done", self.end.error
        return self.end.outputs["text"].header


QUESTIONS = (
    Question("a red circle", {"max_tokens": 24, "steps": 4, "seed": 1}),
    Question("blue", {"max_tokens": 24, "steps": 4, "seed": 2, "temperature": 1.0}),
    Question("a red square a blue circle", {"max_tokens": 16, "steps": 3, "temperature": 0.7}),
    Question("blue", {"max_tokens": 32, "steps": 5, "seed": 3, "temperature": 1.0}),
)
BAD = Question(f"blue {BEYOND}", {"max_tokens": 24, "steps": 4})


@pytest.fixture(scope="module", params=TEXT_CHECKPOINTS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelEntry:
    folder = tmp_path_factory.mktemp(request.param)
    TEXT_CHECKPOINTS[request.param](folder)
    return ModelEntry("tiny", str(folder))


@pytest.fixture(scope="module")
def reference(model: ModelEntry) -> Sequence[tuple[str, int]]:
    pipeline = pipeline_of(model)
    return [directly(pipeline, question) for question in QUESTIONS]


def pipeline_of(model: ModelEntry) -> Any:
    """diffusers' own pipeline with its own modules."""
    folder = model.checkpoint.folder
    index = json.loads((folder / "model_index.json").read_text())
    parts = {
        name: getattr(diffusers if entry[0] == "diffusers" else transformers, entry[1])
        for name, entry in index.items()
        if isinstance(entry, list)
    }
    made = {name: cls.from_pretrained(folder / name) for name, cls in parts.items()}
    pipeline = getattr(diffusers, index["_class_name"])(**made)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def directly(pipeline: Any, question: Question) -> tuple[str, int]:
    """The text of a question, and how many tokens it is."""
    params = question.params
    content: Any = question.prompt
    if question.picture is not None:
        pictures = [{"type": "image", "image": Image.fromarray(p)} for p in question.picture]
        content = [*pictures, {"type": "text", "text": question.prompt}]
    made = pipeline(
        messages=[{"role": "user", "content": content}],
        gen_length=params["max_tokens"],
        num_inference_steps=params["steps"],
        temperature=params.get("temperature", 0.0),
        generator=torch.Generator().manual_seed(params.get("seed", 0)),
    )
    ids = made.sequences[0].tolist()
    end = ids.index(pipeline.eos_token_id) + 1 if pipeline.eos_token_id in ids else len(ids)
    return made.texts[0], end


def ask(
    model: ModelEntry,
    questions: Sequence[Question],
    *,
    stop: Mapping[int, int] | None = None,
    engine: DiffusionEngine | None = None,
    **params: Any,
) -> list[Answer]:
    """Ask an engine everything; `stop` has questions to cancel, and after how many steps."""
    engine = engine or make_engine(model, profile=False)
    answers = [Answer() for _ in questions]
    waiting = sorted(range(len(questions)), key=lambda i: questions[i].arrive)
    step = 0
    while waiting or engine.busy:
        while waiting and questions[waiting[0]].arrive <= step:
            engine.submit(task_of(model, waiting[0], questions[waiting[0]], params))
            del waiting[0]
        for event in engine.step():
            answer = answers[int(event.task)]
            if event.kind == "text":
                answer.told += event.text
            elif event.kind == "progress":
                answer.steps.append((event.step, event.total))
                if event.step == (stop or {}).get(int(event.task)):
                    engine.cancel(event.task)
            elif event.kind in ("done", "failed", "cancelled"):
                answer.end = event
        engine.check_integrity()
        step += 1
    return answers


def task_of(model: ModelEntry, i: int, question: Question, params: Mapping[str, Any]) -> StageTask:
    stage = model.graph["thinker"]
    checked = stage.check_params({"prompt": question.prompt, **question.params, **params})
    inputs = {}
    if question.picture is not None:
        pixels = Tensor.of(question.picture.astype(np.float32) / 255)
        inputs["images"] = Frame({"kind": "images"}, {"images": pixels})
    stage.check_inputs(dict.fromkeys(inputs, "images"))
    return StageTask(str(i), question.model, "thinker", checked, inputs)


def assert_same(answers: Sequence[Answer], reference: Sequence[tuple[str, int]]) -> None:
    got = [(answer.facts["text"], answer.facts["completion_tokens"]) for answer in answers]
    assert got == list(reference)


@pytest.mark.parametrize("strict", [False, True])
def test_alone_they_are_diffusers_own(
    model: ModelEntry, reference: Sequence[tuple[str, int]], strict: bool
) -> None:
    answers = [ask(model, [question], strict=strict)[0] for question in QUESTIONS]
    assert_same(answers, reference)


@pytest.mark.parametrize("strict", [False, True])
def test_together_they_are_the_same(
    model: ModelEntry, reference: Sequence[tuple[str, int]], strict: bool
) -> None:
    engine = make_engine(model, profile=False)
    assert_same(ask(model, QUESTIONS, engine=engine, strict=strict), reference)
    shared = engine.stats()["denoise_requests"] > engine.stats()["denoise_forwards"]
    assert shared == (not strict and model.checkpoint.family.name == "llada2")


def test_staggered_they_are_the_same(
    model: ModelEntry, reference: Sequence[tuple[str, int]]
) -> None:
    late = [replace(question, arrive=5 * i) for i, question in enumerate(QUESTIONS)]
    assert_same(ask(model, late), reference)


def test_a_failing_neighbour_changes_nothing(
    model: ModelEntry, reference: Sequence[tuple[str, int]]
) -> None:
    *answers, bad = ask(model, [*QUESTIONS, BAD])
    assert bad.end is not None
    assert bad.end.kind == "failed"
    assert_same(answers, reference)


def test_a_stopped_neighbour_changes_nothing(
    model: ModelEntry, reference: Sequence[tuple[str, int]]
) -> None:
    *answers, stopped = ask(model, [*QUESTIONS, QUESTIONS[0]], stop={len(QUESTIONS): 2})
    assert stopped.end is not None
    assert stopped.end.kind == "cancelled"
    assert_same(answers, reference)


def test_finished_blocks_are_told_before_the_end(model: ModelEntry) -> None:
    (answer,) = ask(model, QUESTIONS[:1])
    text = answer.facts["text"]
    assert answer.told
    assert text.startswith(answer.told)
    assert len(answer.told.split()) >= len(text.split()) - 8, "all but the last block"


def test_steps_are_counted(model: ModelEntry) -> None:
    (answer,) = ask(model, QUESTIONS[:1])
    steps, totals = zip(*answer.steps, strict=True)
    assert list(steps) == list(range(1, len(steps) + 1))
    assert len(set(totals)) == 1
    assert totals[0] // 2 < steps[-1] <= totals[0]


def test_weights_that_come_layer_by_layer_are_the_same(
    model: ModelEntry, reference: Sequence[tuple[str, int]]
) -> None:
    assert_same(ask(replace(model, offload="group"), QUESTIONS), reference)


def test_weights_that_went_come_back(
    model: ModelEntry, reference: Sequence[tuple[str, int]]
) -> None:
    """There is room for one of two models."""
    room_bytes = loaded_bytes(model) * 3 // 2
    twins = [model, replace(model, id="twin")]
    engine = DiffusionEngine(
        {twin.id: partial(opened, twin) for twin in twins},
        EngineSettings(profile=False),
        residency=Residency(HOST, room_bytes),
    )
    for twin in (*twins, model):
        question = replace(QUESTIONS[0], model=twin.id)
        assert_same(ask(model, [question], engine=engine), reference[:1])
    assert engine.stats()["evictions"] == 2


def loaded_bytes(model: ModelEntry) -> int:
    engine = make_engine(model, profile=False)
    ask(model, QUESTIONS[:1], engine=engine)
    return int(engine.stats()["resident_bytes"])


def opened(model: ModelEntry) -> LoadedModel:
    checkpoint = model.checkpoint
    return checkpoint.family.load(checkpoint, dtype=model.dtype, device=model.device)


def test_the_seed_decides(model: ModelEntry) -> None:
    question = replace(QUESTIONS[1], params={**QUESTIONS[1].params, "seed": 7})
    same, other, again = ask(model, [QUESTIONS[1], question, QUESTIONS[1]])
    assert same.facts == again.facts
    assert same.facts["text"] != other.facts["text"]


def test_no_more_is_written_than_was_asked_for(
    model: ModelEntry, reference: Sequence[tuple[str, int]]
) -> None:
    shorter = replace(QUESTIONS[0], params={**QUESTIONS[0].params, "max_tokens": 20})
    (answer,) = ask(model, [shorter])
    assert answer.facts["completion_tokens"] == 20
    assert answer.facts["finish_reason"] == "length"
    if model.checkpoint.family.name == "diffusion-gemma":  # whole canvases, cut
        assert reference[0][0].startswith(answer.facts["text"])


def test_the_conversation_goes_on(model: ModelEntry) -> None:
    (answer,) = ask(model, QUESTIONS[:1])
    assert answer.end is not None
    history = Conversation.from_frame(answer.end.outputs["history"])
    assert [m.role for m in history.messages] == ["user", "assistant"]
    assert history.messages[-1].text == answer.facts["text"]


@pytest.mark.parametrize("together", [False, True])
def test_pictures_are_what_diffusers_makes_of_them(tmp_path: Path, together: bool) -> None:
    TEXT_CHECKPOINTS["diffusion_gemma"](tmp_path)
    model = ModelEntry("tiny", str(tmp_path))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 1, 24, 16, 3), np.uint8)
    seen = [replace(QUESTIONS[0], picture=picture) for picture in pixels]
    questions = [QUESTIONS[0], *seen]
    pipeline = pipeline_of(model)
    reference = [directly(pipeline, question) for question in questions]
    assert len(set(reference)) == 3
    runs = [questions] if together else [[question] for question in questions]
    assert_same([answer for run in runs for answer in ask(model, run)], reference)
