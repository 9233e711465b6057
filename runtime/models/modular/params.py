"""What the stages of a diffusion family take: fields, ranges and words that all families share.

A family repeats a field to give it its own default, with the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from pydantic import Field, create_model, field_validator

from ..lora_params import LoRAList
from ..stage import Params
from .sizes import AUTO_PX

MAX_SEED = 2**64 - 1

_TEXT_LENGTH = 20_000


def side(default: int | None, *, multiple: int = 16, maximum: int = 2048) -> Any:
    """Width or height in pixels; a multiple, so that what is asked for is what is delivered."""
    return Field(default, ge=multiple, le=maximum, multiple_of=multiple, description="Pixels.")


def steps(default: int | None, words: str = "Denoising steps.") -> Any:
    """Denoising steps."""
    return Field(default, ge=1, le=1000, description=words)


def guidance(default: float | None, words: str = "Guidance scale; works above 1.") -> Any:
    """How strongly to follow the prompt."""
    return Field(default, ge=0.0, le=100.0, description=words)


def frames(default: int | None, *, per_latent: int, maximum: int) -> Any:
    """Frames of a film: one, and then a multiple of what one latent frame stands for."""
    return Field(
        default,
        ge=1,
        le=maximum,
        description=f"Frames: {per_latent} for each latent frame, and one.",
        json_schema_extra={"step": per_latent},
    )


def side_of_reference(*, multiple: int = 16, maximum: int = 2048) -> Any:
    """Width or height in pixels, which follow the first reference picture unless they are given."""
    return Field(
        AUTO_PX,
        ge=AUTO_PX,
        le=maximum,
        multiple_of=multiple,
        description="Pixels. 0: as the first reference picture's.",
    )


def one_film() -> Any:
    """How many films a request is for."""
    return Field(1, ge=1, le=1, description="Films: one a request.")


def whole_latents(per_latent: int) -> Any:
    """A validator of `frames` that refuses what is not delivered."""

    def check(value: int | None) -> int | None:
        if value is not None and (value - 1) % per_latent:
            raise ValueError(f"frames are one more than a multiple of {per_latent}")
        return value

    return field_validator("frames")(check)


def frames_of_chunks(chunk: int, per_latent: int) -> Any:
    """Frames of a film that is made in chunks of so many, less what makes no whole latent."""
    some = ", ".join(str(_frames_of(n, chunk, per_latent)) for n in range(1, 6))
    return Field(
        None,
        ge=chunk,
        le=1001,
        description=f"Frames, in whole chunks: {some} ...",
        json_schema_extra={"step": chunk - 1},
    )


def whole_chunks(chunk: int, per_latent: int) -> Any:
    """A validator of `frames` that refuses what is not delivered."""

    def check(value: int | None) -> int | None:
        if value is not None and value != _frames_of(-(-value // chunk), chunk, per_latent):
            raise ValueError(f"frames are those of whole chunks of {chunk}")
        return value

    return field_validator("frames")(check)


def _frames_of(chunks: int, chunk: int, per_latent: int) -> int:
    return (chunks * chunk - 1) // per_latent * per_latent + 1


def frames_per_second(default: float | None) -> Any:
    """Frame rate of a film."""
    return Field(default, gt=0.0, le=240.0, description="Frames per second of the film.")


def text(words: str) -> Any:
    """A prompt."""
    return Field("", description=words, max_length=_TEXT_LENGTH)


class StageParams(Params):
    """What every stage has."""

    strict: bool = Field(
        False, description="Never share a forward pass: bit-identical to diffusers, slower."
    )


class TextEncodeParams(StageParams):
    """What to draw, and what not to."""

    prompt: str = text("What to draw.")
    negative_prompt: str = text("What to avoid.")
    loras: LoRAList


class UnguidedTextParams(TextEncodeParams):
    """For models that take no negative prompt."""

    negative_prompt: str = Field(
        "", description="This model takes none: its guidance is built in.", max_length=0
    )


class NoiseParams(StageParams):
    """Everything that is drawn starts from noise."""

    count: int = Field(1, ge=1, le=64, description="Pictures; picture i uses seed + i.")
    scheduler: Literal["default"] = Field("default", description="Noise schedule.")
    denoise: float = Field(
        1.0, gt=0.0, le=1.0, description="Share of the schedule (with a latent)."
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="Seed of the noise.")
    loras: LoRAList


class SampleParams(NoiseParams):
    """One picture, or several that differ in seed only."""

    width: int = side(1024)
    height: int = side(1024)
    steps: int = steps(50)
    guidance: float = guidance(4.0)


class EditParams(SampleParams):
    """For models that change pictures: the size is the first one's, unless it is given."""

    width: int = side_of_reference()
    height: int = side_of_reference()


class FilmParams(SampleParams):
    """One film."""

    count: int = one_film()
    frames: int = frames(81, per_latent=4, maximum=257)
    _whole_latents = whole_latents(4)


class VAEEncodeParams(StageParams):
    """Pictures to latents."""

    seed: int = Field(0, ge=0, le=MAX_SEED, description="Seed, where the VAE draws its latents.")


class VAEDecodeParams(StageParams):
    """Latents to pictures."""


class FilmDecodeParams(VAEDecodeParams):
    """Latents to a film."""

    fps: float = frames_per_second(16.0)


def with_choices(params: type[Params], name: str, choices: Sequence[str]) -> type[Params]:
    """The parameters with other choices for a field, the first of them its default."""
    own = params.model_fields[name]
    kind: Any = Literal[tuple(choices)]  # pyright: ignore
    field = (kind, Field(choices[0], description=own.description))
    return cast(
        type[Params],
        create_model(params.__name__, __base__=params, **{name: field}),  # type: ignore[call-overload]
    )


def with_overrides(
    params: type[Params], overrides: Mapping[str, Mapping[str, Any]]
) -> type[Params]:
    """The parameters with a checkpoint's own defaults and limits.

    Args:
        params: the family's own.
        overrides: JSON-schema words by field, e.g. `{"width": {"default": 64, "maximum": 128}}`.
    """
    fields: dict[str, Any] = {}
    for name, words in overrides.items():
        own = params.model_fields[name]
        known = params.model_json_schema()["properties"][name]
        fields[name] = (
            own.annotation,
            Field(
                words.get("default", own.default),
                ge=words.get("minimum", known.get("minimum")),
                le=words.get("maximum", known.get("maximum")),
                multiple_of=known.get("multipleOf"),
                description=own.description,
                json_schema_extra=own.json_schema_extra,
            ),
        )
    return create_model(params.__name__, __base__=params, **fields)
