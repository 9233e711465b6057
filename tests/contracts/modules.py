"""Tiny random modules of the families' real classes, and calls as the families' code makes them.

A new family adds its rows to `CASES`. A call differs from another in every tensor that is per
row, and in the length of what its spec pads; what its spec calls shared is equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from omnistage.runtime.engine.diffusion.call import ModuleCall
from omnistage.runtime.models.call_spec import CallSpec
from omnistage.runtime.models.modular.specs import SPECS
from omnistage.runtime.models.torchvision_ops import make_torchvision_importable
from tests.contracts.perturbation import described

make_torchvision_importable()

import diffusers  # noqa: E402
import transformers  # noqa: E402
from diffusers.pipelines.ltx2.vocoder import LTX2Vocoder  # noqa: E402

Arguments = dict[str, Any]
VOCABULARY = 64


@dataclass(frozen=True)
class Case:
    """A module, and how it is called.

    Attributes:
        cls: name of the module's class.
        build: makes the module.
        call: the arguments of request i's call.
        method: the method that is called.
        apart: other values of arguments that keep two calls apart, where a changed number is
            none that the family would pass.
        layout: arguments that cannot change without others.
    """

    cls: str
    build: Callable[[], torch.nn.Module]
    call: Callable[[int], Arguments]
    method: str = "__call__"
    apart: Mapping[str, torch.Tensor] = field(default_factory=dict)
    layout: frozenset[str] = frozenset()

    @property
    def spec(self) -> CallSpec:
        """The spec that the case proves."""
        return SPECS[self.cls][self.method]


def make_call(case: Case, i: int, module: torch.nn.Module) -> ModuleCall:
    """Request i's call of a case."""
    request: Any = SimpleNamespace(mode="grouped")
    call = ModuleCall(request, module, ("module", case.method), case.call(i), case.spec)
    return described(call)


def randn(seed: int, *shape: int) -> torch.Tensor:
    """Normal numbers that depend on the seed only."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tokens(i: int, length: int) -> torch.Tensor:
    """Token ids `[1, length]`; none of them special."""
    return torch.randint(5, VOCABULARY, (1, length), generator=torch.Generator().manual_seed(i))


def mask(length: int, *, hidden: int = 0, dtype: torch.dtype = torch.bool) -> torch.Tensor:
    """A mask `[1, length]` that hides some tokens on the right."""
    made = torch.ones(1, length, dtype=dtype)
    made[:, length - hidden :] = 0
    return made


def grid(height: int, width: int, dims: int) -> torch.Tensor:
    """Positions `[height * width, dims]`: rows and columns in the last two, zeros before."""
    ids = torch.zeros(height, width, dims)
    ids[..., -2] += torch.arange(height)[:, None]
    ids[..., -1] += torch.arange(width)[None]
    return ids.reshape(-1, dims)


def strong(module: torch.nn.Module) -> torch.nn.Module:
    """The module with weights large enough that whatever reaches its result shows there."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.7 * parameter.shape[-1] ** -0.5)
        elif parameter.ndim > 2:
            torch.nn.init.normal_(parameter, std=0.1)
    return module.eval()


def time(i: int, scale: float = 1.0) -> torch.Tensor:
    """A timestep `[1]`."""
    return torch.tensor([scale * (0.9 - 0.1 * i)])


# transformers of pictures

QWEN = {
    "patch_size": 2,
    "in_channels": 64,
    "out_channels": 16,
    "num_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 4,
    "joint_attention_dim": 16,
    "axes_dims_rope": (8, 4, 4),
}


def qwen(**config: Any) -> Callable[[], torch.nn.Module]:
    return lambda: strong(diffusers.QwenImageTransformer2DModel(**QWEN, **config))


def qwen_call(i: int) -> Arguments:
    return {
        "hidden_states": randn(i, 1, 16, 64),
        "timestep": time(i),
        "attention_kwargs": None,
        "return_dict": False,
        "encoder_hidden_states": randn(10 + i, 1, 7 - 2 * i, 16),
        "encoder_hidden_states_mask": None if i else mask(7, hidden=1),
        "img_shapes": [[(1, 4, 4)]],
    }


def qwen_controlled(i: int) -> Arguments:
    return {**qwen_call(i), "controlnet_block_samples": [randn(20 + i, 1, 16, 64)]}


def qwen_edit(i: int) -> Arguments:
    return {**qwen_call(i), "img_shapes": [[(1, 2, 4), (1, 2, 4)]]}


def qwen_layered(i: int) -> Arguments:
    layers = {"img_shapes": [[(1, 2, 4), (1, 2, 4)]], "additional_t_cond": torch.tensor([i])}
    return {**qwen_call(i), **layers}


def qwen_control() -> torch.nn.Module:
    config = {**QWEN, "num_layers": 1}
    return strong(diffusers.QwenImageControlNetModel(**config, extra_condition_channels=0))


