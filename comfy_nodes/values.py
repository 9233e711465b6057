"""What flows between OmniStage nodes: descriptions of results, never the results themselves.

Pure data, so that a prompt can be planned long before it runs; `sockets` gives these values
their ComfyUI types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..runtime.protocol.recipe import Blob, Handle, JobSpec, blob_digest, handle_of


class Adapter(NamedTuple):
    """A LoRA by name, how strongly it acts, and at which noise: all, high or low."""

    name: str
    strength: float
    noise: str = "all"


@dataclass(frozen=True, slots=True)
class Model:
    """A model by name, and where it is served.

    Attributes:
        address: the runtime's address; empty: the one in the settings.
        strict: whether its work never shares a forward pass.
        adapters: what changes its weights, for whoever has this value only.
    """

    id: str
    address: str = ""
    strict: bool = False
    adapters: tuple[Adapter, ...] = ()


@dataclass(frozen=True, slots=True)
class Upload:
    """Data that ComfyUI has and the runtime needs: an encoded frame."""

    digest: str
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, data: bytes) -> Upload:
        """Wrap an encoded frame."""
        return cls(blob_digest(data), data)

    @property
    def ref(self) -> Blob:
        """The reference to use as a job's input."""
        return Blob(self.digest)


Source = Handle | Upload


@dataclass(frozen=True, slots=True)
class Remote:
    """A result that is, or can be, on a runtime."""

    source: Source
    address: str

    def output(self, name: str) -> Remote:
        """Another output of the job that makes this."""
        assert isinstance(self.source, Handle)
        return replace(self, source=replace(self.source, output=name))

    def __str__(self) -> str:
        """A short form: ComfyUI prints a node's inputs when it fails."""
        return f"{type(self).__name__.lower()} on {self.address or 'the runtime'}"


@dataclass(frozen=True, slots=True)
class Control:
    """A picture that steers sampling, and the ControlNet that goes by it.

    Attributes:
        params: the ControlNet's name, how much it counts and when.
        size: width and height of the picture in pixels.
    """

    picture: Upload
    params: Mapping[str, Any]
    size: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Conditioning(Remote):
    """Encoded prompts, and perhaps a picture to keep to."""

    control: Control | None = None


@dataclass(frozen=True, slots=True)
class Latent(Remote):
    """Latents.

    Attributes:
        size: width and height of their pictures in pixels, where that is known ahead.
    """

    size: tuple[int, int] | None = None


class Images(Remote):
    """Pictures `[B, H, W, 3]`, float32, 0..1."""

    __slots__ = ()


class Film(Remote):
    """Pictures `[T, H, W, 3]`, uint8, with their rate; perhaps with sound."""

    __slots__ = ()


class Text(Remote):
    """What a model writes, known or not yet.

    It is no `str`: a plan that needs the words themselves cannot be made before they are there.
    """

    __slots__ = ()


class Hidden(Remote):
    """A language model's hidden states, with its text."""

    __slots__ = ()


class Codes(Remote):
    """Speech as a codec's tokens, with the voice that says it."""

    __slots__ = ()


class Sound(Remote):
    """Waveforms `[B, C, T]`, float32, with their rate."""

    __slots__ = ()


class Chat(Remote):
    """A conversation so far."""

    __slots__ = ()


class Answer(NamedTuple):
    """The outputs of one turn of a conversation; they belong to one job."""

    text: Text
    hidden: Hidden
    history: Chat


class Spoken(NamedTuple):
    """What becomes of a text that is said to a model: the outputs of Speak, and the codes."""

    sound: Sound
    text: Text
    codes: Codes


class RemoteText(str):
    """What a model wrote: for every node a text, and for ours also where it is.

    A node that is given it asks for the same job as a plan did that was made before the text
    was there. Whatever makes another text of it gets a plain `str`.
    """

    __slots__ = ("remote",)

    remote: Text

    def __new__(cls, text: str, remote: Text) -> RemoteText:
        """A text and where it is."""
        self = super().__new__(cls, text)
        self.remote = remote
        return self

    def __getnewargs__(self) -> tuple[str, Text]:  # type: ignore[override]  # one more than str's
        return str(self), self.remote


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a model is to choose its words: parameters by name, the model's own defaults left out."""

    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Guider:
    """How a model is to be guided: a kind, and its numbers; the kind's own defaults left out."""

    params: Mapping[str, Any]


_UNADAPTED = frozenset({"vae_encode", "vae_decode"})
"""Stages that adapters never change; every other one is told of them, and may refuse them."""


def job(
    model: Model, stage: str, output: str, params: Mapping[str, Any], **inputs: Source
) -> Handle:
    """One stage of a model, to be run on these inputs."""
    if model.strict:
        params = {**params, "strict": True}
    if model.adapters and stage not in _UNADAPTED:
        params = {**params, "loras": [adapter._asdict() for adapter in model.adapters]}
    spec = JobSpec.make(model.id, stage, params, {k: v.ref for k, v in inputs.items()})
    parents = [source for source in inputs.values() if isinstance(source, Handle)]
    handle = handle_of(spec, output, parents)
    uploads = {s.digest: s.data for s in inputs.values() if isinstance(s, Upload)}
    return Handle(handle.recipe, handle.job, handle.output, {**handle.blobs, **uploads})
