"""Tiny random-weight checkpoints in the real classes, saved as transformers saves them.

Norms and biases are random, too: a norm that is left out or applied twice must show.
"""

import json

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

WIDTH = 128
VOCABULARY = 384
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
MROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]}
VISION = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": WIDTH,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
WINDOWS = {"window_size": 112, "fullatt_block_indexes": [1]}
CHAT = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'text' %}{{ p.text }}"
    "{% else %}{{ placeholders[p.type] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(folder, special=(), **placeholders):
    """A byte-level tokenizer with a chat template; saved to `folder`."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, special_tokens=[])
    made.train_from_iterator(["the red circle and the blue square on white"], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made,
        additional_special_tokens=[*CHAT, *special],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    shown = ", ".join(f"'{kind}': '{text}'" for kind, text in placeholders.items())
    fast.chat_template = f"{{% set placeholders = {{{shown}}} %}}{TEMPLATE}"
    fast.save_pretrained(folder)
    return fast


def randomise(model, seed):
    """Weights that make every part matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or "ln_" in name:
                weight.uniform_(0.5, 1.5, generator=generator)
            elif name.endswith("bias"):
                weight.normal_(0, 0.02, generator=generator)
            else:
                weight.normal_(0, 0.12, generator=generator)
    return model.float().eval()


def chat_model(folder, seed=0):
    """A text-only chat model of Qwen3's class."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    ids = tokenizer(folder).get_vocab()
    config = Qwen3Config(**TEXT, head_dim=32, eos_token_id=ids["<|im_end|>"])
    return _saved(Qwen3ForCausalLM(config), folder, seed)


def text_encoder(folder, seed=0):
    """Qwen-Image's encoder: Qwen2.5-VL with a vestigial vision tower, and a tokenizer."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    names = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    ids = tokenizer(folder, names).get_vocab()
    config = Qwen2_5_VLConfig(
        text_config={**TEXT, "rope_parameters": MROPE, "bos_token_id": None},
        vision_config={**VISION, **WINDOWS},
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )
    return _saved(Qwen2_5_VLForConditionalGeneration(config), folder, seed)


OMNI = {
    "image": "<|vision_bos|><|IMAGE|><|vision_eos|>",
    "video": "<|vision_bos|><|VIDEO|><|vision_eos|>",
    "audio": "<|audio_bos|><|AUDIO|><|audio_eos|>",
}
OMNI_TOKENS = [
    "<|vision_bos|>",
    "<|vision_eos|>",
    "<|audio_bos|>",
    "<|audio_eos|>",
    "<|IMAGE|>",
    "<|VIDEO|>",
    "<|AUDIO|>",
]


def qwen25_omni(folder, seed=0):
    """Qwen2.5-Omni's Thinker, with its processor; no talker."""
    from transformers import (
        Qwen2_5OmniConfig,
        Qwen2_5OmniForConditionalGeneration,
        Qwen2_5OmniProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
        WhisperFeatureExtractor,
    )

    fast = tokenizer(folder, OMNI_TOKENS, **OMNI)
    ids = fast.get_vocab()
    thinker = {
        "text_config": {**TEXT, "rope_parameters": MROPE, "eos_token_id": ids["<|im_end|>"]},
        "audio_config": {
            "d_model": 32,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "num_mel_bins": 128,
            "output_dim": WIDTH,
            "n_window": 100,
            "max_source_positions": 1500,
        },
        "vision_config": {**VISION, **WINDOWS},
        "audio_token_index": ids["<|AUDIO|>"],
        "image_token_index": ids["<|IMAGE|>"],
        "video_token_index": ids["<|VIDEO|>"],
        **_edges(ids),
    }
    config = Qwen2_5OmniConfig(thinker_config=thinker, enable_audio_output=False)
    model = _saved(
        Qwen2_5OmniForConditionalGeneration(config), folder, seed, architecture="Qwen2_5OmniModel"
    )
    _save_processor(
        Qwen2_5OmniProcessor,
        fast,
        folder,
        image_processor=Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=56 * 56),
        video_processor=Qwen2VLVideoProcessor(),
        feature_extractor=WhisperFeatureExtractor(feature_size=128),
    )
    return model.thinker


def qwen3_omni(folder, seed=0):
    """Qwen3-Omni's mixture-of-experts Thinker, with its processor; no talker."""
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen3OmniMoeConfig,
        Qwen3OmniMoeForConditionalGeneration,
        Qwen3OmniMoeProcessor,
        Qwen3VLVideoProcessor,
        WhisperFeatureExtractor,
    )

    fast = tokenizer(folder, OMNI_TOKENS, **OMNI)
    ids = fast.get_vocab()
    thinker = {
        "text_config": {
            **TEXT,
            "head_dim": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "rope_parameters": {**MROPE, "mrope_interleaved": True},
        },
        "audio_config": {
            "d_model": 32,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "num_mel_bins": 128,
            "output_dim": WIDTH,
            "downsample_hidden_size": 16,
            "n_window": 50,
            "n_window_infer": 100,
        },
        "vision_config": {
            **VISION,
            "patch_size": 16,
            "deepstack_visual_indexes": [0],
            "num_position_embeddings": 64,
            "image_size": 128,  # vLLM reads these two, transformers does not
            "apply_vit_abs_pos_embed": True,
        },
        "audio_token_id": ids["<|AUDIO|>"],
        "image_token_id": ids["<|IMAGE|>"],
        "video_token_id": ids["<|VIDEO|>"],
        **_edges(ids),
    }
    config = Qwen3OmniMoeConfig(thinker_config=thinker, enable_audio_output=False)
    model = _saved(Qwen3OmniMoeForConditionalGeneration(config), folder, seed)
    _save_processor(
        Qwen3OmniMoeProcessor,
        fast,
        folder,
        image_processor=Qwen2VLImageProcessor(
            min_pixels=32 * 32, max_pixels=64 * 64, patch_size=16
        ),
        video_processor=Qwen3VLVideoProcessor(),
        feature_extractor=WhisperFeatureExtractor(feature_size=128),
    )
    return model.thinker


def _edges(ids):
    return {
        "vision_start_token_id": ids["<|vision_bos|>"],
        "vision_end_token_id": ids["<|vision_eos|>"],
        "audio_start_token_id": ids["<|audio_bos|>"],
        "audio_end_token_id": ids["<|audio_eos|>"],
        "user_token_id": 20,
    }


def _saved(model, folder, seed, architecture=None):
    randomise(model, seed).save_pretrained(folder)
    if architecture is not None:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "architectures": [architecture]}))
    return model


def _save_processor(cls, fast, folder, **parts):
    named = {
        "image_token": "<|IMAGE|>",
        "audio_token": "<|AUDIO|>",
        "video_token": "<|VIDEO|>",
        "vision_bos_token": "<|vision_bos|>",
        "vision_eos_token": "<|vision_eos|>",
        "audio_bos_token": "<|audio_bos|>",
        "audio_eos_token": "<|audio_eos|>",
    }
    for name, token in named.items():
        setattr(fast, name, token)
        fast.init_kwargs[name] = token
    cls(tokenizer=fast, chat_template=fast.chat_template, **parts).save_pretrained(folder)