def qwen_control_call(i: int) -> Arguments:
    call = {**qwen_call(i), "controlnet_cond": randn(20 + i, 1, 16, 64), "conditioning_scale": 1.0}
    del call["attention_kwargs"]
    return call


def qwen21() -> torch.nn.Module:
    return strong(
        diffusers.QwenImage21Transformer2DModel(
            patch_size=1,
            in_channels=64,
            out_channels=64,
            num_layers=2,
            attention_head_dim=16,
            num_attention_heads=2,
            context_in_dim=16,
            axes_dims_rope=(4, 6, 6),
        )
    )


def qwen21_call(i: int) -> Arguments:
    return {
        "hidden_states": randn(i, 1, 4 + 16, 64),
        "timestep": time(i),
        "attention_kwargs": None,
        "kv_cache": None,
        "kv_cache_mode": None,
        "return_dict": False,
        "encoder_hidden_states": randn(10 + i, 1, 7, 16),
        "encoder_hidden_states_mask": mask(7, hidden=i),
        "img_mask": picture_slots(2),
        "img_shapes": [[(1, 2, 2), (1, 4, 4)]],
    }


def picture_slots(reference: int) -> torch.Tensor:
    """Where pictures are in a prompt of 7 tokens and the 4 slots of the picture to be made."""
    slots = torch.tensor([[False] * 7 + [True] * 4])
    slots[:, reference] = True
    return slots


def flux() -> torch.nn.Module:
    return strong(
        diffusers.FluxTransformer2DModel(
            patch_size=1,
            in_channels=16,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            guidance_embeds=True,
            axes_dims_rope=(4, 4, 8),
        )
    )


def flux_call(i: int) -> Arguments:
    return {
        "hidden_states": randn(i, 1, 24, 16),
        "timestep": time(i),
        "guidance": torch.tensor([2.0 + i]),
        "encoder_hidden_states": randn(10 + i, 1, 7, 32),
        "pooled_projections": randn(20 + i, 1, 32),
        "joint_attention_kwargs": None,
        "txt_ids": torch.zeros(7, 3),
        "img_ids": grid(4, 6, 3),
        "return_dict": False,
    }


def flux2() -> torch.nn.Module:
    return strong(
        diffusers.Flux2Transformer2DModel(
            patch_size=1,
            in_channels=16,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            timestep_guidance_channels=256,
            axes_dims_rope=[4, 4, 4, 4],
        )
    )


def flux2_call(i: int) -> Arguments:
    text = torch.zeros(1, 7, 4)
    text[..., 3] += torch.arange(7)
    return {
        "hidden_states": randn(i, 1, 24, 16),
        "timestep": time(i),
        "guidance": torch.tensor([2.0 + i]),
        "encoder_hidden_states": randn(10 + i, 1, 7, 32),
        "txt_ids": text,
        "img_ids": grid(4, 6, 4)[None],
        "joint_attention_kwargs": None,
        "return_dict": False,
    }


def z_image() -> torch.nn.Module:
    return strong(
        diffusers.ZImageTransformer2DModel(
            in_channels=4,
            dim=48,
            n_layers=1,
            n_refiner_layers=1,
            n_heads=2,
            n_kv_heads=2,
            cap_feat_dim=32,
            axes_dims=[8, 8, 8],
            axes_lens=[256, 64, 64],
        )
    )


def z_image_call(i: int) -> Arguments:
    return {
        "x": [randn(i, 4, 1, 8 + 4 * i, 8)],
        "t": time(i),
        "cap_feats": [randn(10 + i, 5 + 3 * i, 32)],
        "return_dict": False,
    }


def sd3() -> torch.nn.Module:
    return strong(
        diffusers.SD3Transformer2DModel(
            sample_size=32,
            patch_size=1,
            in_channels=4,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=4,
            caption_projection_dim=32,
            joint_attention_dim=32,
            pooled_projection_dim=64,
            out_channels=4,
            pos_embed_max_size=96,
        )
    )


def sd3_call(i: int) -> Arguments:
    return {
        "hidden_states": randn(i, 1, 4, 8, 8),
        "timestep": time(i, 1000),
        "encoder_hidden_states": randn(10 + i, 1, 7, 32),
        "pooled_projections": randn(20 + i, 1, 64),
        "joint_attention_kwargs": None,
        "return_dict": False,
    }


def unet() -> torch.nn.Module:
    return strong(
        diffusers.UNet2DConditionModel(
            block_out_channels=(16, 32),
            layers_per_block=1,
            sample_size=32,
            in_channels=4,
            out_channels=4,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=(2, 4),
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            transformer_layers_per_block=(1, 1),
            projection_class_embeddings_input_dim=80,
            cross_attention_dim=32,
            norm_num_groups=4,
        )
    )


