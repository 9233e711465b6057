"""Stages of a model and the graph they form; knows nothing of how a stage is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from ..protocol.errors import InvalidRequest
from ..protocol.messages import StageInfo

Kind = Literal[
    "conditioning", "latent", "images", "audio", "video", "text", "chat", "hidden", "codes"
]
"""What travels along an edge of the graph.

`chat` is a conversation so far; `hidden` a language model's hidden states with its text; `codes`
speech as a codec's tokens.
"""

UPLOADS: Final[frozenset[Kind]] = frozenset({"images", "latent", "audio", "video", "chat", "text"})
"""What a client can bring from outside."""

PORTABLE: Final[frozenset[Kind]] = frozenset({"images", "audio", "video", "text", "chat"})
"""What goes from any model to any other; the rest is a family's own."""

EngineKind = Literal["diffusion", "ar"]


class Params(BaseModel):
    """Base of every stage's parameters: ranges are checked, unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def with_defaults(params: type[Params], defaults: Mapping[str, Any]) -> type[Params]:
    """The parameters with other defaults for some of them; ranges stay as they are."""
    fields: dict[str, Any] = {}
    for name, value in defaults.items():
        own = copy(params.model_fields[name])
        own.default, own.default_factory = value, None
        fields[name] = (own.annotation, own)
    return create_model(params.__name__, __base__=params, **fields)


def with_names(
    schema: Mapping[str, Any], params: type[Params], names: Sequence[str]
) -> Mapping[str, Any]:
    """A stage's JSON schema, where all possible `name`s of its objects `params` are listed."""
    if not names or params.__name__ not in schema.get("$defs", {}):
        return schema
    listed = deepcopy(dict(schema))
    listed["$defs"][params.__name__]["properties"]["name"]["enum"] = list(names)
    return listed


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its parameters, and its typed inputs and outputs.

    Attributes:
        optional: names of inputs that may be left out.
        engines: which engine cores can run it.
        streams: outputs that are also told in parts, while the stage runs.
        follows: inputs that can be taken in such parts, so that the stage need not wait for
            the end of the one before it.
    """

    name: str
    params: type[Params]
    inputs: Mapping[str, Kind] = field(default_factory=dict)
    outputs: Mapping[str, Kind] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    engines: tuple[EngineKind, ...] = ("diffusion",)
    streams: frozenset[str] = frozenset()
    follows: frozenset[str] = frozenset()

    def check_params(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters with defaults filled in.

        Raises:
            InvalidRequest: names the first wrong field, its value, and what is allowed.
        """
        try:
            return self.params.model_validate(dict(given)).model_dump()
        except ValidationError as error:
            raise self._refusal(error, given) from error

    def check_inputs(self, given: Mapping[str, Kind]) -> None:
        """Check that the required inputs are there, and each is of the right kind.

        Raises:
            InvalidRequest: an input is missing, unknown, or of another kind.
        """
        for name, kind in given.items():
            if name not in self.inputs:
                raise InvalidRequest(
                    f"Stage {self.name} has no input {name!r}.",
                    field=name,
                    allowed=", ".join(self.inputs) or "no inputs",
                    stage=self.name,
                )
            if kind != self.inputs[name]:
                raise InvalidRequest(
                    f"Input {name!r} of stage {self.name} takes {self.inputs[name]}, not {kind}.",
                    field=name,
                    value=kind,
                    allowed=self.inputs[name],
                    stage=self.name,
                )
        for name in self.inputs:
            if name not in given and name not in self.optional:
                raise InvalidRequest(
                    f"Stage {self.name} needs the input {name!r}.", field=name, stage=self.name
                )

    def info(self) -> StageInfo:
        """The stage as clients see it."""
        return StageInfo(
            params=self.params.model_json_schema(),
            inputs=dict(self.inputs),
            optional=tuple(sorted(self.optional)),
            outputs=dict(self.outputs),
        )

    def _refusal(self, error: ValidationError, given: Mapping[str, Any]) -> InvalidRequest:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else self.name
        value = given.get(name)
        shown = repr(value) if isinstance(value, float) and not math.isfinite(value) else value
        allowed = self._allowed(name)
        inner = f"{first['loc'][-1]}: " if len(first["loc"]) > 1 else ""
        reason = f"{inner}{first['msg'][0].lower()}{first['msg'][1:]}"
        message = f"{name} = {value!r} is refused: {reason}."
        if first["type"] == "extra_forbidden" and not inner:
            message = f"Stage {self.name} has no parameter {name!r}."
            allowed = ", ".join(self.params.model_fields)
        elif allowed:
            message += f" Allowed: {allowed}."
        return InvalidRequest(message, field=name, value=shown, allowed=allowed, stage=self.name)

    def _allowed(self, name: str) -> str | None:
        """The field's range in words, from its JSON schema."""
        schema = self.params.model_json_schema()["properties"].get(name)
        if schema is None:
            return None
        choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
        if choices:
            return ", ".join(map(str, choices))
        words = [str(schema["type"])] if "type" in schema else []
        for key, text in _RANGE_WORDS.items():
            if key in schema:
                words.append(f"{text} {schema[key]}")
        return ", ".join(words) or None


_RANGE_WORDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "multipleOf": "a multiple of",
    "minLength": "characters at least",
    "maxLength": "characters at most",
    "maxItems": "entries at most",
}


@dataclass(frozen=True, slots=True)
class StageGraph:
    """The stages of a model by name; which may feed which follows from their kinds."""

    stages: Mapping[str, Stage]

    @classmethod
    def of(cls, *stages: Stage) -> StageGraph:
        """Build a graph.

        Raises:
            ValueError: two stages have one name, or an input has a kind no stage produces
                and no client can upload.
        """
        graph = {stage.name: stage for stage in stages}
        if len(graph) != len(stages):
            raise ValueError("two stages have the same name")
        made = {kind for stage in stages for kind in stage.outputs.values()} | UPLOADS
        for stage in stages:
            unknown = set(stage.inputs.values()) - made
            if unknown:
                raise ValueError(f"no stage produces {unknown} for {stage.name}")
        return cls(graph)

    def __getitem__(self, name: str) -> Stage:
        """The stage of that name.

        Raises:
            InvalidRequest: the model has no such stage.
        """
        try:
            return self.stages[name]
        except KeyError:
            raise InvalidRequest(
                f"The model has no stage {name!r}.",
                field="stage",
                value=name,
                allowed=", ".join(self.stages),
            ) from None
