"""Whether nodes fit their models: what can be told of a prompt whatever its values will be.

`precheck` looks at the jobs that can be planned; here, at the nodes themselves: which inputs are
linked, which model, voice and adapters they name.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..runtime.protocol.errors import InvalidRequest
from ..runtime.protocol.messages import ModelInfo, StageInfo
from .guidance import layer_numbers
from .planner import Plan, is_link
from .plans import DEFAULT
from .problem import Problem
from .schemas import Schema, accepts, allowed_words, places_in

Models = Mapping[str, ModelInfo]

_MEDIA = {"image": "images", "audio": "audio", "video": "video"}
"""What a message can hold besides text, and the stage's input for it."""

_VOICED = ("OmniStageTalker", "OmniStageSpeak")

_INPUTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "OmniStageTextEncode": ("text_encode", ("images", "images_2", "images_3")),
    "OmniStageSample": ("sample", ("latent", "guider", "frames")),
    "OmniStageVAEEncode": ("vae_encode", ("mask",)),
    "OmniStageVAEDecode": ("vae_decode", ()),
    "OmniStageVideoDecode": ("vae_decode", ()),
}
"""Nodes of diffusion: their stage, and those of their inputs that some models lack."""

_TAKERS = {
    "images": "models that edit or animate pictures",
    "images_2": "models that combine pictures",
    "images_3": "models that combine pictures",
    "latent": "models that can start from a picture",
    "mask": "models that can draw a part of a picture anew",
    "guider": "models whose guidance can be exchanged",
    "frames": "models of film",
    "fps": "models of film",
    "control": "models that a ControlNet can steer",
    "controlnet": "models that a ControlNet can steer",
    "lora": "models with adapters",
}
"""What kind of model has such an input."""


def unfit(graph: Mapping[str, Any], planned: Plan, models: Models) -> Iterator[Problem]:
    """What a prompt's nodes ask of models that cannot do it; see `precheck.problems`."""
    for check in (_media, _voices, _adapters, _controls, _layers, _inputs):
        yield from check(graph, planned, models)


def untaken(media: Iterable[str], model: ModelInfo) -> Iterator[tuple[str, str]]:
    """Media that a model's Thinker does not take, each with the words for it."""
    stage = model.stages.get("thinker")
    if stage is None:
        return  # said elsewhere
    have = ["text", *(name for name, input_ in _MEDIA.items() if input_ in stage.inputs)]
    for name in media:
        if name not in have:
            yield name, f"model {model.id!r} takes no {name}; it takes {', '.join(have)}"


def no_stage_words(stage: str, model: ModelInfo) -> str:
    """Words for a stage that a model does not have."""
    return f"model {model.id!r} has no {stage}; it has {', '.join(model.stages)}"


def unknown_words(name: str, stage: str, model: ModelInfo, models: Models) -> str:
    """Words for an input or a parameter that a model's stage does not have."""
    if name not in _TAKERS:
        return f"{name} means nothing to the {stage} of model {model.id!r}"
    takers = [m.id for m in models.values() if stage in m.stages and takes(m.stages[stage], name)]
    return _untaken_words(name, model, takers)


def out_of_range(
    node: str, name: str, value: Any, schemas: Sequence[Schema], model: ModelInfo
) -> Iterator[Problem]:
    """A value that none of the schemas accepts; one that is linked is not judged."""
    if schemas and not is_link(value) and not any(accepts(schema, value) for schema in schemas):
        shown = f"{name} = {reprlib.repr(value)}"
        allowed = allowed_words(schemas[0])
        words = f"{shown} is not possible with model {model.id!r}; {allowed}"
        yield Problem(node, name, words, value)


def takes(stage: StageInfo, name: str) -> bool:
    """Whether a stage has such an input or parameter."""
    return name in stage.inputs or name in stage.params.get("properties", {})


def adapted(model: ModelInfo) -> StageInfo | None:
    """The first stage of a model that takes adapters, if it has any."""
    return next((stage for stage in model.stages.values() if takes(stage, "loras")), None)


def _media(graph: Mapping[str, Any], planned: Plan, models: Models) -> Iterator[Problem]:
    """Media that a Thinker's model does not take, whatever they will be."""
    for node, inputs, model in _nodes_of(graph, planned, models, "OmniStageThinker"):
        given = [name for name in _MEDIA if name in inputs]
        yield from (Problem(node, name, words) for name, words in untaken(given, model))


def _voices(graph: Mapping[str, Any], planned: Plan, models: Models) -> Iterator[Problem]:
    """Voices that a model does not have, whatever they are to say."""
    for node, inputs, model in _nodes_of(graph, planned, models, *_VOICED):
        voice = inputs.get("voice")
        stage = model.stages.get("talker")
        if stage is not None and isinstance(voice, str) and voice.lower() != DEFAULT:
            schema = stage.params["properties"]["voice"]
            yield from out_of_range(node, "voice", voice.lower(), [schema], model)


