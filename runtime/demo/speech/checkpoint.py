"""Builds, saves and loads the demo voice in Qwen2.5-Omni's real classes.

Owns the architecture and its initialisation. Knows nothing of data or training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2_5OmniConfig,
    Qwen2_5OmniForConditionalGeneration,
    Qwen2_5OmniProcessor,
    Qwen2_5OmniTalkerForConditionalGeneration,
    Qwen2_5OmniThinkerForConditionalGeneration,
    Qwen2_5OmniToken2WavBigVGANModel,
    Qwen2_5OmniToken2WavDiTModel,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    WhisperFeatureExtractor,
)

from .codec import CODES, FRAMES
from .mel import MEL_BANDS
from .tokenizer import IM_END, MEDIA, PAD, TEXT_END, TEXT_PAD, VOICE_STARTS

CHECKPOINT: Final = Path(__file__).parent / "checkpoints" / "qwen-omni-digits"
MAX_CHECKPOINT_BYTES: Final = 12_000_000
WIDTH: Final = 128
SPEAKER_WIDTH: Final = 32
CODEC_PAD: Final = CODES + 1
CODEC_START: Final = CODES + 2
CODEC_END: Final = CODES + 3
CODEC_MASK: Final = CODES + 4
STEPS: Final = 2
GUIDANCE: Final = 0.0
"""Points in time of the codec's solver, and its guidance; more of them is not heard better."""

_CODEC_VOCABULARY: Final = CODES + 8
_POSITIONS: Final = 2048
_SPEAKERS: Final = "spk_dict.pt"
_OWN: Final = {
    "codec_decode": {
        "steps": {"default": STEPS},
        "guidance": {"default": GUIDANCE},
        "chunk": {"default": 48},
        "left_context": {"default": 12},
    }
}
"""For `omnistage.json`: what serves this checkpoint better than the family's defaults."""


def omni_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5OmniConfig:
    """The whole model: 0.7 M parameters think, 1.4 M talk, 2.7 M make sound."""
    ids = tokenizer.get_vocab()
    return Qwen2_5OmniConfig(
        thinker_config=_thinker(ids),
        talker_config=_talker(ids),
        token2wav_config={"dit_config": _dit(), "bigvgan_config": _bigvgan()},
        enable_audio_output=True,
    )


def build(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5OmniForConditionalGeneration:
    """The untrained model, complete."""
    model = Qwen2_5OmniForConditionalGeneration(omni_config(tokenizer)).eval()
    _start_thinker(model.thinker)
    _start_talker(model.talker)
    _start_dit(model.token2wav.code2wav_dit_model)
    _start_bigvgan(model.token2wav.code2wav_bigvgan_model)
    return model


def save(
    model: Qwen2_5OmniForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    speakers: Mapping[str, Mapping[str, Any]],
    folder: Path,
) -> None:
    """Writes the checkpoint with bfloat16 weights, as Qwen's is laid out; converts ``model``.

    Args:
        model: complete and trained.
        tokenizer: its own.
        speakers: for each voice ``bos_token``, ``cond`` [1, 32] and ``ref_mel`` [1, T, 80].
        folder: created if need be.
    """
    model.to(torch.bfloat16).save_pretrained(folder)
    _plain(folder / "config.json")
    torch.save({name: dict(facts) for name, facts in speakers.items()}, folder / _SPEAKERS)
    processor = Qwen2_5OmniProcessor(
        image_processor=Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=56 * 56),
        video_processor=Qwen2VLVideoProcessor(min_pixels=28 * 28, max_pixels=56 * 56),
        feature_extractor=WhisperFeatureExtractor(feature_size=128),
        tokenizer=tokenizer,
        chat_template=tokenizer.chat_template,
    )
    processor.save_pretrained(folder)
    # The processor saves the template in a file of its own; vLLM reads the tokenizer's.
    tokenizer.save_pretrained(folder)
    GenerationConfig(
        do_sample=True,
        top_k=1,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    ).save_pretrained(folder)
    (folder / "omnistage.json").write_text(json.dumps(_OWN, indent=2) + "\n")


def load(folder: Path = CHECKPOINT) -> Qwen2_5OmniForConditionalGeneration:
    """Loads a checkpoint for the CPU: the bfloat16 weights, computed in float32."""
    return Qwen2_5OmniForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


