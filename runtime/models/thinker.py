"""The Thinker stage of a chat model: a conversation to a prompt for vLLM, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from ..protocol.conversation import Conversation, Media, Message
from ..protocol.errors import InvalidRequest, ModelLoadFailed
from ..protocol.frames import Frame, Tensor
from .ar_stage import POSITIONS, ARRequest, ARResult
from .audio import resample
from .chat import media_inputs
from .qwen_omni import is_qwen3, talker_layers

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

MEDIA_LIMITS: Mapping[str, int] = {"image": 16, "audio": 8, "video": 4}
"""How many of each a conversation may hold; `omnistage.json` may say otherwise (`media`)."""

_USUAL_RATE_HZ = 16000

_SAMPLING = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "seed",
    "json_schema",
)


class Thinker:
    """See `ARStage`."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Load the tokenizer.

        Raises:
            ModelLoadFailed: there is none, or it has no chat template.
        """
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint.folder)
        if not self._tokenizer.chat_template:
            raise ModelLoadFailed(
                f"The tokenizer in {checkpoint.folder} has no chat template.", field="chat_template"
            )
        kinds = {name.removesuffix("s") for name in media_inputs(checkpoint.index)}
        limits = {**MEDIA_LIMITS, **checkpoint.overrides.get("media", {})}
        self._limits = {kind: limits[kind] if kind in kinds else 0 for kind in MEDIA_LIMITS}
        self._rate_hz = _hearing_rate_hz(checkpoint)
        speaks = "hidden" in checkpoint.family.stages(checkpoint)["thinker"].streams
        layers = list(talker_layers(checkpoint.index)) if speaks else []
        kept = checkpoint.overrides.get("hidden_layers", [] if speaks else [-1])
        self._layers = tuple(dict.fromkeys([*layers, *kept]))
        self._part = _hidden_part if speaks else None
        self._more = (POSITIONS,) if speaks and is_qwen3(checkpoint.index) else ()

    def engine_args(self) -> dict[str, Any]:
        """See `ARStage.engine_args`."""
        arguments: dict[str, Any] = {
            "additional_config": {"omnistage": {"hidden_layers": list(self._layers)}}
        }
        if any(self._limits.values()):
            arguments["limit_mm_per_prompt"] = dict(self._limits)
        return arguments

    def prepare(self, params: Mapping[str, Any], inputs: Mapping[str, Frame]) -> list[ARRequest]:
        """See `ARStage.prepare`."""
        conversation = conversation_of(params, inputs)
        check_media(conversation, self._limits)
        layers = tuple(params["hidden_layers"])
        unknown = [layer for layer in layers if layer not in self._layers]
        if unknown:
            raise InvalidRequest(
                f"The hidden states of layers {unknown} are not kept by this model's stage.",
                field="hidden_layers",
                value=unknown,
                allowed=", ".join(map(str, self._layers)),
            )
        sampling = {name: params[name] for name in _SAMPLING}
        sampling["stop"] = list(params["stop"])
        part = self._part if layers else None
        rows = (*layers, *self._more) if layers else ()
        given = self._given(params)
        if given is None:
            prompt = self._prompt(conversation)
            return [ARRequest(prompt, sampling, rows, streamed=True, part=part)]
        prompt = self._prompt(conversation, params["answer"])
        # vLLM writes one token at least; `given` puts the answer's end in its place
        sampling |= {"max_tokens": 1, "json_schema": ""}
        return [ARRequest(prompt, sampling, rows, part=part and (lambda news: part(given(news))))]

    def outputs(
        self, params: Mapping[str, Any], inputs: Mapping[str, Frame], results: Sequence[ARResult]
    ) -> dict[str, Frame]:
        """See `ARStage.outputs`."""
        (result,) = results
        given = self._given(params)
        if given is not None:
            result = replace(given(result), text=params["answer"])
        facts = {
            "text": result.text,
            "finish_reason": result.finish_reason,
            "prompt_tokens": len(result.prompt_ids),
            "completion_tokens": len(result.token_ids),
            "cached_tokens": result.cached_tokens,
        }
        answer = Message("assistant", (result.text,))
        return {
            "text": Frame({"kind": "text", **facts}),
            "hidden": _hidden_frame(result, facts),
            "history": conversation_of(params, inputs).then(answer).to_frame(),
        }

    def _given(self, params: Mapping[str, Any]) -> Callable[[ARResult], ARResult] | None:
        """Moves an answer that was read from the end of a result's prompt to its tokens.

        None: the answer is to be written.
        """
        if not params["answer"]:
            return None
        count = len(self._tokenizer.encode(params["answer"], add_special_tokens=False))
        end = (self._tokenizer.eos_token_id,)

        def moved(result: ARResult) -> ARResult:
            ids = tuple(result.prompt_ids)
            answer = ids[len(ids) - count :] if ids else ()
            written = end if result.token_ids else ()
            return replace(
                result,
                prompt_ids=ids[: len(ids) - count],
                token_ids=(*answer, *written),
                finish_reason=result.finish_reason and "stop",
            )

        return moved

    def _prompt(self, conversation: Conversation, answer: str = "") -> dict[str, Any]:
        messages = [_to_template(message) for message in conversation.messages]
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        media: dict[str, list[Any]] = {}
        for part in conversation.media():
            media.setdefault(part.kind, []).append(_to_vllm(part, self._rate_hz))
        if media:  # vLLM's processor puts as many placeholders as each needs
            return {"prompt": text + answer, "multi_modal_data": media}
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        ids += self._tokenizer.encode(answer, add_special_tokens=False)
        return {"prompt_token_ids": ids}


def check_media(conversation: Conversation, limits: Mapping[str, int]) -> None:
    """Refuse more pictures, sounds or films than a model takes.

    Raises:
        InvalidRequest: there are more of a kind than its limit.
    """
    for kind, limit in limits.items():
        count = sum(media.kind == kind for media in conversation.media())
        if count > limit:
            words = f"it takes {limit}" if limit else "it takes none"
            raise InvalidRequest(
                f"The conversation holds {count} of {kind} for this model; {words}.",
                field=kind,
                value=count,
                allowed=f"at most {limit}",
                stage="thinker",
            )


def conversation_of(params: Mapping[str, Any], inputs: Mapping[str, Frame]) -> Conversation:
    """All that is to be said to the model: history, then media and prompt as the user's turn.

    Raises:
        InvalidRequest: there is nothing to answer, or an input is not what it should be.
    """
    history = inputs.get("history")
    conversation = Conversation() if history is None else Conversation.from_frame(history)
    if params["system"]:
        rest = conversation.messages
        if rest and rest[0].role == "system":
            rest = rest[1:]
        conversation = Conversation((Message("system", (params["system"],)), *rest))
    linked = inputs.get("prompt")
    prompt = str(params["prompt"] if linked is None else linked.header.get("text", ""))
    parts = (*_media_of(inputs), *((prompt,) if prompt.strip() else ()))
    if parts:
        return conversation.then(Message("user", parts))
    if not conversation.messages or conversation.messages[-1].role != "user":
        raise InvalidRequest(
            "The prompt is empty, and there is no question in the history to answer.",
            field="prompt",
            value=prompt,
            allowed="some text, or a history that ends with the user",
        )
    return conversation


def _media_of(inputs: Mapping[str, Frame]) -> list[Media]:
    """The media inputs in the order in which the model meets them."""
    media: list[Media] = []
    if "images" in inputs:
        pictures = _tensor(inputs["images"], "images", "images", 4)
        pixels = (pictures.clip(0, 1) * 255).round().astype(np.uint8)
        media += [Media("image", Tensor.of(picture)) for picture in pixels]
    if "video" in inputs:
        frames = _tensor(inputs["video"], "video", "frames", 4)
        rate = _rate(inputs["video"], "video", "fps")
        media.append(Media("video", Tensor.of(frames.astype(np.uint8)), rate))
    if "audio" in inputs:
        waves = _tensor(inputs["audio"], "audio", "waveform", 3).astype(np.float32)
        rate = _rate(inputs["audio"], "audio", "rate")
        media += [Media("audio", Tensor.of(wave.mean(0)), rate) for wave in waves]
    return media


def _tensor(frame: Frame, name: str, tensor: str, ndim: int) -> np.ndarray[Any, Any]:
    found = frame.tensors.get(tensor)
    if found is None or found.array.ndim != ndim or 0 in found.array.shape:
        raise InvalidRequest(
            f"Input {name} needs a tensor {tensor!r} with {ndim} dimensions, none of them 0.",
            field=name,
            value=None if found is None else list(found.array.shape),
            allowed=f"{ndim} dimensions",
        )
    if found.array.dtype.kind == "f" and not np.isfinite(found.array).all():
        raise InvalidRequest(
            f"Input {name} holds numbers that are not finite.", field=name, allowed="finite numbers"
        )
    return found.array


def _rate(frame: Frame, name: str, field: str) -> float:
    rate = frame.header.get(field)
    if not isinstance(rate, int | float) or not 0 < rate <= 1e6:
        raise InvalidRequest(
            f"Input {name} says {field} = {rate!r}.",
            field=name,
            value=rate,
            allowed="more than 0, at most 1000000",
        )
    return float(rate)


def _to_template(message: Message) -> dict[str, Any]:
    """A message as chat templates take it: plain text, or parts where there are media."""
    if all(isinstance(part, str) for part in message.parts):
        return {"role": message.role, "content": message.text}
    parts = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": part.kind}
        for part in message.parts
    ]
    return {"role": message.role, "content": parts}


def _to_vllm(media: Media, rate_hz: int) -> Any:
    """A picture, sound (at `rate_hz`) or film as vLLM takes it."""
    array = media.tensor.array
    if media.kind == "image":
        return Image.fromarray(array)
    if media.kind == "audio":
        return resample(array, media.rate, rate_hz), rate_hz
    count = len(array)
    metadata = {
        "fps": media.rate,
        "duration": count / media.rate,
        "total_num_frames": count,
        "frames_indices": list(range(count)),
        "video_backend": "omnistage",
        "do_sample_frames": False,
    }
    return array, metadata


def _hearing_rate_hz(checkpoint: Checkpoint) -> int:
    """The rate of the sound that the checkpoint's feature extractor takes."""
    extractor = checkpoint.read_json("processor_config.json").get("feature_extractor", {})
    own = extractor or checkpoint.read_json("preprocessor_config.json")
    return int(own.get("sampling_rate", _USUAL_RATE_HZ))


def _hidden_part(news: ARResult) -> dict[str, Frame]:
    """The next part of the hidden states; the first holds the prompt's."""
    facts = {"prompt_tokens": len(news.prompt_ids)} if news.prompt_ids else {}
    return {"hidden": _hidden_frame(news, facts)}


def _hidden_frame(result: ARResult, facts: Mapping[str, Any]) -> Frame:
    layers = {layer: rows for layer, rows in result.hidden.items() if layer != POSITIONS}
    tensors = {f"layer_{layer}": _to_wire(rows) for layer, rows in layers.items()}
    if POSITIONS in result.hidden:
        tensors[POSITIONS] = Tensor.of(result.hidden[POSITIONS].numpy())
    ids = np.array([*result.prompt_ids, *result.token_ids], np.int64)
    header = {"kind": "hidden", **facts, "layers": list(layers)}
    return Frame(header, {"token_ids": Tensor.of(ids), **tensors})


def _to_wire(rows: torch.Tensor) -> Tensor:
    return Tensor.of(rows.float().numpy())