def unet_call(i: int) -> Arguments:
    size = torch.tensor([[64.0, 64.0, 0.0, 8.0 * i, 64.0, 64.0]])
    return {
        "sample": randn(i, 1, 4, 8, 8),
        "timestep": torch.tensor(900.0 - 300 * i),
        "encoder_hidden_states": randn(10 + i, 1, 7, 32),
        "timestep_cond": None,
        "cross_attention_kwargs": None,
        "added_cond_kwargs": {"text_embeds": randn(20 + i, 1, 32), "time_ids": size},
        "return_dict": False,
    }


def unet_controlled(i: int) -> Arguments:
    shapes = [(1, 16, 8, 8), (1, 16, 8, 8), (1, 16, 4, 4), (1, 32, 4, 4)]
    residuals = [randn(30 + 10 * k + i, *shape) for k, shape in enumerate(shapes)]
    return {
        **unet_call(i),
        "down_block_additional_residuals": residuals,
        "mid_block_additional_residual": randn(80 + i, 1, 32, 4, 4),
    }


def control() -> torch.nn.Module:
    channels = {"conditioning_embedding_out_channels": (8, 8, 8, 8)}
    return strong(diffusers.ControlNetModel.from_unet(unet(), **channels))


def control_call(i: int) -> Arguments:
    call = unet_call(i)
    del call["cross_attention_kwargs"]
    picture = randn(30 + i, 1, 3, 64, 64)
    return {**call, "controlnet_cond": picture, "conditioning_scale": 1.0, "guess_mode": False}


def krea2() -> torch.nn.Module:
    return strong(
        diffusers.Krea2Transformer2DModel(
            in_channels=64,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=32,
            timestep_embed_dim=8,
            text_hidden_dim=16,
            num_text_layers=3,
            text_num_attention_heads=2,
            text_num_key_value_heads=1,
            text_intermediate_size=16,
            num_layerwise_text_blocks=1,
            num_refiner_text_blocks=1,
            axes_dims_rope=(4, 2, 2),
        )
    )


def krea2_call(i: int) -> Arguments:
    return {
        "hidden_states": randn(i, 1, 24, 64),
        "timestep": time(i),
        "position_ids": torch.cat([torch.zeros(7, 3), grid(4, 6, 3)]),
        "attention_kwargs": None,
        "return_dict": False,
        "encoder_hidden_states": randn(10 + i, 1, 7, 3, 16),
        "encoder_attention_mask": mask(7, hidden=2 * i),
    }


def ernie() -> torch.nn.Module:
    return strong(
        diffusers.ErnieImageTransformer2DModel(
            hidden_size=16,
            num_attention_heads=1,
            num_layers=1,
            ffn_hidden_size=16,
            in_channels=16,
            out_channels=16,
            patch_size=1,
            text_in_dim=16,
            rope_theta=256,
            rope_axes_dim=(8, 4, 4),
            qk_layernorm=True,
        )
    )


def ernie_call(i: int) -> Arguments:
    return {
        "hidden_states": randn(i, 1, 16, 4, 4),
        "timestep": time(i),
        "return_dict": False,
        "text_bth": randn(10 + i, 1, 7 - 2 * i, 16),
        "text_lens": torch.tensor([7 - 2 * i]),
    }


def ideogram4() -> torch.nn.Module:
    return strong(
        diffusers.Ideogram4Transformer2DModel(
            in_channels=16,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=4,
            intermediate_size=32,
            adaln_dim=16,
            llm_features_dim=24,
            rope_theta=10000,
            mrope_section=(2, 1, 1),
        )
    )


def ideogram4_call(i: int) -> Arguments:
    from diffusers.models.transformers import transformer_ideogram4 as source

    text, picture = 5, 16
    roles = [source.LLM_TOKEN_INDICATOR] * text + [source.OUTPUT_IMAGE_INDICATOR] * picture
    positions = torch.cat([torch.zeros(text, 3), grid(4, 4, 3) + i])
    return {
        "hidden_states": randn(i, 1, text + picture, 16),
        "timestep": time(i),
        "encoder_hidden_states": randn(10 + i, 1, text + picture, 24),
        "position_ids": positions[None],
        "segment_ids": torch.tensor([[1] * (text - i) + [1 + i] * i + [1] * picture]),
        "indicator": torch.tensor([roles]),
        "return_dict": False,
    }


def anima() -> torch.nn.Module:
    return strong(
        diffusers.CosmosTransformer3DModel(
            in_channels=16,
            out_channels=16,
            num_attention_heads=2,
            attention_head_dim=12,
            num_layers=2,
            mlp_ratio=2,
            text_embed_dim=16,
            adaln_lora_dim=4,
            max_size=(4, 32, 32),
            patch_size=(1, 2, 2),
            rope_scale=(1.0, 1.0, 1.0),
            concat_padding_mask=True,
            extra_pos_embed_type=None,
        )
    )


