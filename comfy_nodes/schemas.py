"""JSON schemas of stages' parameters: what they list, what they accept, and words for it.

The runtime describes its models with them; nothing here knows a model or a node.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

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


def accepts(schema: Schema, value: Any) -> bool:
    """Whether a value is in a schema's range; other types are not judged here."""
    if choices := choices_of(schema):
        return value in choices
    size = len(value) if isinstance(value, str | list) else value
    if not isinstance(size, int | float):
        return True
    return all(test(size, schema[word]) for word, (test, _) in _RANGES.items() if word in schema)


def allowed_words(schema: Schema) -> str:
    """A schema's range as words, e.g. "allowed: at least 16, at most 2048"."""
    if choices := choices_of(schema):
        return "allowed: " + ", ".join(map(str, choices))
    if schema.get("maxLength") == 0:
        return "it takes none"
    words = [text.format(schema[word]) for word, (_, text) in _RANGES.items() if word in schema]
    return "allowed: " + ", ".join(words)


def choices_of(schema: Schema) -> list[Any]:
    """What a schema lists as possible; nothing: it lists nothing."""
    return list(schema.get("enum", [schema["const"]] if "const" in schema else []))


def places_in(params: Schema, *path: str) -> list[Schema]:
    """The schemas that speak of a place inside a stage's parameters; empty: no such place.

    Args:
        params: the stage's parameters.
        path: a field, then fields of the objects (or of the items of the list) in it.
    """
    places: list[Schema] = [params]
    for name in path:
        objects = [found for place in places for found in _objects(place, params)]
        fields = [found["properties"][name] for found in objects if name in found["properties"]]
        places = [part for field in fields for part in _parts(field, params)]
    return places


def choices_in(params: Schema, *path: str) -> list[Any]:
    """What is possible at a place inside a stage's parameters, in order and each once."""
    choices = [choice for place in places_in(params, *path) for choice in choices_of(place)]
    return list(dict.fromkeys(choices))


def variant_of(params: Schema, field: str, key: str, value: Any) -> Schema | None:
    """The one of a field's possible objects whose `key` has this value; None if none has it."""
    for place in places_in(params, field):
        whole = {**place, "$defs": params.get("$defs", {})}
        if value in choices_in(whole, key):
            return whole
    return None


def _objects(schema: Schema, params: Schema) -> Iterator[Schema]:
    """The objects that a schema speaks of, be they in a list or one of several."""
    for part in _parts(schema, params):
        if "properties" in part:
            yield part
        if "items" in part:
            yield from _objects(part["items"], params)


def _parts(schema: Schema, params: Schema) -> Iterator[Schema]:
    """A schema's alternatives, references followed."""
    if "$ref" in schema:
        yield from _parts(params["$defs"][schema["$ref"].rsplit("/", 1)[-1]], params)
    elif alternatives := schema.get("oneOf", schema.get("anyOf")):
        for alternative in alternatives:
            yield from _parts(alternative, params)
    else:
        yield schema
