"""The peers' way, as a ComfyUI pack: diffusers' whole pipeline in one node, in ComfyUI's process.

Only the queue benchmark loads it, into a ComfyUI that is given the runtime's packages,
but for torch, of which it has its own.
"""

import os

import torch
from diffusers import QwenImagePipeline

_PIPELINE = QwenImagePipeline.from_pretrained(os.environ["PLAIN_NODE_MODEL"]).to(torch.float32)
_PIPELINE.set_progress_bar_config(disable=True)


class PlainQwenImage:
    """Text to picture in one blocking call."""

    CATEGORY = "bench"
    FUNCTION = "run"
    RETURN_TYPES = ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, dict[str, tuple[str, dict[str, object]]]]:  # noqa: N802
        """ComfyUI's name for the inputs."""
        kinds = dict.fromkeys(("prompt", "negative_prompt"), "STRING")
        kinds |= dict.fromkeys(("size", "steps"), "INT")
        inputs: dict[str, tuple[str, dict[str, object]]] = {k: (v, {}) for k, v in kinds.items()}
        return {"required": {**inputs, "seed": ("INT", {"max": 2**63}), "guidance": ("FLOAT", {})}}

    def run(
        self,
        prompt: str,
        negative_prompt: str,
        size: int,
        steps: int,
        seed: int,
        guidance: float,
    ) -> tuple[torch.Tensor]:
        """The picture as IMAGE."""
        images = _PIPELINE(
            prompt=prompt,
            negative_prompt=negative_prompt,
            true_cfg_scale=guidance,
            height=size,
            width=size,
            num_inference_steps=steps,
            generator=torch.Generator().manual_seed(seed),
            output_type="pt",
        ).images
        return (images.movedim(1, -1),)


NODE_CLASS_MAPPINGS = {"PlainQwenImage": PlainQwenImage}
