"""Conversations with language models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...runtime.protocol.conversation import Conversation, Message, check_role
from ...runtime.protocol.errors import InvalidRequest
from ...runtime.protocol.frames import Frame
from ..media import audio_to_frame, images_to_frame, message_media, video_to_frame
from ..values import Answer, Chat, Hidden, Model, Sampling, Text, Upload, job
from .inputs import Words, given, texts, upload

if TYPE_CHECKING:
    import torch
    from comfy_api.input import VideoInput


def thinker(  # noqa: PLR0913 - a node's inputs are its interface
    model: Model,
    prompt: Words,
    system: str,
    *,
    max_tokens: int,
    temperature: float,
    seed: int,
    image: torch.Tensor | None = None,
    audio: Mapping[str, Any] | None = None,
    video: VideoInput | None = None,
    history: Chat | None = None,
    sampling: Sampling | None = None,
) -> Answer:
    """Have a language model answer, after all that the history says."""
    params, inputs = texts(model, prompt=prompt)
    params |= given(
        system=system or None,
        max_tokens=max_tokens or None,
        temperature=temperature if temperature >= 0 else None,
        seed=seed,
    )
    if sampling is not None:
        params |= sampling.params
    if history is not None:
        inputs["history"] = history.source
    if image is not None:
        inputs["images"] = upload(images_to_frame(image))
    if audio is not None:
        inputs["audio"] = upload(audio_to_frame(audio))
    if video is not None:
        inputs["video"] = upload(video_to_frame(video))
    handle = job(model, "thinker", "text", params, **inputs)
    return Answer(
        Text(handle, model.address),
        Hidden(replace(handle, output="hidden"), model.address),
        Chat(replace(handle, output="history"), model.address),
    )


def text_sampling(
    *,
    top_p: float,
    top_k: int,
    min_p: float,
    repetition_penalty: float,
    stop: str,
    json_schema: str,
) -> Sampling:
    """How a model is to choose its words; `stop` has one text a line."""
    return Sampling(
        given(
            top_p=top_p if top_p > 0 else None,
            top_k=top_k if top_k >= 0 else None,
            min_p=min_p if min_p >= 0 else None,
            repetition_penalty=repetition_penalty if repetition_penalty > 0 else None,
            stop=[line for line in stop.splitlines() if line] or None,
            json_schema=json_schema.strip() or None,
        )
    )


def message(
    *,
    role: str,
    text: str,
    history: Chat | None = None,
    image: torch.Tensor | None = None,
    audio: Mapping[str, Any] | None = None,
    video: VideoInput | None = None,
) -> Chat:
    """A conversation with one more message, as an upload.

    Raises:
        InvalidRequest: nothing is said, or the history is still on a runtime: fetch it first.
    """
    said = (*message_media(image, audio, video), *((text,) if text.strip() else ()))
    if not said:
        raise InvalidRequest("text is empty.", field="text", value=text, allowed="text or media")
    earlier = Conversation()
    if history is not None:
        if not isinstance(history.source, Upload):
            raise InvalidRequest("The history is still on the runtime.", field="history")
        earlier = Conversation.from_frame(Frame.decode(history.source.data))
    longer = earlier.then(Message(check_role(role, "role"), said))
    return Chat(upload(longer.to_frame()), "" if history is None else history.address)
