"""Refuses a prompt whose values its model will refuse, before anything is queued.

Pure functions over planned jobs and the runtime's description of its models. The runtime
checks again and has the last word; here the point is to answer at once, at the right input.
"""

from __future__ import annotations

import json
import operator
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from ..runtime.protocol.conversation import Conversation
from ..runtime.protocol.frames import Frame
from ..runtime.protocol.messages import ModelInfo, StageInfo
from ..runtime.protocol.recipe import Blob, Handle, JobSpec
from .planner import Plan, is_link
from .plans import DEFAULT

_RANGES: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (operator.ge, "at least {}"),
    "exclusiveMinimum": (operator.gt, "more than {}"),
    "maximum": (operator.le, "at most {}"),
    "exclusiveMaximum": (operator.lt, "less than {}"),
    "multipleOf": (lambda value, unit: value % unit == 0, "a multiple of {}"),
    "maxLength": (operator.le, "at most {} characters"),
    "maxItems": (operator.le, "at most {} of them"),
}
"""JSON schema's words: the test of a value (or length) against the limit, and how to say it."""

_MEDIA = {"image": "images", "audio": "audio", "video": "video"}
"""What a message can hold besides text, and the stage's input for it."""

_RENAMED = {"OmniStageSpeak": {"prompt": "text"}}
"""Inputs of nodes that have another name than the stage's parameter."""

_VOICED = ("OmniStageTalker", "OmniStageSpeak")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one input of one node."""

    node: str
    input: str
    message: str
    value: Any = None


def unknown_model(model: str, have: Iterable[str]) -> str:
    """Words for a model that a runtime does not serve."""
    return f"model {model!r} is not on this runtime; it has {', '.join(have) or 'none'}"


def problems(
    graph: Mapping[str, Any], planned: Plan, models: Mapping[str, ModelInfo]
) -> Iterator[Problem]:
    """Values outside what the models' stages accept.

    Args:
        graph: the prompt's nodes by id.
        planned: what they want of one runtime; jobs of models not in `models` are skipped.
        models: the runtime's models by id.
    """
    found: list[Problem] = []
    of_nodes = (_of_media(graph, planned, models), _of_voices(graph, planned, models))
    for problem in chain(*of_nodes, _of_jobs(planned, models)):
        placed = _placed(graph, problem)
        if placed is not None and placed not in found:
            found.append(placed)
            yield placed


def _of_jobs(planned: Plan, models: Mapping[str, ModelInfo]) -> Iterator[Problem]:
    """Problems of each node's own jobs: its last one, and those that no node before it has."""
    checked: set[str] = set()
    for node, result in planned.results.items():
        if isinstance(result.source, Handle):
            *earlier, last = result.source.recipe
            for spec in (*(job for job in earlier if job.id not in checked), last):
                checked.add(spec.id)
                if spec.model in models:
                    yield from _of_job(node, spec, models[spec.model])
                    if spec.stage == "thinker":
                        yield from _of_question(node, spec, result.source, models[spec.model])


def _of_media(
    graph: Mapping[str, Any], planned: Plan, models: Mapping[str, ModelInfo]
) -> Iterator[Problem]:
    """Media that a Thinker's model does not take, whatever they will be."""
    for node, inputs, model in _nodes_of(graph, planned, models, "OmniStageThinker"):
        given = [name for name in _MEDIA if name in inputs]
        yield from (Problem(node, name, words) for name, words in _untaken(given, model))


def _of_voices(
    graph: Mapping[str, Any], planned: Plan, models: Mapping[str, ModelInfo]
) -> Iterator[Problem]:
    """Voices that a model does not have, whatever they are to say."""
    for node, inputs, model in _nodes_of(graph, planned, models, *_VOICED):
        voice = inputs.get("voice")
        stage = model.stages.get("talker")
        if stage is not None and isinstance(voice, str) and voice.lower() != DEFAULT:
            yield from _of_value(node, "voice", voice.lower(), stage, model)


def _nodes_of(
    graph: Mapping[str, Any], planned: Plan, models: Mapping[str, ModelInfo], *kinds: str
) -> Iterator[tuple[str, Mapping[str, Any], ModelInfo]]:
    """The nodes of these kinds that will run, with their inputs and their model."""
    for node in sorted(planned.needed & graph.keys()):
        inputs = graph[node]["inputs"]
        if graph[node]["class_type"] in kinds and is_link(inputs["model"]):
            model = planned.models.get(inputs["model"][0])
            if model is not None and model.id in models:
                yield node, inputs, models[model.id]


def _of_job(node: str, spec: JobSpec, model: ModelInfo) -> Iterator[Problem]:
    stage = model.stages.get(spec.stage)
    if stage is None:
        have = ", ".join(model.stages)
        yield Problem(node, "model", f"model {model.id!r} has no {spec.stage}; it has {have}")
        return
    for name, value in spec.params.items():
        if name in stage.params.get("properties", {}):
            yield from _of_value(node, name, value, stage, model)
        else:
            words = f"{name} means nothing to the {spec.stage} of model {model.id!r}"
            yield Problem(node, name, words)


