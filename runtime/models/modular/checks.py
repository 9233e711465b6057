"""What the stages refuse before they run a block: the field, its value, and what is allowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from ...protocol.errors import InvalidRequest


def check_prompt(prompt: str) -> None:
    """Refuse an empty prompt.

    Raises:
        InvalidRequest: it says nothing.
    """
    if not prompt.strip():
        raise InvalidRequest(
            "This model needs a prompt: say what the picture shows.",
            field="prompt",
            value=prompt,
            allowed="some words",
            stage="text_encode",
        )


def check_length(field: str, text: str, tokenizer: Any, most: int) -> None:
    """Refuse a text that a tokenizer would cut.

    Raises:
        InvalidRequest: it has more than `most` tokens.
    """
    tokens = len(tokenizer(text=[text]).input_ids[0])
    if tokens > most:
        raise InvalidRequest(
            f"{field} has {tokens} tokens; this model reads at most {most}. "
            "Shorten it: nothing is cut in silence.",
            field=field,
            value=tokens,
            allowed=f"at most {most} tokens",
            stage="text_encode",
        )


def check_references(count: int, most: int) -> None:
    """Refuse more reference pictures than a model takes.

    Raises:
        InvalidRequest: there are more.
    """
    if count > most:
        raise InvalidRequest(
            f"{count} reference pictures; this model takes at most {most}.",
            field="images",
            value=count,
            allowed=f"at most {most}",
            stage="text_encode",
        )


def check_reference_size(name: str, pictures: torch.Tensor, least: int, longest: float) -> None:
    """Refuse a reference picture that the blocks would refuse later, in the middle of the work.

    Args:
        name: of the input.
        pictures: `[B, H, W, C]`.
        least: pixels that the shorter side must have.
        longest: how many times as long as the shorter side the longer one may be.

    Raises:
        InvalidRequest: they are too small, or too long.
    """
    height, width = pictures.shape[1:3]
    short, long = sorted((height, width))
    if short < least or long > longest * short:
        raise InvalidRequest(
            f"{name} is of {width}x{height} px; this model wants reference pictures of at least "
            f"{least} px a side, the longer side at most {longest:g} times the shorter.",
            field=name,
            value=f"{width}x{height}",
            allowed=f"at least {least} px a side, at most {longest:g} to 1",
            stage="text_encode",
        )


def check_can_see(missing: Collection[str]) -> None:
    """Refuse reference pictures where a checkpoint cannot encode them.

    Args:
        missing: what it lacks for that.

    Raises:
        InvalidRequest: it lacks something.
    """
    if missing:
        raise InvalidRequest(
            f"This checkpoint takes no reference pictures: it has no {', '.join(sorted(missing))}.",
            field="images",
            allowed="none",
            stage="sample",
        )


def check_channels(name: str, pictures: torch.Tensor, stage: str, *, transparent: bool) -> None:
    """Refuse grey and, mostly, transparent pictures: what is behind them is not ours to say.

    Args:
        name: of the input.
        pictures: `[B, H, W, C]`.
        stage: that takes them.
        transparent: whether four channels are fine, too.

    Raises:
        InvalidRequest: they have another number of channels.
    """
    channels = pictures.shape[-1]
    allowed = (3, 4) if transparent else (3,)
    if channels not in allowed:
        raise InvalidRequest(
            f"{name} has {channels} channels, and this model takes red, green and blue. "
            "Lay a transparent picture over a colour, or give a grey one three channels.",
            field=name,
            value=channels,
            allowed=" or ".join(map(str, allowed)),
            stage=stage,
        )


def check_sides(width: int, height: int, multiple: int) -> None:
    """Refuse a picture that would be cut.

    Raises:
        InvalidRequest: a side is no multiple of what the VAE needs.
    """
    if width % multiple or height % multiple:
        raise InvalidRequest(
            f"A picture of {width}x{height} px cannot be encoded: both sides must be "
            f"multiples of {multiple}. Scale or crop it first; nothing is cut in silence.",
            field="images",
            value=f"{width}x{height}",
            allowed=f"multiples of {multiple}",
            stage="vae_encode",
        )


def check_kept(have: tuple[int, int], given: tuple[int, int]) -> None:
    """Refuse a picture that was encoded at another size than its own.

    Raises:
        InvalidRequest: names the size that the model works at.
    """
    if have != given:
        raise InvalidRequest(
            f"This model works on a picture of {given[0]}x{given[1]} px at "
            f"{have[0]}x{have[1]} px. Scale it first, and its mask with it.",
            field="images",
            value=f"{given[0]}x{given[1]}",
            allowed=f"{have[0]}x{have[1]}",
            stage="vae_encode",
        )


def check_latent_size(have: tuple[int, int], asked: tuple[int, int]) -> None:
    """Refuse a latent of another size than is asked for.

    Raises:
        InvalidRequest: it is for another size.
    """
    if have != asked:
        raise InvalidRequest(
            f"The latent is for {have[0]}x{have[1]} px, "
            f"but {asked[0]}x{asked[1]} px were asked for.",
            field="latent",
            value=f"{have[0]}x{have[1]}",
            allowed=f"{asked[0]}x{asked[1]}",
            stage="sample",
        )


def check_control(named: bool, pictured: bool) -> None:
    """Refuse half a ControlNet.

    Raises:
        InvalidRequest: there is a name without a picture, or the other way round.
    """
    if named != pictured:
        raise InvalidRequest(
            "A ControlNet needs both: the parameter control, which names it, and the input "
            "control, the picture that it goes by.",
            field="control",
            allowed="both or neither",
            stage="sample",
        )


def check_control_size(pictures: torch.Tensor, params: Mapping[str, Any]) -> None:
    """Refuse what diffusers would stretch: the size is then not what the picture shows.

    Raises:
        InvalidRequest: it is not one picture of the size that is asked for.
    """
    rows, height, width = pictures.shape[:3]
    asked = (params["width"], params["height"])
    if (rows, width, height) != (1, *asked):
        raise InvalidRequest(
            f"control is of {rows} x {width}x{height} px; it must be one picture of "
            f"{asked[0]}x{asked[1]} px, the size that is asked for.",
            field="control",
            value=f"{rows} x {width}x{height}",
            allowed=f"1 x {asked[0]}x{asked[1]}",
            stage="sample",
        )
