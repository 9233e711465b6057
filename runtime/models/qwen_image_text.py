"""Qwen-Image's text encode stage: diffusers' own block, whoever computes the encoder's forward."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any

from diffusers import ClassifierFreeGuidance, QwenImageAutoBlocks

from ..protocol.errors import InvalidRequest
from .program import Bundle, StageContext, text_of
from .qwen_image import MAX_TOKENS


class TextEncode:
    """Prompts to embeddings; an empty negative prompt is not encoded."""

    def __init__(self, tokenizer: Any) -> None:
        # one line for each guider made would be several for each request
        logging.getLogger("diffusers.guiders.guider_utils").setLevel(logging.ERROR)
        self._tokenizer = tokenizer
        block = QwenImageAutoBlocks().sub_blocks["text_encoder"].sub_blocks["text_encoder"]
        self._prototype = block.init_pipeline()

    def __call__(
        self, context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
    ) -> dict[str, Bundle]:
        """See `Program`."""
        prompt = text_of("prompt", params, inputs)
        negative = text_of("negative_prompt", params, inputs) or None
        self._check_length("prompt", prompt)
        self._check_length("negative_prompt", negative or "")
        pipeline = copy.copy(self._prototype)
        pipeline.__dict__["text_encoder"] = context.module("text_encoder")
        pipeline.tokenizer = self._tokenizer
        pipeline.guider = ClassifierFreeGuidance(enabled=negative is not None)
        state = pipeline(prompt=prompt, negative_prompt=negative)
        names = ["prompt_embeds", "prompt_embeds_mask"]
        if negative is not None:
            names += [f"negative_{name}" for name in names]
        tensors = {name: state.get(name) for name in names}
        return {"conditioning": Bundle(tensors, {"kind": "conditioning"})}

    def _check_length(self, field: str, text: str) -> None:
        tokens = len(self._tokenizer(text).input_ids)
        if tokens > MAX_TOKENS:
            raise InvalidRequest(
                f"{field} has {tokens} tokens; this model reads at most {MAX_TOKENS}. "
                "Shorten it: nothing is cut in silence.",
                field=field,
                value=tokens,
                allowed=f"at most {MAX_TOKENS} tokens",
                stage="text_encode",
            )