def anima_call(i: int) -> Arguments:
    return {
        "hidden_states": randn(i, 1, 16, 1, 8, 8),
        "timestep": time(i),
        "padding_mask": torch.zeros(1, 1, 64, 64),
        "return_dict": False,
        "encoder_hidden_states": randn(10 + i, 1, 8, 16),
    }


def anima_text() -> torch.nn.Module:
    return strong(
        diffusers.AnimaTextConditioner(
            source_dim=16,
            target_dim=16,
            model_dim=16,
            num_layers=1,
            num_attention_heads=2,
            target_vocab_size=VOCABULARY,
            min_sequence_length=8,
        )
    )


def anima_text_call(i: int) -> Arguments:
    return {
        "source_hidden_states": randn(i, 1, 7, 16),
        "target_input_ids": tokens(i, 6),
        "target_attention_mask": mask(6, hidden=i, dtype=torch.long),
        "source_attention_mask": mask(7, hidden=2 * i, dtype=torch.long),
    }


# transformers of films and sound

WAN = {
    "patch_size": (1, 2, 2),
    "num_attention_heads": 2,
    "attention_head_dim": 12,
    "in_channels": 16,
    "out_channels": 16,
    "text_dim": 16,
    "freq_dim": 32,
    "ffn_dim": 32,
    "num_layers": 2,
    "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads",
    "rope_max_seq_len": 32,
}


def wan(**config: Any) -> Callable[[], torch.nn.Module]:
    return lambda: strong(diffusers.WanTransformer3DModel(**{**WAN, **config}))


def wan_call(i: int, channels: int = 16) -> Arguments:
    return {
        "hidden_states": randn(i, 1, channels, 2, 4, 4),
        "timestep": time(i, 1000),
        "attention_kwargs": None,
        "return_dict": False,
        "encoder_hidden_states": randn(10 + i, 1, 7, 16),
    }


def wan_image_call(i: int) -> Arguments:
    return {**wan_call(i, 36), "encoder_hidden_states_image": randn(20 + i, 1, 6, 16)}


def wan_vace() -> torch.nn.Module:
    config = {**WAN, "vace_layers": [0], "vace_in_channels": 48}
    return strong(diffusers.WanVACETransformer3DModel(**config))


def wan_vace_call(i: int) -> Arguments:
    return {
        **wan_call(i),
        "control_hidden_states": randn(20 + i, 1, 48, 2, 4, 4),
        "control_hidden_states_scale": torch.ones(1),
    }


def ltx() -> torch.nn.Module:
    return strong(
        diffusers.LTXVideoTransformer3DModel(
            in_channels=8,
            out_channels=8,
            num_attention_heads=2,
            attention_head_dim=8,
            cross_attention_dim=16,
            num_layers=1,
            caption_channels=16,
        )
    )


def ltx_call(i: int) -> Arguments:
    return {
        "hidden_states": randn(i, 1, 8, 8),
        "timestep": time(i, 1000),
        "num_frames": 2,
        "height": 2,
        "width": 2,
        "rope_interpolation_scale": (0.32, 32, 32),
        "attention_kwargs": None,
        "return_dict": False,
        "encoder_hidden_states": randn(10 + i, 1, 7, 16),
        "encoder_attention_mask": mask(7, hidden=2 * i, dtype=torch.float32),
    }


def ltx2() -> torch.nn.Module:
    return strong(
        diffusers.LTX2VideoTransformer3DModel(
            in_channels=8,
            out_channels=8,
            num_attention_heads=2,
            attention_head_dim=8,
            cross_attention_dim=16,
            audio_in_channels=4,
            audio_out_channels=4,
            audio_num_attention_heads=2,
            audio_attention_head_dim=4,
            audio_cross_attention_dim=8,
            num_layers=2,
            caption_channels=16,
            rope_double_precision=False,
        )
    )


def ltx2_call(i: int) -> Arguments:
    return {
        "hidden_states": randn(i, 1, 12, 8),
        "audio_hidden_states": randn(10 + i, 1, 5, 4),
        "timestep": time(i, 1000),
        "audio_timestep": time(i, 900),
        "sigma": time(i, 800),
        "return_dict": False,
        "encoder_hidden_states": randn(20 + i, 1, 7, 16),
        "audio_encoder_hidden_states": randn(30 + i, 1, 7, 16),
        "encoder_attention_mask": mask(7, hidden=i, dtype=torch.float32),
        "audio_encoder_attention_mask": mask(7, hidden=2 * i, dtype=torch.float32),
        "spatio_temporal_guidance_blocks": None,
        "isolate_modalities": False,
        "audio_num_frames": 5,
        "video_coords": randn(40 + i, 1, 3, 12, 2).abs(),
        "audio_coords": randn(50 + i, 1, 1, 5, 2).abs(),
        "num_frames": 3,
        "height": 2,
        "width": 2,
        "fps": 25.0,
        "use_cross_timestep": True,
        "attention_kwargs": None,
        "perturbation_mask": None,
    }