def checkpoint_bytes(folder: Path = CHECKPOINT) -> int:
    """Total size of a checkpoint's files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def round_to_bf16(module: nn.Module) -> None:
    """Rounds weights as they will be saved, and keeps computing in float32."""
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(tensor.to(torch.bfloat16).float())


def _thinker(ids: Mapping[str, int]) -> dict[str, Any]:
    return {
        "text_config": {
            "vocab_size": len(ids),
            "hidden_size": WIDTH,
            "intermediate_size": 320,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": _POSITIONS,
            "rope_parameters": _rope(),
            "tie_word_embeddings": False,
            "eos_token_id": ids[IM_END],
            "pad_token_id": ids[PAD],
        },
        "audio_config": {
            "d_model": 32,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "num_mel_bins": 128,
            "output_dim": WIDTH,
            "n_window": 100,
            "max_source_positions": 1500,
        },
        "vision_config": {
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": WIDTH,
            "patch_size": 14,
            "window_size": 112,
            "fullatt_block_indexes": [0],
        },
        "tie_word_embeddings": False,
        "user_token_id": ids["user"],
        "pad_token_id": ids[PAD],
        **_media(ids),
    }


def _talker(ids: Mapping[str, int]) -> dict[str, Any]:
    return {
        "vocab_size": _CODEC_VOCABULARY,
        "embedding_size": WIDTH,
        "hidden_size": 192,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": _POSITIONS,
        "rope_parameters": _rope(),
        "tts_text_start_token_id": ids[VOICE_STARTS["Chelsie"]],
        "tts_text_end_token_id": ids[TEXT_END],
        "tts_text_pad_token_id": ids[TEXT_PAD],
        "tts_codec_pad_token_id": CODEC_PAD,
        "tts_codec_start_token_id": CODEC_START,
        "tts_codec_end_token_id": CODEC_END,
        "tts_codec_mask_token_id": CODEC_MASK,
        "pad_token_id": None,
        **_media(ids),
    }


def _dit() -> dict[str, Any]:
    return {
        "hidden_size": 192,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "head_dim": 48,
        "ff_mult": 2,
        "emb_dim": 64,
        "block_size": 24,
        "look_ahead_layers": [1],
        "look_backward_layers": [0, 2],
        "num_embeds": CODES + 1,
        "repeats": FRAMES,
        "mel_dim": MEL_BANDS,
        "dropout": 0.0,
        "enc_emb_dim": SPEAKER_WIDTH,
        "enc_dim": SPEAKER_WIDTH,
        "enc_channels": [32, 32, 32, 32, 96],
        "enc_attention_channels": 16,
        "enc_res2net_scale": 2,
        "enc_se_channels": 16,
        "max_position_embeddings": 8192,
    }


def _bigvgan() -> dict[str, Any]:
    """Rates whose product is the hop; each kernel exceeds its rate by an even number."""
    return {
        "mel_dim": MEL_BANDS,
        "upsample_initial_channel": 128,
        "upsample_rates": [6, 5, 4, 2],
        "upsample_kernel_sizes": [12, 11, 8, 4],
        "resblock_kernel_sizes": [3],
        "resblock_dilation_sizes": [[1, 3, 5]],
    }


def _rope() -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]}


def _media(ids: Mapping[str, int]) -> dict[str, int]:
    return {
        "image_token_index": ids[MEDIA["image_token"]],
        "audio_token_index": ids[MEDIA["audio_token"]],
        "video_token_index": ids[MEDIA["video_token"]],
        "vision_start_token_id": ids[MEDIA["vision_bos_token"]],
        "vision_end_token_id": ids[MEDIA["vision_eos_token"]],
        "audio_start_token_id": ids[MEDIA["audio_bos_token"]],
        "audio_end_token_id": ids[MEDIA["audio_eos_token"]],
    }


def _start_thinker(thinker: Qwen2_5OmniThinkerForConditionalGeneration) -> None:
    _reset_linear(thinker.model)
    nn.init.normal_(thinker.model.embed_tokens.weight, std=0.3)


def _start_talker(talker: Qwen2_5OmniTalkerForConditionalGeneration) -> None:
    """`generate` adds the rows of start and pad only to padded requests; they must not count."""
    _reset_linear(talker)
    nn.init.normal_(talker.model.embed_tokens.weight, std=0.3)
    with torch.no_grad():
        talker.model.embed_tokens.weight[[CODEC_PAD, CODEC_START]] = 0


def _reset_linear(module: nn.Module) -> None:
    """torch's own start, which suits narrow layers better than a standard deviation of 0.02."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            part.reset_parameters()


def _start_dit(dit: Qwen2_5OmniToken2WavDiTModel) -> None:
    """torch's own start, and modulation from zero (adaLN-zero)."""
    for module in dit.modules():
        if isinstance(module, nn.Conv1d | nn.Linear):
            module.reset_parameters()
    for block in dit.transformer_blocks:
        nn.init.zeros_(block.attn_norm.linear.weight)
        nn.init.zeros_(block.attn_norm.linear.bias)
    nn.init.normal_(dit.text_embed.codec_embed.weight, std=0.5)


def _start_bigvgan(bigvgan: Qwen2_5OmniToken2WavBigVGANModel) -> None:
    """torch's own start: with the class's, of standard deviation 0.02, the signal dies out."""
    for module in bigvgan.modules():
        if isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
            module.reset_parameters()


def _plain(path: Path) -> None:
    """Names the architecture as Qwen's files do, and the dtype once, at the top."""
    config = json.loads(path.read_text())
    config["architectures"] = ["Qwen2_5OmniModel"]
    for part in config.values():
        _strip(part)
    path.write_text(json.dumps(config, indent=2) + "\n")


def _strip(part: Any) -> None:
    """Removes dtypes of parts, which would override the caller's, and folder names."""
    if isinstance(part, dict):
        for key in ("dtype", "torch_dtype", "_name_or_path"):
            part.pop(key, None)
        for inner in part.values():
            _strip(inner)
