"""Refuses a prompt whose values its model will refuse, before anything is queued.

Pure functions over planned jobs and the runtime's description of its models. The runtime
checks again and has the last word; here the point is to answer at once, at the right input.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from ..runtime.protocol.conversation import Conversation
from ..runtime.protocol.frames import Frame
from ..runtime.protocol.messages import ModelInfo
from ..runtime.protocol.recipe import Blob, Handle, JobSpec
from .fit import Models, adapted, no_stage_words, out_of_range, unfit, unknown_words, untaken
from .guidance import input_of
from .planner import Plan, is_link
from .problem import Problem
from .schemas import Schema, choices_in, places_in, variant_of

_RENAMED = {"OmniStageSpeak": {"prompt": "text"}}
"""Inputs of nodes that have another name than the stage's parameter."""


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
    for problem in chain(unfit(graph, planned, models), _of_jobs(planned, models)):
        placed = _placed(graph, problem)
        if placed is not None and placed not in found:
            found.append(placed)
            yield placed


def _of_jobs(planned: Plan, models: Models) -> Iterator[Problem]:
    """Problems of each node's own jobs: its last one, and those that no node before it has."""
    checked: set[str] = set()
    for node, result in planned.results.items():
        if isinstance(result.source, Handle):
            *earlier, last = result.source.recipe
            for spec in (*(job for job in earlier if job.id not in checked), last):
                checked.add(spec.id)
                if spec.model in models:
                    yield from _of_job(node, spec, models)
                    if spec.stage == "thinker":
                        yield from _of_question(node, spec, result.source, models[spec.model])


def _of_job(node: str, spec: JobSpec, models: Models) -> Iterator[Problem]:
    model = models[spec.model]
    stage = model.stages.get(spec.stage)
    if stage is None:
        yield Problem(node, "model", no_stage_words(spec.stage, model))
        return
    for name, value in spec.params.items():
        if name in stage.params.get("properties", {}):
            yield from _of_value(node, name, value, stage.params, model)
        elif name != "loras" or adapted(model) is not None:  # else said at each adapter
            yield Problem(node, name, unknown_words(name, spec.stage, model, models))


def _of_value(
    node: str, name: str, value: Any, params: Schema, model: ModelInfo
) -> Iterator[Problem]:
    if name == "guider":
        yield from _of_guider(node, value, params, model)
    else:
        yield from out_of_range(node, name, value, places_in(params, name), model)


def _of_guider(
    node: str, guider: Mapping[str, Any], params: Schema, model: ModelInfo
) -> Iterator[Problem]:
    """A kind of guidance that the model does not have, and numbers that are not this kind's."""
    kind = guider["kind"]
    variant = variant_of(params, "guider", "kind", kind)
    if variant is None:
        kinds = {"enum": choices_in(params, "guider", "kind")}
        yield from out_of_range(node, "kind", kind, [kinds], model)
        return
    takes = {input_of(kind, param): param for param in variant["properties"]}
    for param, value in guider.items():
        name = input_of(kind, param)
        if name in takes:
            yield from out_of_range(node, name, value, places_in(variant, param), model)
        else:
            have = ", ".join(name for name in takes if name != "kind")
            words = f"{name} means nothing to guidance of kind {kind}; it takes {have}"
            yield Problem(node, name, words)
    for name, param in takes.items():
        if param in variant.get("required", ()) and param not in guider:
            yield Problem(node, name, f"guidance of kind {kind} needs {name}")


def _of_question(node: str, spec: JobSpec, source: Handle, model: ModelInfo) -> Iterator[Problem]:
    """Whether there is something to answer, and the model takes what the history holds."""
    history = _history(spec, source)
    if history is not None:
        kinds = {media.kind for media in history.media()}
        for _, words in untaken(sorted(kinds), model):
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