def echo_call(i: int) -> Arguments:
    return {**ltx2_call(i), "audio_sigma": time(i, 700)}


def hunyuan15() -> torch.nn.Module:
    return strong(
        diffusers.HunyuanVideo15Transformer3DModel(
            in_channels=65,
            out_channels=32,
            num_attention_heads=2,
            attention_head_dim=8,
            num_layers=1,
            num_refiner_layers=1,
            mlp_ratio=2.0,
            patch_size=1,
            patch_size_t=1,
            text_embed_dim=16,
            text_embed_2_dim=8,
            image_embed_dim=12,
            rope_axes_dim=(2, 2, 4),
            target_size=16,
            task_type="t2v",
        )
    )


def hunyuan15_text_call(i: int) -> Arguments:
    return {**hunyuan15_image_call(i), "image_embeds": torch.zeros(1, 9, 12)}


def hunyuan15_image_call(i: int) -> Arguments:
    return {
        "hidden_states": randn(i, 1, 65, 2, 4, 4),
        "image_embeds": randn(10 + i, 1, 9, 12),
        "timestep": time(i, 1000),
        "attention_kwargs": None,
        "return_dict": False,
        "encoder_hidden_states": randn(20 + i, 1, 7, 16),
        "encoder_attention_mask": mask(7, hidden=2 * i, dtype=torch.float32),
        "encoder_hidden_states_2": randn(30 + i, 1, 4, 8),
        "encoder_attention_mask_2": mask(4, hidden=i, dtype=torch.float32),
    }


def helios() -> torch.nn.Module:
    return strong(
        diffusers.HeliosTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=2,
            attention_head_dim=12,
            in_channels=16,
            out_channels=16,
            text_dim=16,
            freq_dim=32,
            ffn_dim=32,
            num_layers=2,
            rope_dim=(4, 4, 4),
            has_multi_term_memory_patch=True,
            guidance_cross_attn=True,
            zero_history_timestep=True,
        )
    )


def helios_call(i: int) -> Arguments:
    return {
        "hidden_states": randn(i, 1, 16, 3, 8, 8),
        "timestep": time(i, 1000),
        "return_dict": False,
        "encoder_hidden_states": randn(10 + i, 1, 7, 16),
        "indices_hidden_states": torch.arange(19, 22)[None] + i,
        "indices_latents_history_short": torch.arange(17, 19)[None] + i,
        "indices_latents_history_mid": torch.arange(15, 17)[None] + i,
        "indices_latents_history_long": torch.arange(16)[None] + i,
        "latents_history_short": randn(20 + i, 1, 16, 2, 8, 8),
        "latents_history_mid": randn(30 + i, 1, 16, 2, 8, 8),
        "latents_history_long": randn(40 + i, 1, 16, 16, 8, 8),
        "attention_kwargs": None,
    }


def minimax_h3() -> torch.nn.Module:
    return strong(
        diffusers.MiniMaxH3Transformer3DModel(
            num_attention_heads=2,
            attention_head_dim=16,
            hidden_size=24,
            num_layers=2,
            num_refiner_layers=2,
            ffn_dim=32,
            in_channels=24,
            audio_in_channels=32,
            patch_size=(1, 2, 2),
            text_dim=8,
            freq_dim=8,
            time_embed_hidden_dim=24,
            time_embed_dim=16,
            rope_freq_dim=2,
        )
    )


def minimax_h3_call(i: int) -> Arguments:
    video, sound, text = 8, 6, 5
    total = text + video + sound
    return {
        "hidden_states": randn(i, 1, video, 96),
        "audio_hidden_states": randn(10 + i, 1, sound, 32),
        "encoder_hidden_states": randn(20 + i, 1, text, 8),
        "timestep": torch.tensor([0.8, 0.3]),
        "timestep_indices": torch.tensor([1] * text + [0] * (video + sound)),
        "attention_kwargs": None,
        "return_dict": False,
        "position_ids": grid(total, 1, 3),
        "token_tags": torch.tensor([1] * text + [0] * video + [2] * sound),
        "text_indices": torch.arange(text),
        "video_indices": torch.arange(text, text + video),
        "audio_indices": torch.arange(text + video, total),
    }


def minimax_h3_one_level(i: int) -> Arguments:
    call = minimax_h3_call(i)
    indices = torch.zeros_like(call["timestep_indices"])
    return {**call, "timestep": torch.tensor([0.8]), "timestep_indices": indices}


def music3() -> torch.nn.Module:
    return strong(
        diffusers.MiniMaxMusic3Transformer1DModel(
            in_channels=8,
            condition_dim=16,
            num_layers=2,
            num_attention_heads=2,
            attention_head_dim=8,
            ff_inner_dim=32,
            rotary_dim=4,
            fourier_embedding_dim=8,
        )
    )