def _of_value(
    node: str, name: str, value: Any, stage: StageInfo, model: ModelInfo
) -> Iterator[Problem]:
    schema = stage.params["properties"][name]
    if not _accepts(schema, value):
        shown = f"{name} = {reprlib.repr(value)}"
        words = f"{shown} is not possible with model {model.id!r}; {allowed_words(schema)}"
        yield Problem(node, name, words, value)


def _of_question(node: str, spec: JobSpec, source: Handle, model: ModelInfo) -> Iterator[Problem]:
    """Whether there is something to answer, and the model takes what the history holds."""
    history = _history(spec, source)
    if history is not None:
        kinds = {media.kind for media in history.media()}
        for _, words in _untaken(sorted(kinds), model):
            yield Problem(node, "history", words)
    asked = history is not None and history.messages[-1].role == "user"
    said = spec.inputs.keys() - {"history"} or spec.params.get("prompt", "").strip()
    if not (said or asked):
        words = "prompt is empty, and there is no history that ends with the user"
        yield Problem(node, "prompt", words)
    if flaw := _flaw_of_json(spec.params.get("json_schema", "{}")):
        yield Problem(node, "json_schema", f"json_schema is no JSON schema: {flaw}")


def _history(spec: JobSpec, source: Handle) -> Conversation | None:
    """The history as it is uploaded; None if there is none, or it is on the runtime."""
    ref = spec.inputs.get("history")
    if not isinstance(ref, Blob):
        return None
    return Conversation.from_frame(Frame.decode(source.blobs[ref.digest]))


def _untaken(media: Iterable[str], model: ModelInfo) -> Iterator[tuple[str, str]]:
    """Media that a model's Thinker does not take, each with the words for it."""
    stage = model.stages.get("thinker")
    if stage is None:
        return  # said elsewhere
    have = ["text", *(name for name, input_ in _MEDIA.items() if input_ in stage.inputs)]
    for name in media:
        if name not in have:
            yield name, f"model {model.id!r} takes no {name}; it takes {', '.join(have)}"


def _flaw_of_json(text: str) -> str:
    """What keeps a text from being a JSON object; empty if nothing does."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)
    return "" if isinstance(found, dict) else "it must be an object, {...}"


def _placed(graph: Mapping[str, Any], problem: Problem) -> Problem | None:
    """A problem at the node whose input it is: its own, or one that is linked to it.

    None where the node's function made up the value: a size from a latent, say.
    """
    if name := _RENAMED.get(graph[problem.node]["class_type"], {}).get(problem.input):
        words = problem.message.replace(problem.input, name, 1)
        problem = replace(problem, input=name, message=words)
    linked = (v[0] for v in graph[problem.node]["inputs"].values() if is_link(v))
    for node in (problem.node, *linked):
        inputs = graph[node]["inputs"]
        if problem.input in inputs:
            own = inputs[problem.input]
            numbers = isinstance(own, int | float) and isinstance(problem.value, int | float)
            return None if numbers and own != problem.value else replace(problem, node=node)
    return problem


def _accepts(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value is in a JSON schema's range; other types are not judged here."""
    if choices := choices_of(schema):
        return value in choices
    size = len(value) if isinstance(value, str | list) else value
    if not isinstance(size, int | float):
        return True
    return all(test(size, schema[word]) for word, (test, _) in _RANGES.items() if word in schema)


def allowed_words(schema: Mapping[str, Any]) -> str:
    """A JSON schema's range as words, e.g. "allowed: at least 16, at most 2048"."""
    if choices := choices_of(schema):
        return "allowed: " + ", ".join(map(str, choices))
    words = [text.format(schema[word]) for word, (_, text) in _RANGES.items() if word in schema]
    return "allowed: " + ", ".join(words)


def choices_of(schema: Mapping[str, Any]) -> list[Any]:
    """What a JSON schema lists as possible; nothing: it lists nothing."""
    return list(schema.get("enum", [schema["const"]] if "const" in schema else []))


def refusal(found: Iterable[Problem], prompt: Mapping[str, Any]) -> dict[str, Any]:
    """The problems as the body with which ComfyUI itself refuses a prompt."""
    found = list(found)
    nodes: dict[str, Any] = {}
    for problem in found:
        entry = nodes.setdefault(
            problem.node,
            {
                "errors": [],
                "dependent_outputs": [],
                "class_type": prompt[problem.node]["class_type"],
            },
        )
        entry["errors"].append(
            {
                "type": "value_not_accepted",
                "message": problem.message,
                "details": problem.input,
                "extra_info": {"input_name": problem.input},
            }
        )
    details = "\n".join(f"{nodes[p.node]['class_type']} {p.node}: {p.message}" for p in found)
    error = {
        "type": "prompt_outputs_failed_validation",
        "message": "Prompt outputs failed validation",
        "details": details,
        "extra_info": {},
    }
    return {"error": error, "node_errors": nodes}
