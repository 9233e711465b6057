"""What each node asks of the runtime, as one pure function per node.

A node calls its function when it runs; queue-ahead calls the same function while the prompt
still waits. Both get equal jobs, so the node finds its work under way or done.

An input that is 0, -1 or empty in a node means "the model's own default" and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..runtime.protocol.conversation import Conversation, Message, check_role
from ..runtime.protocol.errors import InvalidRequest
from ..runtime.protocol.frames import Frame
from .guidance import layer_numbers, param_of
from .media import (
    audio_to_frame,
    images_to_frame,
    latent_to_frame,
    mask_to_frame,
    message_media,
    video_to_frame,
)
from .values import (
    Adapter,
    Answer,
    Chat,
    Codes,
    Conditioning,
    Control,
    Film,
    Guider,
    Hidden,
    Images,
    Latent,
    Model,
    RemoteText,
    Sampling,
    Sound,
    Source,
    Spoken,
    Text,
    Upload,
    job,
)

if TYPE_CHECKING:
    import torch
    from comfy_api.input import VideoInput

Words = str | Text
"""A text, or one that a model is still to write."""

DEFAULT = "default"
"""The choice in a list that means "the model's own"."""


def load_model(model: str, address: str = "", strict: bool = False) -> Model:
    """A model by name; nothing runs."""
    return Model(model, address.strip().rstrip("/"), strict)


def lora(model: Model, lora: str, strength: float) -> Model:
    """A model with one more adapter; the same one twice acts as strongly as both together."""
    strengths = {name: strength for name, strength in model.adapters}
    strengths[lora] = strengths.get(lora, 0.0) + strength
    adapters = tuple(Adapter(name, strength) for name, strength in strengths.items() if strength)
    return replace(model, adapters=adapters)


def text_encode(
    model: Model,
    prompt: Words,
    negative_prompt: Words = "",
    images: torch.Tensor | None = None,
    images_2: torch.Tensor | None = None,
    images_3: torch.Tensor | None = None,
) -> Conditioning:
    """Encode a prompt, what to avoid, and pictures `[B, H, W, C]` to go by."""
    params, inputs = _texts(model, prompt=prompt, negative_prompt=negative_prompt)
    pictures = {"images": images, "images_2": images_2, "images_3": images_3}
    for name, given in _given(**pictures).items():
        inputs[name] = _upload(images_to_frame(given))
    handle = job(model, "text_encode", "conditioning", params, **inputs)
    return Conditioning(handle, model.address)


def control(
    model: Model,
    conditioning: Conditioning,
    image: torch.Tensor,
    *,
    controlnet: str,
    strength: float,
    start: float,
    end: float,
) -> Conditioning:
    """Conditioning whose pictures keep to a picture `[1, H, W, C]`; strength 0 changes nothing.

    Raises:
        InvalidRequest: it has such a picture already.
    """
    if not strength:
        return conditioning
    if conditioning.control is not None:
        raise InvalidRequest(
            "conditioning has a ControlNet already; there can be one.",
            field="conditioning",
            allowed="one without a ControlNet",
        )
    frame = images_to_frame(image)
    _, height, width, _ = frame.tensors["images"].array.shape
    params = {"name": controlnet, "strength": strength, "start": start, "end": end}
    return replace(conditioning, control=Control(_upload(frame), params, (width, height)))


def sample(  # noqa: PLR0913 - a node's inputs are its interface
    model: Model,
    conditioning: Conditioning,
    *,
    width: int,
    height: int,
    count: int,
    steps: int,
    guidance: float,
    scheduler: str,
    denoise: float,
    seed: int,
    latent: Latent | None = None,
    guider: Guider | None = None,
    frames: int = 0,
) -> Latent:
    """Denoise `count` pictures with seeds `seed`, `seed + 1`, ..., or a film.

    A size that is not given is the latent's, or that of the picture that a ControlNet goes by.
    """
    control = conditioning.control
    known = (latent.size if latent is not None else None) or (control.size if control else (0, 0))
    size = (width or known[0], height or known[1])
    params = _given(
        width=size[0] or None,
        height=size[1] or None,
        steps=steps or None,
        guidance=guidance if guidance >= 0 else None,
        scheduler=scheduler if scheduler != DEFAULT else None,
        denoise=denoise if denoise != 1 else None,
        guider=dict(guider.params) if guider is not None else None,
        frames=frames or None,
        control=dict(control.params) if control is not None else None,
        count=count,
        seed=seed,
    )
    inputs: dict[str, Source] = {"conditioning": conditioning.source}
    if latent is not None:
        inputs["latent"] = latent.source
    if control is not None:
        inputs["control"] = control.picture
    handle = job(model, "sample", "latent", params, **inputs)
    return Latent(handle, model.address, size if all(size) else None)


def vae_encode(model: Model, image: torch.Tensor, mask: torch.Tensor | None = None) -> Latent:
    """Encode pictures `[B, H, W, C]`, each as if alone, and what to draw anew `[B, H, W]`."""
    frame = images_to_frame(image)
    _, height, width, _ = frame.tensors["images"].array.shape
    inputs = {"images": _upload(frame)}
    if mask is not None:
        inputs["mask"] = _upload(mask_to_frame(mask, (width, height)))
    handle = job(model, "vae_encode", "latent", {}, **inputs)
    return Latent(handle, model.address, (width, height))


def vae_decode(model: Model, latent: Latent) -> Images:
    """Decode latents to pictures."""
    return Images(job(model, "vae_decode", "images", {}, latent=latent.source), model.address)


def video_decode(model: Model, latent: Latent, fps: float) -> Film:
    """Decode latents to a film."""
    params = _given(fps=fps or None)
    handle = job(model, "vae_decode", "video", params, latent=latent.source)
    return Film(handle, model.address)


def from_latent(model: Model, samples: Mapping[str, Any]) -> Latent:
    """ComfyUI's LATENT as an upload."""
    return Latent(_upload(latent_to_frame(samples)), model.address)