def music3_call(i: int) -> Arguments:
    return {
        "hidden_states": randn(i, 1, 8, 30),
        "timestep": time(i),
        "return_dict": False,
        "encoder_hidden_states": randn(10 + i, 1, 30, 16),
    }


def music3_condition() -> torch.nn.Module:
    return strong(
        diffusers.MiniMaxMusic3ConditionEncoder(
            condition_hidden_dim=8, num_condition_layers=2, out_dim=16
        )
    )


# encoders

DECODER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
}
VISION_START, IMAGE = 3, 4
QWEN_VL = {
    "text_config": {
        **DECODER,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
    },
    "vision_config": {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": 32,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 16,
        "fullatt_block_indexes": [1],
    },
    "image_token_id": IMAGE,
    "vision_start_token_id": VISION_START,
}


def clip(cls: type) -> Callable[[], torch.nn.Module]:
    config = transformers.CLIPTextConfig(
        hidden_size=32,
        intermediate_size=64,
        num_attention_heads=2,
        num_hidden_layers=2,
        vocab_size=VOCABULARY,
        projection_dim=32,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return lambda: strong(cls(config))


def clip_call(i: int) -> Arguments:
    ids = tokens(i, 12)
    ids[:, 6 + i :] = 1
    return {"input_ids": ids, "output_hidden_states": True}


def clip_vision(cls: type) -> Callable[[], torch.nn.Module]:
    config = transformers.CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_attention_heads=2,
        num_hidden_layers=2,
        projection_dim=32,
        image_size=16,
        patch_size=4,
    )
    return lambda: strong(cls(config))


def clip_vision_call(i: int) -> Arguments:
    return {"pixel_values": randn(i, 1, 3, 16, 16), "output_hidden_states": True}


def t5(cls: type, config: type) -> Callable[[], torch.nn.Module]:
    made = config(vocab_size=VOCABULARY, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2)
    return lambda: strong(cls(made))


def t5_call(i: int) -> Arguments:
    return {"input_ids": tokens(i, 9 - 3 * i), "output_hidden_states": False}


def masked_call(i: int) -> Arguments:
    """Ids with a mask that hides some of the first request's own."""
    length = 9 - 3 * i
    hidden = mask(length, hidden=2 - 2 * i, dtype=torch.long)
    return {"input_ids": tokens(i, length), "attention_mask": hidden}


def decoder_call(i: int) -> Arguments:
    return {**masked_call(i), "output_hidden_states": True}


def qwen3(cls: type) -> Callable[[], torch.nn.Module]:
    config = transformers.Qwen3Config(**DECODER, head_dim=8)
    return lambda: strong(cls(config))


def mistral3(cls: type) -> Callable[[], torch.nn.Module]:
    vision = transformers.PixtralVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=16,
        patch_size=4,
    )
    text = transformers.MistralConfig(**DECODER, head_dim=8)
    config = transformers.Mistral3Config(vision_config=vision, text_config=text)
    return lambda: strong(cls(config))


def qwen25_vl() -> torch.nn.Module:
    config = transformers.Qwen2_5_VLConfig(**QWEN_VL)
    return strong(transformers.Qwen2_5_VLForConditionalGeneration(config))


def qwen25_vl_text() -> torch.nn.Module:
    config = transformers.Qwen2_5_VLConfig(**QWEN_VL).text_config
    return strong(transformers.Qwen2_5_VLTextModel(config))


