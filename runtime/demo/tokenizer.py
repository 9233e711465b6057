"""The demo model's word-level tokenizer, as a real ``PreTrainedTokenizerFast``.

Qwen-Image's pipeline drops the first 34 token states, the length of its instruction prefix
under Qwen's own tokenizer. This vocabulary spells the same prefix in exactly 34 tokens too.
"""

from __future__ import annotations

from typing import Final

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from .captions import vocabulary

PREFIX_TOKENS: Final = 34
# Source: diffusers QwenImagePipeline.prompt_template_encode, the text before the prompt.
PROMPT_PREFIX: Final = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
    "quantity, text, spatial relationships of the objects and background:<|im_end|>\n"
    "<|im_start|>user\n"
)
UNKNOWN: Final = "<unk>"
PAD: Final = "<|endoftext|>"
IM_START: Final = "<|im_start|>"
IM_END: Final = "<|im_end|>"
VISION_TOKENS: Final = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_TEMPLATE_WORDS: Final = [
    "system",
    "describe",
    "the",
    "image",
    "by",
    "detailing",
    "color",
    ",",
    "shape",
    "size",
    "texture",
    "quantity",
    "text",
    "spatial",
    "relationships",
    "of",
    "objects",
    "and",
    "background",
    ":",
    "user",
    "assistant",
    ".",
    "!",
    "?",
    ";",
    "'",
    '"',
    "-",
    "(",
    ")",
]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word or sign, lower-cased; any other word becomes ``<unk>``."""
    entries = [UNKNOWN, PAD, IM_START, IM_END, *VISION_TOKENS, "\n"]
    entries += _TEMPLATE_WORDS + vocabulary()
    vocab = {word: index for index, word in enumerate(dict.fromkeys(entries))}
    words = Tokenizer(models.WordLevel(vocab, unk_token=UNKNOWN))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Split(
        Regex(r"\n|\w+|[^\w\s]"), behavior="removed", invert=True
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token=UNKNOWN,
        pad_token=PAD,
        eos_token=IM_END,
        additional_special_tokens=[IM_START, *VISION_TOKENS],
        padding_side="right",
    )