def _adapters(graph: Mapping[str, Any], planned: Plan, models: Models) -> Iterator[Problem]:
    """Adapters that there are not, or that a model does not take."""
    for node, inputs, model in _nodes_of(graph, planned, models, "OmniStageLoRA"):
        stage = adapted(model)
        if stage is None:
            takers = [m.id for m in models.values() if adapted(m) is not None]
            yield Problem(node, "lora", _untaken_words("lora", model, takers))
            continue
        lora = inputs["lora"]
        if not is_link(lora) and lora not in model.loras:
            have = ", ".join(model.loras) or "none"
            yield Problem(node, "lora", f"LoRA {lora!r} is not on this runtime; it has {have}")
        schemas = places_in(stage.params, "loras", "strength")
        yield from out_of_range(node, "strength", inputs["strength"], schemas, model)


def _controls(graph: Mapping[str, Any], planned: Plan, models: Models) -> Iterator[Problem]:
    """ControlNets that there are not, that a model does not take, or that are one too many."""
    for node, inputs, model in _nodes_of(graph, planned, models, "OmniStageControl"):
        if not _is_steered(model):
            takers = [m.id for m in models.values() if _is_steered(m)]
            yield Problem(node, "controlnet", _untaken_words("controlnet", model, takers))
            continue
        name = inputs["controlnet"]
        if not is_link(name) and name not in model.controlnets:
            have = ", ".join(model.controlnets) or "none"
            words = f"ControlNet {name!r} is not on model {model.id!r}; it has {have}"
            yield Problem(node, "controlnet", words)
        for field in ("strength", "start", "end"):
            schemas = places_in(model.stages["sample"].params, "control", field)
            yield from out_of_range(node, field, inputs[field], schemas, model)
        start, end = inputs["start"], inputs["end"]
        if not is_link(start) and not is_link(end) and start >= end:
            yield Problem(node, "end", f"end = {end} must be more than start = {start}", end)
        before = inputs["conditioning"][0] if is_link(inputs["conditioning"]) else ""
        if graph.get(before, {}).get("class_type") == "OmniStageControl":
            words = "conditioning has a ControlNet already; there can be one"
            yield Problem(node, "conditioning", words)


def _is_steered(model: ModelInfo) -> bool:
    return "sample" in model.stages and takes(model.stages["sample"], "control")


def _layers(graph: Mapping[str, Any], planned: Plan, models: Models) -> Iterator[Problem]:
    """Layers of a guider that cannot be read: what it guides cannot be planned."""
    for _, inputs, _ in _nodes_of(graph, planned, models, "OmniStageSample"):
        guider = inputs["guider"][0] if is_link(inputs.get("guider")) else ""
        layers = graph.get(guider, {}).get("inputs", {}).get("layers")
        if isinstance(layers, str):
            try:
                layer_numbers(layers)
            except InvalidRequest as error:
                yield Problem(guider, "layers", f"{error.message} Allowed: {error.allowed}.")


def _inputs(graph: Mapping[str, Any], planned: Plan, models: Models) -> Iterator[Problem]:
    """Stages and inputs that a model does not have, and inputs that it cannot do without."""
    for node, inputs, model in _nodes_of(graph, planned, models, *_INPUTS):
        kind = graph[node]["class_type"]
        name, own = _INPUTS[kind]
        if name not in model.stages:
            yield Problem(node, "model", no_stage_words(name, model))
            continue
        stage = model.stages[name]
        if kind == "OmniStageVideoDecode" and "video" not in stage.outputs:
            words = f"model {model.id!r} makes no films; VAE Decode gives its pictures"
            yield Problem(node, "model", words)
        for field in own:
            if _is_given(inputs.get(field)) and not takes(stage, field):
                yield Problem(node, field, unknown_words(field, name, model, models))
            if field in stage.inputs.keys() - {*stage.optional, *inputs}:
                yield Problem(node, field, f"model {model.id!r} needs {field}")


def _is_given(value: Any) -> bool:
    """Whether a socket is linked, or a number is not left to the model."""
    return is_link(value) or (isinstance(value, int | float) and value > 0)


def _untaken_words(name: str, model: ModelInfo, takers: Iterable[str]) -> str:
    here = ", ".join(takers) or "none"
    return f"model {model.id!r} takes no {name}: it is for {_TAKERS[name]}; on this runtime: {here}"


def _nodes_of(
    graph: Mapping[str, Any], planned: Plan, models: Models, *kinds: str
) -> Iterator[tuple[str, Mapping[str, Any], ModelInfo]]:
    """The nodes of these kinds that will run, with their inputs and their model."""
    for node in sorted(planned.needed & graph.keys()):
        inputs = graph[node]["inputs"]
        if graph[node]["class_type"] in kinds and is_link(inputs["model"]):
            model = planned.models.get(inputs["model"][0])
            if model is not None and model.id in models:
                yield node, inputs, models[model.id]