def qwen25_vl_images(i: int) -> Arguments:
    """One picture of 4x8 patches in the first request, two of 4x4 in the second."""
    sizes = [(1, 4, 8)] if i == 0 else [(1, 4, 4), (1, 4, 4)]
    ids = [5, 6]
    for frames, height, width in sizes:
        ids += [VISION_START, *[IMAGE] * (frames * height * width // 4), 7 + i]
    ids += [9] * (4 - 3 * i)
    patches = sum(frames * height * width for frames, height, width in sizes)
    return {
        "input_ids": torch.tensor([ids]),
        "attention_mask": mask(len(ids), dtype=torch.long),
        "pixel_values": randn(i, patches, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor(sizes),
        "output_hidden_states": True,
    }


# VAEs


def vae(cls: type, **config: Any) -> Callable[[], torch.nn.Module]:
    shape = {
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "block_out_channels": (8,) * 2,
        "norm_num_groups": 4,
        "latent_channels": 4,
    }
    return lambda: strong(cls(**shape, **config))


def wan_vae() -> torch.nn.Module:
    shape = {"dim_mult": [1, 1, 1, 1], "temperal_downsample": [False, True, True]}
    return strong(diffusers.AutoencoderKLWan(base_dim=4, z_dim=16, num_res_blocks=1, **shape))


def qwen_vae() -> torch.nn.Module:
    shape = {"dim_mult": [1, 1, 1, 1], "temperal_downsample": [False, True, True]}
    return strong(
        diffusers.AutoencoderKLQwenImage(
            base_dim=8, z_dim=16, num_res_blocks=1, attn_scales=[], **shape
        )
    )


def ltx2_vae(**config: Any) -> Callable[[], torch.nn.Module]:
    shape = {
        "in_channels": 3,
        "out_channels": 3,
        "latent_channels": 8,
        "block_out_channels": (8,),
        "decoder_block_out_channels": (8,),
        "layers_per_block": (1,),
        "decoder_layers_per_block": (1, 1),
        "spatio_temporal_scaling": (True,),
        "decoder_spatio_temporal_scaling": (True,),
        "decoder_inject_noise": (False, False),
        "downsample_type": ("spatial",),
        "upsample_residual": (False,),
        "upsample_factor": (1,),
        "patch_size": 1,
        "patch_size_t": 1,
    }
    return lambda: strong(diffusers.AutoencoderKLLTX2Video(**shape, **config))


def ltx2_audio_vae() -> torch.nn.Module:
    return strong(
        diffusers.AutoencoderKLLTX2Audio(
            base_channels=4,
            output_channels=2,
            ch_mult=(1,),
            num_res_blocks=1,
            attn_resolutions=None,
            in_channels=2,
            resolution=32,
            latent_channels=2,
            norm_type="pixel",
            causality_axis="height",
            dropout=0.0,
            mid_block_add_attention=False,
            sample_rate=16000,
            mel_hop_length=160,
            is_causal=True,
            mel_bins=8,
        )
    )


def ltx2_vocoder() -> torch.nn.Module:
    return strong(
        LTX2Vocoder(
            in_channels=16,
            hidden_channels=16,
            out_channels=2,
            upsample_kernel_sizes=[4, 4],
            upsample_factors=[2, 2],
            resnet_kernel_sizes=[3],
            resnet_dilations=[[1, 3, 5]],
        )
    )


def encode(*shape: int) -> Callable[[int], Arguments]:
    return lambda i: {"x": randn(i, 1, *shape)}


def decode(*shape: int) -> Callable[[int], Arguments]:
    return lambda i: {"z": randn(i, 1, *shape), "return_dict": False}


def timed_decode(i: int) -> Arguments:
    return {"z": randn(i, 1, 8, 2, 4, 4), "temb": time(i), "return_dict": False}


_KL = {"use_quant_conv": False, "use_post_quant_conv": False}
_kl = vae(diffusers.AutoencoderKL, **_KL)
_kl_flux2 = vae(diffusers.AutoencoderKLFlux2, **_KL)

CASES = {
    "anima": Case("CosmosTransformer3DModel", anima, anima_call),
    "anima text": Case("AnimaTextConditioner", anima_text, anima_text_call),
    "controlnet": Case("ControlNetModel", control, control_call),
    "ernie": Case("ErnieImageTransformer2DModel", ernie, ernie_call),
    "flux": Case("FluxTransformer2DModel", flux, flux_call),
    "flux 2": Case("Flux2Transformer2DModel", flux2, flux2_call),
    "helios": Case("HeliosTransformer3DModel", helios, helios_call),
    "hunyuan 1.5 from text": Case(
        "HunyuanVideo15Transformer3DModel",
        hunyuan15,
        hunyuan15_text_call,
        apart={"image_embeds": randn(1, 1, 9, 12)},
    ),
    "hunyuan 1.5 from a picture": Case(
        "HunyuanVideo15Transformer3DModel",
        hunyuan15,
        hunyuan15_image_call,
        apart={"image_embeds": torch.zeros(1, 9, 12)},
    ),
    "ideogram 4": Case("Ideogram4Transformer2DModel", ideogram4, ideogram4_call),
    "krea 2": Case("Krea2Transformer2DModel", krea2, krea2_call),
    "ltx": Case("LTXVideoTransformer3DModel", ltx, ltx_call),
    "ltx 2": Case("LTX2VideoTransformer3DModel", ltx2, ltx2_call),
    "echo": Case("LTX2VideoTransformer3DModel", ltx2, echo_call),
    "minimax h3": Case("MiniMaxH3Transformer3DModel", minimax_h3, minimax_h3_call),
    "minimax h3, one noise level": Case(
        "MiniMaxH3Transformer3DModel",
        minimax_h3,
        minimax_h3_one_level,
        layout=frozenset({"timestep_indices"}),
    ),
    "music 3": Case("MiniMaxMusic3Transformer1DModel", music3, music3_call),
    "music 3 condition": Case(
        "MiniMaxMusic3ConditionEncoder",
        music3_condition,
        lambda i: {"hidden_states": randn(i, 1, 20, 16)},
    ),
    "qwen image": Case("QwenImageTransformer2DModel", qwen(), qwen_call),
    "qwen image with control": Case("QwenImageTransformer2DModel", qwen(), qwen_controlled),
    "qwen image edit": Case("QwenImageTransformer2DModel", qwen(zero_cond_t=True), qwen_edit),
    "qwen image layered": Case(
        "QwenImageTransformer2DModel",
        qwen(use_additional_t_cond=True, use_layer3d_rope=True),
        qwen_layered,
    ),
    "qwen image control": Case("QwenImageControlNetModel", qwen_control, qwen_control_call),
    "qwen image 2.1": Case(
        "QwenImage21Transformer2DModel",
        qwen21,
        qwen21_call,
        apart={"img_mask": picture_slots(4)},
    ),
    "sd 3": Case("SD3Transformer2DModel", sd3, sd3_call),
    "sdxl": Case("UNet2DConditionModel", unet, unet_call),
    "sdxl with control": Case("UNet2DConditionModel", unet, unet_controlled),
    "wan": Case("WanTransformer3DModel", wan(), wan_call),
    "wan from a picture": Case(
        "WanTransformer3DModel", wan(in_channels=36, image_dim=16), wan_image_call
    ),
    "wan vace": Case("WanVACETransformer3DModel", wan_vace, wan_vace_call),
    "z-image": Case("ZImageTransformer2DModel", z_image, z_image_call),
    "clip": Case("CLIPTextModel", clip(transformers.CLIPTextModel), clip_call),
    "clip projected": Case(
        "CLIPTextModelWithProjection", clip(transformers.CLIPTextModelWithProjection), clip_call
    ),
    "clip vision": Case(
        "CLIPVisionModel", clip_vision(transformers.CLIPVisionModel), clip_vision_call
    ),
    "clip vision projected": Case(
        "CLIPVisionModelWithProjection",
        clip_vision(transformers.CLIPVisionModelWithProjection),
        clip_vision_call,
    ),
    "t5": Case("T5EncoderModel", t5(transformers.T5EncoderModel, transformers.T5Config), t5_call),
    "umt5": Case(
        "UMT5EncoderModel", t5(transformers.UMT5EncoderModel, transformers.UMT5Config), masked_call
    ),
    "qwen 3": Case("Qwen3Model", qwen3(transformers.Qwen3Model), decoder_call),
    "qwen 3 lm": Case("Qwen3ForCausalLM", qwen3(transformers.Qwen3ForCausalLM), decoder_call),
    "mistral 3": Case("Mistral3Model", mistral3(transformers.Mistral3Model), decoder_call),
    "mistral 3 lm": Case(
        "Mistral3ForConditionalGeneration",
        mistral3(transformers.Mistral3ForConditionalGeneration),
        decoder_call,
    ),
    "qwen 2.5 vl": Case("Qwen2_5_VLForConditionalGeneration", qwen25_vl, decoder_call),
    "qwen 2.5 vl with pictures": Case(
        "Qwen2_5_VLForConditionalGeneration",
        qwen25_vl,
        qwen25_vl_images,
        layout=frozenset({"image_grid_thw"}),
    ),
    "qwen 2.5 vl text": Case("Qwen2_5_VLTextModel", qwen25_vl_text, decoder_call),
    "kl encode": Case("AutoencoderKL", _kl, encode(3, 16, 16), "encode"),
    "kl decode": Case("AutoencoderKL", _kl, decode(4, 8, 8), "decode"),
    "kl flux 2 encode": Case("AutoencoderKLFlux2", _kl_flux2, encode(3, 16, 16), "encode"),
    "kl flux 2 decode": Case("AutoencoderKLFlux2", _kl_flux2, decode(4, 8, 8), "decode"),
    "wan vae encode": Case("AutoencoderKLWan", wan_vae, encode(3, 5, 16, 16), "encode"),
    "wan vae decode": Case("AutoencoderKLWan", wan_vae, decode(16, 2, 2, 2), "decode"),
    "qwen vae encode": Case("AutoencoderKLQwenImage", qwen_vae, encode(3, 1, 16, 16), "encode"),
    "qwen vae decode": Case("AutoencoderKLQwenImage", qwen_vae, decode(16, 1, 2, 2), "decode"),
    "ltx 2 vae encode": Case("AutoencoderKLLTX2Video", ltx2_vae(), encode(3, 3, 8, 8), "encode"),
    "ltx 2 vae decode": Case("AutoencoderKLLTX2Video", ltx2_vae(), decode(8, 2, 4, 4), "decode"),
    "ltx 2 vae timed decode": Case(
        "AutoencoderKLLTX2Video", ltx2_vae(timestep_conditioning=True), timed_decode, "decode"
    ),
    "ltx 2 audio decode": Case("AutoencoderKLLTX2Audio", ltx2_audio_vae, decode(2, 5, 8), "decode"),
    "ltx 2 vocoder": Case(
        "LTX2Vocoder", ltx2_vocoder, lambda i: {"hidden_states": randn(i, 1, 2, 6, 8)}
    ),
}
"""By name; one or more for every spec."""
