"""Tokenizers of the real classes: every byte or letter a token, and a few words merged."""

from tokenizers import pre_tokenizers
from transformers import CLIPTokenizer, GemmaTokenizer, Qwen2Tokenizer, T5Tokenizer

from ..tiny_models import CHAT, TEMPLATE

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = ("red", "blue", "circle", "square", "Ġthe", "Ġand", "Ġon")
VISION = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
SEES = {kind: f"<|vision_start|><|{kind}_pad|><|vision_end|>" for kind in ("image", "video")}


def clip():
    """CLIP's: words end in a mark of their own, 77 tokens at most."""
    words = [[*word[:-1], f"{word[-1]}</w>"] for word in WORDS if "Ġ" not in word]
    vocabulary, merges = _merged([*BYTES, *(f"{byte}</w>" for byte in BYTES)], words)
    for special in ("<|startoftext|>", "<|endoftext|>"):
        vocabulary[special] = len(vocabulary)
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)


def t5(longest=512):
    """T5's and UMT5's: a list of scored pieces, a space is part of the word after it."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0)]
    pieces += [(chr(code), -4.0) for code in range(33, 127)]
    pieces += [(f"▁{word}", -2.0) for word in WORDS if "Ġ" not in word]
    return T5Tokenizer(vocab=pieces, extra_ids=0, model_max_length=longest)


def qwen(special=(), longest=4096):
    """Qwen's byte-level one with a chat template that knows pictures."""
    vocabulary, merges = byte_level()
    made = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=merges,
        additional_special_tokens=[*CHAT, *VISION, *special],
        model_max_length=longest,
    )
    made.chat_template = chat_template(SEES)
    return made


def chat_template(placeholders):
    """The shared one, with what stands for each kind of media in the text."""
    return f"{{% set placeholders = {placeholders!r} %}}{TEMPLATE}"


def byte_level():
    """Vocabulary and merges of a byte-level tokenizer."""
    return _merged(BYTES, [list(word) for word in WORDS])


def _merged(symbols, words):
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    merges = []
    for word in words:
        piece = word[0]
        for symbol in word[1:]:
            pair = (piece, symbol)
            piece += symbol
            if piece not in vocabulary:
                vocabulary[piece] = len(vocabulary)
                merges.append(pair)
    return vocabulary, merges


def gemma(longest=1024):
    """Gemma's: letters, and the bytes of what is not among them."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    letters = ["▁", *(chr(code) for code in range(33, 127))]
    known = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    vocabulary, merges = _merged(known, [list(word) for word in WORDS if "Ġ" not in word])
    return GemmaTokenizer(
        vocab=vocabulary,
        merges=merges,
        additional_special_tokens=["<image_soft_token>"],
        model_max_length=longest,
    )
