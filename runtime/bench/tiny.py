"""Tiny models with random weights in the real classes, as transformers saves them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from ..demo.tokenizer import PROMPT_PREFIX
from ..models.location import DEMO, model_folder

SEED = 0
_START, _END, _PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
_VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TEXT = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "initializer_range": 0.1,  # the usual 0.02 leaves a random model no opinions
}
"""Heads of width 32: vLLM has no kernel for narrower ones."""


def tiny_chat(folder: Path, texts: Iterable[str]) -> None:
    """Write a chat model of Qwen3's class.

    Args:
        folder: made if it is not there.
        texts: what its tokenizer is to be good at.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM

    ids = _tokenizer(folder, texts)
    config = Qwen3Config(
        **_TEXT, head_dim=32, vocab_size=len(ids), eos_token_id=ids[_END], pad_token_id=ids[_PAD]
    )
    _save(Qwen3ForCausalLM, config, folder)


def tiny_image_model(folder: Path, texts: Iterable[str]) -> None:
    """Write a Qwen-Image model: a text encoder that vLLM can run, the rest is the demo model's.

    Args:
        folder: made if it is not there.
        texts: what its tokenizer is to be good at.
    """
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    folder.mkdir(parents=True)
    for part in ("model_index.json", "scheduler", "transformer", "vae"):
        (folder / part).symlink_to(model_folder(DEMO) / part)
    ids = _tokenizer(folder / "tokenizer", (PROMPT_PREFIX, *texts))
    config = Qwen2_5_VLConfig(
        text_config={
            **_TEXT,
            "vocab_size": len(ids),
            "bos_token_id": None,
            "eos_token_id": ids[_END],
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [4, 6, 6],
            },
        },
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": _TEXT["hidden_size"],
            "fullatt_block_indexes": [0],
        },
        vision_start_token_id=ids[_VISION[0]],
        vision_end_token_id=ids[_VISION[1]],
        image_token_id=ids[_VISION[2]],
        video_token_id=ids[_VISION[3]],
        tie_word_embeddings=False,
    )
    _save(Qwen2_5_VLForConditionalGeneration, config, folder / "text_encoder")


def _tokenizer(folder: Path, texts: Iterable[str]) -> dict[str, int]:
    """Write a byte-level tokenizer with a chat template; returns its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1000, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made,
        additional_special_tokens=[_START, _END, _PAD, *_VISION],
        eos_token=_END,
        pad_token=_PAD,
        padding_side="right",
    )
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
    return dict(tokenizer.get_vocab())


def _save(cls: Any, config: Any, folder: Path) -> None:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(SEED)
        cls(config).save_pretrained(folder)
