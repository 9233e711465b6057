"""Text and picture encoders of the real classes, each as wide as WIDTH."""

from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPVisionConfig,
    CLIPVisionModel,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SiglipVisionConfig,
    SiglipVisionModel,
    T5Config,
    T5EncoderModel,
    UMT5Config,
    UMT5EncoderModel,
)

from .weights import effective

WIDTH = 32
SIZES = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
DECODER = {**SIZES, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 8192}
T5_SIZES = {"d_model": WIDTH, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2}
PICTURE = 28
"""Side of the pictures that vision towers take."""


def clip_text(tokenizer, seed, projected=False):
    """CLIP's text tower; `projected` with the projection that SDXL and SD3 read."""
    config = CLIPTextConfig(
        **SIZES,
        vocab_size=len(tokenizer),
        projection_dim=WIDTH,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    made = CLIPTextModelWithProjection if projected else CLIPTextModel
    return effective(made(config), seed)


def clip_vision(seed):
    config = CLIPVisionConfig(**SIZES, projection_dim=WIDTH, image_size=PICTURE, patch_size=14)
    return effective(CLIPVisionModel(config), seed)


def siglip_vision(seed):
    config = SiglipVisionConfig(**SIZES, image_size=PICTURE, patch_size=14)
    return effective(SiglipVisionModel(config), seed)


def t5(tokenizer, seed, width=WIDTH):
    config = T5Config(
        **{**T5_SIZES, "d_model": width},
        vocab_size=len(tokenizer),
        feed_forward_proj="gated-gelu",
    )
    return effective(T5EncoderModel(config), seed)


def umt5(tokenizer, seed):
    config = UMT5Config(**T5_SIZES, vocab_size=len(tokenizer), feed_forward_proj="gated-gelu")
    return effective(UMT5EncoderModel(config), seed)


def qwen25_vl(tokenizer, seed):
    ids = tokenizer.get_vocab()
    text = {
        **DECODER,
        "vocab_size": len(tokenizer),
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]},
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "out_hidden_size": WIDTH,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [1],
    }
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )
    return effective(Qwen2_5_VLForConditionalGeneration(config), seed)


def qwen3(tokenizer, seed, layers=2):
    config = Qwen3Config(
        **{**DECODER, "num_hidden_layers": layers},
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    return effective(Qwen3ForCausalLM(config), seed)


def qwen3_vl(tokenizer, seed, layers):
    """Of families that read many of its layers."""
    ids = tokenizer.get_vocab()
    text = {
        **DECODER,
        "num_attention_heads": 1,
        "num_hidden_layers": layers,
        "vocab_size": len(tokenizer),
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [4, 2, 2]},
        "eos_token_id": tokenizer.eos_token_id,
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "out_hidden_size": WIDTH,
        "patch_size": 16,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    }
    config = Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    return effective(Qwen3VLForConditionalGeneration(config), seed)


def mistral3(tokenizer, seed, layers):
    """Flux 2's: a text tower of `layers` layers and Pixtral's for pictures."""
    text = {
        "model_type": "mistral",
        **DECODER,
        "num_hidden_layers": layers,
        "vocab_size": len(tokenizer),
    }
    vision = {
        "model_type": "pixtral",
        **SIZES,
        "num_hidden_layers": 1,
        "head_dim": 16,
        "image_size": 56,
        "patch_size": 14,
    }
    config = Mistral3Config(
        text_config=text,
        vision_config=vision,
        image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"),
    )
    return effective(Mistral3ForConditionalGeneration(config), seed)


def gemma3(tokenizer, seed):
    """LTX-2's: it reads every layer."""
    text = {**DECODER, "vocab_size": len(tokenizer), "sliding_window": 64}
    vision = {**SIZES, "num_hidden_layers": 1, "image_size": 28, "patch_size": 14}
    config = Gemma3Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=1,
        image_token_index=tokenizer.convert_tokens_to_ids("<image_soft_token>"),
    )
    return effective(Gemma3ForConditionalGeneration(config), seed)
