"""Works out, from a prompt alone, which jobs it will ask of the runtime.

A pure function over the prompt that ComfyUI queues. A node that depends on something only its
execution can tell (a picture another node makes, say) is left out: it runs when it is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..runtime.protocol.errors import OmniStageError
from ..runtime.protocol.recipe import Handle
from .plans import PLANS
from .values import Film, Images, Model, Remote, Sound

if TYPE_CHECKING:
    import torch

ReadImage = Callable[[str], "tuple[torch.Tensor, torch.Tensor] | None"]
"""Reads a picture and its mask as ComfyUI's `LoadImage` would; None if it cannot."""

ReadAudio = Callable[[str], "Mapping[str, Any] | None"]
"""Reads a sound as ComfyUI's `LoadAudio` would; None if it cannot."""

LITERALS = frozenset(
    {
        "PrimitiveBoolean",
        "PrimitiveFloat",
        "PrimitiveInt",
        "PrimitiveString",
        "PrimitiveStringMultiline",
    }
)
"""ComfyUI's own nodes whose output is their input `value`."""


class Unknown(Exception):
    """A value that only the execution can tell."""


@dataclass(frozen=True, slots=True)
class QueuedPrompt:
    """A prompt that waits or runs.

    Attributes:
        graph: nodes by id, in ComfyUI's API format.
        targets: ids of the output nodes to execute; what none of them needs is not run.
        watched: whether a page is connected that would show previews.
    """

    id: str
    graph: Mapping[str, Any]
    targets: tuple[str, ...]
    watched: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a prompt will ask of its runtimes, by node id, upstream nodes first.

    Attributes:
        results: the first output of each node that has a job.
        needed: ids of all nodes that will run, planned or not.
    """

    models: dict[str, Model] = field(default_factory=dict)
    results: dict[str, Remote] = field(default_factory=dict)
    needed: set[str] = field(default_factory=set)

    @property
    def addresses(self) -> list[str]:
        """Addresses of the runtimes concerned."""
        models, results = self.models.values(), self.results.values()
        return sorted({m.address for m in models} | {r.address for r in results})

    def at(self, address: str) -> Plan:
        """The part of one runtime."""
        models = {node: m for node, m in self.models.items() if m.address == address}
        results = {node: r for node, r in self.results.items() if r.address == address}
        return Plan(models, results, self.needed)


def unreadable(_: str) -> None:
    """Reads nothing ahead."""


def plan(
    prompt: QueuedPrompt, read_image: ReadImage = unreadable, read_audio: ReadAudio = unreadable
) -> Plan:
    """Work out the runtime's part of a prompt."""
    graph = _Graph(prompt.graph, read_image, read_audio)
    for target in prompt.targets:
        graph.visit(target)
    return graph.plan


class _Graph:
    """One walk through a prompt; every node is looked at once."""

    def __init__(
        self, prompt: Mapping[str, Any], read_image: ReadImage, read_audio: ReadAudio
    ) -> None:
        self.plan = Plan()
        self._prompt = prompt
        self._read_image = read_image
        self._read_audio = read_audio
        self._values: dict[str, tuple[Any, ...]] = {}

    def visit(self, node_id: str) -> None:
        """Plan a node and everything it depends on."""
        if node_id in self.plan.needed:  # also ends a cycle
            return
        self.plan.needed.add(node_id)
        for value in self._inputs(node_id).values():
            if is_link(value):
                self.visit(value[0])
        try:
            value = self._evaluate(node_id)
        except Unknown:
            return
        outputs = value if isinstance(value, tuple) else (value,)
        self._values[node_id] = outputs
        if self._prompt[node_id]["class_type"] in PLANS:
            self._note(node_id, outputs[0])

    def _note(self, node_id: str, output: Any) -> None:
        """Put what one of our nodes gives into the plan."""
        if isinstance(output, Model):
            self.plan.models[node_id] = output
        elif isinstance(output, Remote) and isinstance(output.source, Handle):
            self.plan.results[node_id] = output

    def _evaluate(self, node_id: str) -> Any:
        """The value of a node's output, or a tuple of them.

        Raises:
            Unknown: only the execution can tell.
        """
        inputs = {name: self._resolve(value) for name, value in self._inputs(node_id).items()}
        try:
            kind = self._prompt[node_id]["class_type"]
            if kind in PLANS:
                return PLANS[kind](**inputs)
            if kind in LITERALS:
                return inputs["value"]
            found = self._read(kind, inputs)
        except (AttributeError, KeyError, OmniStageError, TypeError, ValueError) as error:
            raise Unknown from error  # malformed: ComfyUI or the node will say so in its own words
        if found is None:
            raise Unknown
        return found

    def _read(self, kind: str, inputs: Mapping[str, Any]) -> Any:
        """What a node that reads a file gives; None if that cannot be told."""
        if kind == "LoadImage":
            return self._read_image(inputs["image"])
        if kind == "LoadAudio":
            return self._read_audio(inputs["audio"])
        return None

    def _resolve(self, value: Any) -> Any:
        if not is_link(value):
            return value
        node_id, slot = value
        outputs = self._values.get(node_id, ())
        if not isinstance(slot, int) or not 0 <= slot < len(outputs):
            raise Unknown
        if isinstance(outputs[slot], Film | Images | Sound):  # known only once they are computed
            raise Unknown
        return outputs[slot]

    def _inputs(self, node_id: str) -> Mapping[str, Any]:
        node = self._prompt.get(node_id)
        inputs = node.get("inputs") if isinstance(node, Mapping) else None
        return inputs if isinstance(inputs, Mapping) else {}


def is_link(value: Any) -> bool:
    """Whether an input is linked to another node's output."""
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)
