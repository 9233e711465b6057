"""Talker, Codec Decode and Speak: a language model's answer, said aloud."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfy_api.latest import io

from ...runtime.protocol.frames import Frame
from .. import media, plans
from ..pack import pack
from ..playback import Playback
from ..run import begin, fetch, fetch_all
from ..sockets import OmniCodes, OmniHidden, OmniModel, OmniSampling
from ..values import Codes, Model, RemoteText
from .node import Node

_CATEGORY = "OmniStage/speech"
_MAX_SEED = 2**63 - 1  # vLLM's
_PLAY = (
    "Play the sound on the page that queued the prompt, while it is made. What the node gives is "
    "the same."
)


class Talker(Node):
    """Runs the model's Talker; it goes on while the nodes behind it begin.

    It only has the work begun, so that speech can be decoded, and heard, from its first codes on.
    Codec Decode waits for it, and says what became of it.
    """

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageTalker",
            display_name="Talker",
            category=_CATEGORY,
            description="Has a voice say what a Thinker writes, while it is still being written. "
            "It shares each forward pass with every other prompt on the runtime.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model: the Thinker's own."),
                OmniHidden.Input("hidden", tooltip="From Thinker."),
                _voice(),
                OmniSampling.Input(
                    "sampling",
                    optional=True,
                    tooltip="From Text Sampling: top_p, top_k and repetition_penalty. None: the "
                    "model's own way to choose sounds.",
                ),
                io.Float.Input(
                    "max_seconds",
                    default=0.0,
                    min=0.0,
                    max=3600.0,
                    step=0.5,
                    tooltip="Seconds of speech at most; longer speech is cut off there. 0: the "
                    "model's own default.",
                ),
                _seed("Seed of the choices, 0 to 2^63 - 1."),
            ],
            outputs=[
                OmniCodes.Output(
                    display_name="codes",
                    tooltip="Speech as codec tokens; they stay on the runtime.",
                )
            ],
        )

    @classmethod
    def validate_inputs(cls, voice: str) -> bool:
        """Leave it to `precheck`, which knows the model's own voices."""
        return True

    @classmethod
    async def execute(cls, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        codes = plans.talker(**inputs)
        await begin(cls.title(), codes, _describe_voice)
        return io.NodeOutput(codes)


class CodecDecode(Node):
    """Runs the model's codec and brings the sound to ComfyUI."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageCodecDecode",
            display_name="Codec Decode",
            category=_CATEGORY,
            description="Decodes speech to sound, from its first codes on, and can play it while "
            "it is made.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model: the Talker's own."),
                OmniCodes.Input("codes", tooltip="From Talker."),
                io.Int.Input(
                    "steps",
                    default=0,
                    min=0,
                    max=10000,
                    optional=True,
                    tooltip="Points in time of the codec's ODE solver, for codecs that have one. "
                    "0: the model's own default.",
                ),
                io.Float.Input(
                    "guidance",
                    default=-1.0,
                    min=-1.0,
                    max=100.0,
                    step=0.1,
                    optional=True,
                    tooltip="How closely to keep to the codes, for codecs that can choose; 0: no "
                    "guidance. -1: the model's own default.",
                ),
                io.Boolean.Input("play", default=False, optional=True, tooltip=_PLAY),
                # Optional as what stands before it: ComfyUI puts optional widgets last.
                _seed("Seed of the noise that a codec begins with, 0 to 2^63 - 1.", optional=True),
            ],
            outputs=[io.Audio.Output(display_name="AUDIO")],
        )

    @classmethod
    async def execute(
        cls, model: Model, codes: Codes, play: bool = False, **inputs: Any
    ) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        sound = plans.codec_decode(model, codes, **inputs)
        frame = await fetch(cls.title(), sound, playback=Playback() if play else None)
        await fetch(cls.title(), codes, lambda params, said: _describe(params, said, frame))
        return io.NodeOutput(media.frame_to_audio(frame))


class Speak(Node):
    """Thinker, Talker and Codec Decode in one."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """See `io.ComfyNode`."""
        return io.Schema(
            node_id="OmniStageSpeak",
            display_name="Speak",
            category=_CATEGORY,
            description="Has a model answer aloud: Thinker, Talker and Codec Decode in one node.",
            inputs=[
                OmniModel.Input("model", tooltip="From Load Model; one that speaks."),
                io.String.Input("text", multiline=True, tooltip="What to say to the model."),
                _voice(),
                io.Boolean.Input("play", default=False, tooltip=_PLAY),
                _seed("Seed of all choices and of the noise, 0 to 2^63 - 1."),
            ],
            outputs=[
                io.Audio.Output(display_name="AUDIO"),
                io.String.Output(display_name="text", tooltip="What the model says."),
            ],
        )

    @classmethod
    def validate_inputs(cls, voice: str) -> bool:
        """Leave it to `precheck`, which knows the model's own voices."""
        return True

    @classmethod
    async def execute(cls, play: bool, **inputs: Any) -> io.NodeOutput:
        """See `io.ComfyNode`."""
        spoken = plans.speak(play=play, **inputs)
        playback = Playback() if play else None
        text, sound = await fetch_all(cls.title(), spoken.text, spoken.sound, playback=playback)
        words = str(text.header["text"])

        def describe(params: Mapping[str, Any], codes: Frame) -> str:
            return f"{words}\n\n{_describe(params, codes, sound)}"

        await fetch(cls.title(), spoken.codes, describe)
        return io.NodeOutput(media.frame_to_audio(sound), RemoteText(words, spoken.text))


def _voice() -> io.Combo.Input:
    return io.Combo.Input(
        "voice",
        options=pack().catalogue.choices("talker", "voice"),
        default=plans.DEFAULT,
        tooltip="Who speaks: a voice of the model's, in large or small letters. default: the "
        "model's first.",
    )


def _seed(tooltip: str, *, optional: bool = False) -> io.Int.Input:
    return io.Int.Input(
        "seed",
        default=0,
        min=0,
        max=_MAX_SEED,
        control_after_generate=True,
        optional=optional,
        tooltip=tooltip,
    )


def _describe_voice(params: Mapping[str, Any]) -> str:
    """What is used, defaults filled in."""
    return f"voice {params['voice']}, at most {params['max_seconds']:g} s"


def _describe(params: Mapping[str, Any], codes: Frame, sound: Frame) -> str:
    """How long speech became, whose it is, and why it ends where it ends."""
    seconds = sound.tensors["waveform"].array.shape[-1] / sound.header["rate"]
    words = [f"{seconds:.2f} s", f"voice {codes.header['voice']}"]
    if codes.header["finish_reason"] == "length":
        words.append(f"cut off at the limit of {params['max_seconds']:g} s")
    return ", ".join(words)
