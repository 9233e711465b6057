"""The demo voice's word-level tokenizer, with Qwen2.5-Omni's special tokens and chat template."""

from __future__ import annotations

from typing import Final

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from .prompts import vocabulary
from .vocabulary import DIGITS, WORDS

UNKNOWN: Final = "<unk>"
PAD: Final = "<|endoftext|>"
IM_START: Final = "<|im_start|>"
IM_END: Final = "<|im_end|>"
TEXT_END: Final = "<tts_text_eod>"
TEXT_PAD: Final = "<tts_pad>"
VOICE_STARTS: Final = {"Chelsie": "<tts_text_bos>", "Ethan": "<tts_text_bos_male>"}
"""The token that tells the talker to begin, for each voice."""

MEDIA: Final = {
    "image_token": "<|IMAGE|>",
    "audio_token": "<|AUDIO|>",
    "video_token": "<|VIDEO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}
"""What the processor calls the tokens around and in place of media."""

_SPECIAL: Final = (
    IM_START,
    IM_END,
    TEXT_END,
    TEXT_PAD,
    *VOICE_STARTS.values(),
    *MEDIA.values(),
)
_ROLES: Final = ("system", "user", "assistant", "\n")

# A message is a text, or a list of parts of which each is text or stands for a medium.
CHAT_TEMPLATE: Final = (
    "{%- set shown = {"
    "'image': '<|vision_bos|><|IMAGE|><|vision_eos|>', "
    "'video': '<|vision_bos|><|VIDEO|><|vision_eos|>', "
    "'audio': '<|audio_bos|><|AUDIO|><|audio_eos|>'} -%}"
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\n' -}}"
    "{%- if message.content is string -%}{{- message.content -}}"
    "{%- else -%}"
    "{%- for part in message.content -%}"
    "{%- if part.type == 'text' -%}{{- part.text -}}{%- else -%}{{- shown[part.type] -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- endif -%}"
    "{{- '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word, lower-cased; any other word becomes ``<unk>``.

    Figures are read as the words for their digits, and signs not at all: so the talker, to which
    an answer may also be given, never meets a token that is not said.
    """
    entries = [UNKNOWN, PAD, *_SPECIAL, *_ROLES, *WORDS, *vocabulary()]
    vocab = {word: index for index, word in enumerate(dict.fromkeys(entries))}
    words = Tokenizer(models.WordLevel(vocab, unk_token=UNKNOWN))
    figures = (normalizers.Replace(str(n), f" {word} ") for n, word in enumerate(DIGITS))
    words.normalizer = normalizers.Sequence([normalizers.Lowercase(), *figures])
    words.pre_tokenizer = pre_tokenizers.Split(
        Regex(r"\n|[^\W\d]+"), behavior="removed", invert=True
    )
    # Words are told as they come; the first must not begin with a space for the line before it.
    words.decoder = decoders.Sequence(
        [decoders.WordPiece(cleanup=False), decoders.Fuse(), decoders.Replace("\n ", "\n")]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token=UNKNOWN,
        pad_token=PAD,
        eos_token=IM_END,
        additional_special_tokens=list(_SPECIAL),
        padding_side="left",
        model_max_length=2048,
        **MEDIA,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
