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


CODES = 64
CODEC_WIDTH = 64
VOICE_TOKENS = {"Chelsie": "<|chelsie|>", "Ethan": "<|ethan|>"}
TTS_TOKENS = ["<|tts_bos|>", "<|tts_eos|>", "<|tts_pad|>"]


def qwen25_omni(folder, seed=0):
    """Qwen2.5-Omni's Thinker, with its processor; no talker."""
    return _qwen25(folder, seed).thinker


def qwen25_omni_speaking(folder, seed=0):
    """All of Qwen2.5-Omni: Thinker, Talker, token2wav and two voices."""
    ids = tokenizer(folder, [*OMNI_TOKENS, *TTS_TOKENS, *VOICE_TOKENS.values()]).get_vocab()
    model = _qwen25(
        folder,
        seed,
        special=[*TTS_TOKENS, *VOICE_TOKENS.values()],
        talker_config=_qwen25_talker(ids),
        token2wav_config={"dit_config": DIT, "bigvgan_config": BIGVGAN},
    )
    generator = torch.Generator().manual_seed(seed)
    model.speaker_map = {
        voice: {
            "bos_token": ids[token],
            "cond": torch.randn(1, DIT["enc_emb_dim"], generator=generator),
            "ref_mel": torch.randn(1, 40, MELS, generator=generator),
        }
        for voice, token in VOICE_TOKENS.items()
    }
    torch.save(model.speaker_map, folder / "spk_dict.pt")
    return model


MELS = 80
DIT = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "head_dim": 32,
    "ff_mult": 2,
    "emb_dim": 32,
    "block_size": 24,
    "look_ahead_layers": [1],
    "look_backward_layers": [0, 2],
    "num_embeds": CODES + 4,
    "mel_dim": MELS,
    "dropout": 0.0,
    "enc_emb_dim": 16,
    "enc_dim": 16,
    "enc_channels": [16, 16, 16, 16, 48],
    "enc_attention_channels": 8,
    "enc_res2net_scale": 2,
    "enc_se_channels": 8,
    "max_position_embeddings": 4096,
}
BIGVGAN = {
    "mel_dim": MELS,
    "upsample_initial_channel": 32,
    "resblock_kernel_sizes": [3],
    "resblock_dilation_sizes": [[1, 3, 5]],
    "upsample_rates": [6, 5, 4, 2],
    "upsample_kernel_sizes": [12, 11, 8, 4],
}


def _qwen25_talker(ids):
    return {
        "vocab_size": CODES + 4,
        "tts_codec_pad_token_id": CODES,
        "tts_codec_start_token_id": CODES + 1,
        "tts_codec_end_token_id": CODES + 2,
        "tts_codec_mask_token_id": CODES + 3,
        "tts_text_start_token_id": ids["<|tts_bos|>"],
        "tts_text_end_token_id": ids["<|tts_eos|>"],
        "tts_text_pad_token_id": ids["<|tts_pad|>"],
        "embedding_size": WIDTH,
        "hidden_size": CODEC_WIDTH,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,  # as in the real ones, not hidden_size / head_dim
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 2048,
        "rope_parameters": MROPE,
        "audio_token_index": ids["<|AUDIO|>"],
        "image_token_index": ids["<|IMAGE|>"],
        "video_token_index": ids["<|VIDEO|>"],
        **_edges(ids),
    }


def _qwen25(folder, seed, special=(), **speaking):
    """The model; `speaking` is what the config says of the parts that speak."""
    from transformers import (
        Qwen2_5OmniConfig,
        Qwen2_5OmniForConditionalGeneration,
        Qwen2_5OmniProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
        WhisperFeatureExtractor,
    )

    fast = tokenizer(folder, [*OMNI_TOKENS, *special], **OMNI)
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
    config = Qwen2_5OmniConfig(
        thinker_config=thinker, enable_audio_output=bool(speaking), **speaking
    )
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
    return model


def qwen3_omni(folder, seed=0):
    """Qwen3-Omni's mixture-of-experts Thinker, with its processor; no talker."""
    return _qwen3(folder, seed).thinker


