"""Qwen-Image: text to image, image to image, and inpainting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..call_spec import Preview, SpecTable
from ..modular.family import ModularFamily
from ..modular.guider_params import PLAIN_KINDS
from ..modular.params import SampleParams, TextEncodeParams, text

if TYPE_CHECKING:
    from ..ar_stage import ARStage
    from ..checkpoint import Checkpoint

MAX_TOKENS: Final = 1024
"""Prompt tokens the pipeline can use. Source: diffusers `QwenImagePipeline.check_inputs`."""

_TEMPLATE_TOKENS: Final = 64
"""Room for the prompt template, of which 34 tokens are dropped again."""


def qwen_image_specs() -> SpecTable:
    """How calls of Qwen-Image's transformer merge."""
    from ..modular.specs import packed_specs
    from ..qwen_image_packed import QwenImagePacked

    return packed_specs("QwenImageTransformer2DModel", QwenImagePacked())


class QwenImageTextParams(TextEncodeParams):
    """Without a negative prompt there is no guidance, as in diffusers' pipeline."""

    negative_prompt: str = text(
        "What to avoid. Empty: no guidance, one forward pass a step instead of two."
    )


class QwenImage(ModularFamily):
    """Qwen-Image and checkpoints of its classes."""

    name: ClassVar[str] = "qwen-image"
    pipelines: ClassVar = {"QwenImagePipeline": "QwenImageAutoBlocks"}
    components: ClassVar = frozenset(
        {"transformer", "vae", "text_encoder", "tokenizer", "scheduler"}
    )
    text: ClassVar = QwenImageTextParams
    text_engines: ClassVar = ("ar", "diffusion")
    max_tokens: ClassVar = {"tokenizer": MAX_TOKENS}
    sample: ClassVar = SampleParams
    # of diffusers' others, two do not know what a block of Qwen-Image returns, and CFG-Zero*
    # divides by the norm of the zeros it starts with
    guiders: ClassVar = PLAIN_KINDS | {"mag", "pag"}
    controlnet: ClassVar = "QwenImageControlNetModel"
    starts: ClassVar = True
    inpaints: ClassVar = True
    negatives: ClassVar = False

    def specs(self) -> SpecTable:
        """See `ModularFamily.specs`."""
        return qwen_image_specs()

    def preview(self) -> Preview | None:
        """See `ModularFamily.preview`."""
        return _clean_latents

    def ar_stage(self, checkpoint: Checkpoint, stage: str) -> ARStage:
        """See `Family.ar_stage`."""
        from ..ar_encoder import EncoderStage

        encoder = checkpoint.read_json("text_encoder/config.json")
        return EncoderStage(
            self.load(checkpoint, dtype="float32", device="cpu").programs[stage],
            checkpoint.folder / "text_encoder",
            width=encoder.get("text_config", encoder)["hidden_size"],
            max_tokens=MAX_TOKENS + _TEMPLATE_TOKENS,
        )


def _clean_latents(arguments: Mapping[str, Any], result: Any) -> Any:
    """Estimated clean latents `[rows, C, h, w]` from a denoiser call on packed latents.

    Flow matching: x_t = (1 - t) x_0 + t noise and v = noise - x_0, so x_0 = x_t - t v.
    """
    noisy, velocity = arguments["hidden_states"], result[0]
    clean = noisy - arguments["timestep"].view(-1, 1, 1) * velocity
    _, height, width = arguments["img_shapes"][0][0]
    rows, _, channels = clean.shape
    patches = clean.view(rows, height, width, channels // 4, 2, 2)
    return patches.permute(0, 3, 1, 4, 2, 5).reshape(rows, channels // 4, height * 2, width * 2)
