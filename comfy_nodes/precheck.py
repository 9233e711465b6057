"""Refuses a prompt whose values its model will refuse, before anything is queued.

Pure functions over planned jobs and the runtime's description of its models. The runtime
checks again and has the last word; here the point is to answer at once, at the right input.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..runtime.protocol.messages import ModelInfo
from ..runtime.protocol.recipe import Handle, JobSpec
from .values import Remote

_RANGES: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (operator.ge, "at least {}"),
    "exclusiveMinimum": (operator.gt, "more than {}"),
    "maximum": (operator.le, "at most {}"),
    "exclusiveMaximum": (operator.lt, "less than {}"),
    "multipleOf": (lambda value, unit: value % unit == 0, "a multiple of {}"),
    "maxLength": (operator.le, "at most {} characters"),
}
"""JSON schema's words: the test of a value (or length) against the limit, and how to say it."""


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
    graph: Mapping[str, Any], results: Mapping[str, Remote], models: Mapping[str, ModelInfo]
) -> Iterator[Problem]:
    """Values outside what the models' stages accept.

    Args:
        graph: the prompt's nodes by id.
        results: what they want, by node id; jobs of models not in `models` are skipped.
        models: the runtime's models by id.
    """
    for node, result in results.items():
        if isinstance(result.source, Handle):
            spec = result.source.recipe.jobs[-1]
            if spec.model in models:
                found = _of_job(node, spec, models[spec.model])
                yield from (p for p in found if not _is_derived(graph[node]["inputs"], p))


def _of_job(node: str, spec: JobSpec, model: ModelInfo) -> Iterator[Problem]:
    stage = model.stages.get(spec.stage)
    if stage is None:
        have = ", ".join(model.stages)
        yield Problem(node, "model", f"model {model.id!r} has no {spec.stage}; it has {have}")
        return
    fields = stage.params.get("properties", {})
    for name, value in spec.params.items():
        if name not in fields:
            yield Problem(node, name, f"{name} means nothing to model {model.id!r}")
        elif not _accepts(fields[name], value):
            allowed = allowed_words(fields[name])
            message = (
                f"{name} = {reprlib.repr(value)} is not possible with model {model.id!r}; {allowed}"
            )
            yield Problem(node, name, message, value)


def _is_derived(inputs: Mapping[str, Any], problem: Problem) -> bool:
    """Whether a node's function made up the value (a size from a latent, say)."""
    own = inputs.get(problem.input)
    return problem.value is not None and not isinstance(own, list) and own != problem.value


def _accepts(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value is in a JSON schema's range; other types are not judged here."""
    if "enum" in schema or "const" in schema:
        return value in _choices(schema)
    size = len(value) if isinstance(value, str) else value
    if not isinstance(size, int | float):
        return True
    return all(test(size, schema[word]) for word, (test, _) in _RANGES.items() if word in schema)


def allowed_words(schema: Mapping[str, Any]) -> str:
    """A JSON schema's range as words, e.g. "allowed: at least 16, at most 2048"."""
    if "enum" in schema or "const" in schema:
        return "allowed: " + ", ".join(map(str, _choices(schema)))
    words = [text.format(schema[word]) for word, (_, text) in _RANGES.items() if word in schema]
    return "allowed: " + ", ".join(words)


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    return list(schema.get("enum", [schema.get("const")]))


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