def guider(  # noqa: PLR0913 - a node's inputs are its interface
    kind: str,
    *,
    start: float,
    stop: float,
    guidance_rescale: float,
    use_original_formulation: bool,
    scale: float,
    scale_start: float,
    scale_stop: float,
    layers: str,
    momentum: float,
    norm_limit: float,
    eta: float,
    start_step: int,
    zero_init_steps: int,
    alpha: float,
) -> Guider:
    """How a model is to be guided; a number below its range is left to the kind.

    Raises:
        InvalidRequest: `layers` are no whole numbers.
    """
    numbers = {
        "start": start,
        "stop": stop,
        "guidance_rescale": guidance_rescale,
        "scale": scale,
        "scale_start": scale_start,
        "scale_stop": scale_stop,
        "norm_limit": norm_limit,
        "eta": eta,
        "start_step": start_step,
        "zero_init_steps": zero_init_steps,
        "alpha": alpha,
    }
    given = _given(
        **{name: number if number >= 0 else None for name, number in numbers.items()},
        momentum=momentum if momentum >= -1 else None,
        layers=layer_numbers(layers) or None,
        use_original_formulation=use_original_formulation or None,
    )
    return Guider({"kind": kind, **{param_of(kind, name): value for name, value in given.items()}})


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
    params, inputs = _texts(model, prompt=prompt)
    params |= _given(
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
        inputs["images"] = _upload(images_to_frame(image))
    if audio is not None:
        inputs["audio"] = _upload(audio_to_frame(audio))
    if video is not None:
        inputs["video"] = _upload(video_to_frame(video))
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
        _given(
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
    return Chat(_upload(longer.to_frame()), "" if history is None else history.address)


def talker(
    model: Model,
    hidden: Hidden,
    voice: str,
    *,
    max_seconds: float,
    seed: int,
    sampling: Sampling | None = None,
) -> Codes:
    """Have a voice say what a language model thinks."""
    voice = voice.lower()  # as runtimes name voices
    params = _given(
        voice=voice if voice != DEFAULT else None,
        max_seconds=max_seconds or None,
        seed=seed,
    )
    if sampling is not None:
        params |= sampling.params
    return Codes(job(model, "talker", "codes", params, hidden=hidden.source), model.address)


def codec_decode(
    model: Model,
    codes: Codes,
    *,
    steps: int = 0,
    guidance: float = -1.0,
    play: bool = False,
    seed: int = 0,
) -> Sound:
    """Decode speech; it is the same job whether a page plays it or not."""
    params = _given(
        steps=steps or None,
        guidance=guidance if guidance >= 0 else None,
        seed=seed,
    )
    handle = job(model, "codec_decode", "audio", params, codes=codes.source)
    return Sound(handle, model.address)


def speak(model: Model, text: Words, voice: str, *, play: bool, seed: int) -> Spoken:
    """Have a model answer aloud; every stage gets the seed."""
    answer = thinker(model, text, "", max_tokens=0, temperature=-1.0, seed=seed)
    codes = talker(model, answer.hidden, voice, max_seconds=0.0, seed=seed)
    return Spoken(codec_decode(model, codes, play=play, seed=seed), answer.text, codes)


PLANS: Mapping[str, Callable[..., Any]] = {
    "OmniStageLoadModel": load_model,
    "OmniStageLoRA": lora,
    "OmniStageTextEncode": text_encode,
    "OmniStageControl": control,
    "OmniStageSample": sample,
    "OmniStageVAEEncode": vae_encode,
    "OmniStageVAEDecode": vae_decode,
    "OmniStageVideoDecode": video_decode,
    "OmniStageGuider": guider,
    "OmniStageFromLatent": from_latent,
    "OmniStageThinker": thinker,
    "OmniStageTextSampling": text_sampling,
    "OmniStageMessage": message,
    "OmniStageTalker": talker,
    "OmniStageCodecDecode": codec_decode,
    "OmniStageSpeak": speak,
}
"""Each node's function by node id; nodes that only download ask for nothing new.

It gives the value of the node's output, or a tuple of them.
"""


def _texts(model: Model, **texts: Words) -> tuple[dict[str, Any], dict[str, Source]]:
    """Texts as parameters, and those that the model's own runtime writes as inputs."""
    params: dict[str, Any] = {}
    inputs: dict[str, Source] = {}
    for name, text in texts.items():
        remote = text.remote if isinstance(text, RemoteText) else text
        if isinstance(remote, Text) and remote.address == model.address:
            inputs[name] = remote.source
        else:  # of another runtime: the words themselves, once they are there
            params[name] = text
    return params, inputs


def _given(**values: Any) -> dict[str, Any]:
    """The values that are not left to the model."""
    return {name: value for name, value in values.items() if value is not None}


def _upload(frame: Frame) -> Upload:
    return Upload.of(frame.encode())
