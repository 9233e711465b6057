"""ComfyUI's names for what flows between OmniStage nodes; the values are in `values`."""

from __future__ import annotations

from comfy_api.latest import io

OmniModel = io.Custom("OMNI_MODEL")
OmniCond = io.Custom("OMNI_COND")
OmniLatent = io.Custom("OMNI_LATENT")
OmniHidden = io.Custom("OMNI_HIDDEN")
OmniCodes = io.Custom("OMNI_CODES")
OmniChat = io.Custom("OMNI_CHAT")
OmniSampling = io.Custom("OMNI_SAMPLING")
OmniGuider = io.Custom("OMNI_GUIDER")
