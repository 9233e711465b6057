"""What each node asks of the runtime, as one pure function per node.

A node calls its function when it runs; queue-ahead calls the same function while the prompt
still waits. Both get equal jobs, so the node finds its work under way or done.

An input that is 0, -1 or empty in a node means "the model's own default" and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .inputs import DEFAULT
from .language import message, text_sampling, thinker
from .models import load_model, lora
from .pictures import (
    control,
    from_latent,
    guider,
    sample,
    text_encode,
    vae_decode,
    vae_encode,
    video_decode,
)
from .speech import codec_decode, speak, talker

__all__ = [
    "DEFAULT",
    "PLANS",
    "codec_decode",
    "control",
    "from_latent",
    "guider",
    "load_model",
    "lora",
    "message",
    "sample",
    "speak",
    "talker",
    "text_encode",
    "text_sampling",
    "thinker",
    "vae_decode",
    "vae_encode",
    "video_decode",
]

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