GROUPS = 4
"""Codebooks of a frame of Qwen3-Omni's speech."""
ROLES = ["system", "user", "assistant"]
"""A token each, as transformers takes for granted."""
SPECIAL_CODES = 1024
"""At the end of the vocabulary of Qwen3-Omni's Talker; all but one are never chosen."""
CODE2WAV = {
    "codebook_size": CODES,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": 8,
    "num_quantizers": GROUPS,
    "upsample_rates": [8, 5, 4, 3],
    "upsampling_ratios": [2, 2],
    "decoder_dim": 32,
}


def qwen3_omni_speaking(folder, seed=0):
    """All of Qwen3-Omni: Thinker, Talker with its code predictor, code2wav and two voices."""
    special = [*TTS_TOKENS, *ROLES]
    ids = tokenizer(folder, [*OMNI_TOKENS, *special]).get_vocab()
    return _qwen3(
        folder,
        seed,
        special=special,
        talker_config=_qwen3_talker(ids),
        code2wav_config=CODE2WAV,
        tts_bos_token_id=ids["<|tts_bos|>"],
        tts_eos_token_id=ids["<|tts_eos|>"],
        tts_pad_token_id=ids["<|tts_pad|>"],
        im_start_token_id=ids["<|im_start|>"],
        im_end_token_id=ids["<|im_end|>"],
        **{f"{role}_token_id": ids[role] for role in ROLES},
    )


def _qwen3_talker(ids):
    inner = {
        "hidden_size": CODEC_WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 2048,
    }
    special = {name: code for code, name in enumerate(SPECIAL_NAMES, CODES)}
    voices = {"chelsie": CODES + 10, "ethan": CODES + 11}
    return {
        **special,
        "speaker_id": voices,
        "num_code_groups": GROUPS,
        "thinker_hidden_size": WIDTH,
        "accept_hidden_layer": 2,
        "spatial_merge_size": VISION["spatial_merge_size"],
        "text_config": {
            **inner,
            "vocab_size": CODES + SPECIAL_CODES,
            "intermediate_size": 96,
            "moe_intermediate_size": 48,
            "shared_expert_intermediate_size": 80,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "rope_parameters": {**MROPE, "mrope_interleaved": True},
        },
        "code_predictor_config": {
            **inner,
            "vocab_size": CODES,
            "intermediate_size": 96,
            "num_code_groups": GROUPS,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
        "audio_token_id": ids["<|AUDIO|>"],
        "image_token_id": ids["<|IMAGE|>"],
        "video_token_id": ids["<|VIDEO|>"],
        "vision_start_token_id": ids["<|vision_bos|>"],
        "audio_start_token_id": ids["<|audio_bos|>"],
    }


SPECIAL_NAMES = (
    "codec_pad_id",
    "codec_bos_id",
    "codec_eos_token_id",
    "codec_nothink_id",
    "codec_think_bos_id",
    "codec_think_eos_id",
)


def _qwen3(folder, seed, special=(), **speaking):
    """The model; `speaking` is what the config says of the parts that speak."""
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen3OmniMoeConfig,
        Qwen3OmniMoeForConditionalGeneration,
        Qwen3OmniMoeProcessor,
        Qwen3VLVideoProcessor,
        WhisperFeatureExtractor,
    )

    fast = tokenizer(folder, [*OMNI_TOKENS, *special], **OMNI)
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
    config = Qwen3OmniMoeConfig(
        thinker_config=thinker, enable_audio_output=bool(speaking), **speaking
    )
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
    return model


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


def talks_on(folder):
    """Have a Qwen2.5 Talker of random weights choose no special code: it ends at its limit.

    Its first channel is large whatever it is told, and speaks against those codes.
    """
    from safetensors.torch import load_file, save_file

    config = json.loads((folder / "config.json").read_text())["talker_config"]
    special = [value for name, value in config.items() if name.startswith("tts_codec_")]
    weights = load_file(folder / "model.safetensors")
    weights["talker.thinker_to_talker_proj.bias"][0] += 6
    head = weights["talker.codec_head.weight"]
    head[:, 0] = 0
    head[special, 0] = -6
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
