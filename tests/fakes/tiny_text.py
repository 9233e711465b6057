"""Tiny random checkpoints of language models that denoise, as `from_pretrained` wants them.

LLaDA 2's own class is code that its checkpoint brings along, so a Qwen3 stands for it: the
pipeline takes any model that it can give tokens, a mask and positions.
"""

import json

import transformers
from diffusers import BlockRefinementScheduler
from tokenizers import Tokenizer, models, pre_tokenizers

from omnistage.runtime.models.torchvision_ops import make_torchvision_importable

from .tiny_diffusion.weights import effective
from .tiny_models import CHAT, TEMPLATE, TEXT

MASK = "<|mask|>"
BEYOND = "<|beyond|>"
"""A token that the models have no embedding for: their forward fails with it."""
BLOCK = 8
CANVAS = 8
LONGEST = 4096
WORDS = ["a", "red", "blue", "circle", "square", *(f"w{i}" for i in range(200))]
SEES = "{% set placeholders = {'image': '<|image|>'} %}"
GEMMA_TOKENS = {
    "image_token": "<|image|>",
    "boi_token": "<|boi|>",
    "eoi_token": "<|eoi|>",
    "audio_token": "<|audio|>",
    "boa_token": "<|boa|>",
    "eoa_token": "<|eoa|>",
}
GEMMA_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "global_head_dim": 16,
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"],
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 16,
    "max_position_embeddings": LONGEST,
}
GEMMA_VISION = {
    "model_type": "gemma4_vision",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "patch_size": 4,
    "position_embedding_size": 64,
    "pooling_kernel_size": 2,
}


OWN_CODE = """
from transformers import Qwen3Config, Qwen3ForCausalLM

class LLaDA2MoeConfig(Qwen3Config):
    model_type = "llada2_moe"

class LLaDA2MoeModelLM(Qwen3ForCausalLM):
    config_class = LLaDA2MoeConfig
"""
"""What a checkpoint of LLaDA 2 brings along."""


def llada2(folder, seed=0):
    """A pipeline of LLaDA 2 with blocks of `BLOCK` tokens."""
    words = _words([MASK], mask_token=MASK)
    words.save_pretrained(folder / "tokenizer")
    _save(_qwen(words), folder / "model", seed)
    BlockRefinementScheduler(block_length=BLOCK).save_pretrained(folder / "scheduler")
    _index(
        folder,
        "LLaDA2Pipeline",
        model=("transformers", "Qwen3ForCausalLM"),
        scheduler=("diffusers", "BlockRefinementScheduler"),
        tokenizer=("transformers", type(words).__name__),
    )


def llada2_with_code(folder, seed=0):
    """A model of LLaDA 2's own class, in transformers' layout, as it is published."""
    words = _words([MASK], mask_token=MASK)
    _save(_qwen(words), folder, seed)
    words.save_pretrained(folder)
    (folder / "modeling.py").write_text(OWN_CODE)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "llada2_moe",
        "architectures": ["LLaDA2MoeModelLM"],
        "auto_map": {
            "AutoConfig": "modeling.LLaDA2MoeConfig",
            "AutoModelForCausalLM": "modeling.LLaDA2MoeModelLM",
        },
    }
    (folder / "config.json").write_text(json.dumps(config))


def diffusion_gemma(folder, seed=0):
    """A pipeline of DiffusionGemma with a canvas of `CANVAS` tokens, which sees pictures."""
    processor = _processor()
    _save(_gemma(processor.tokenizer), folder / "model", seed)
    processor.save_pretrained(folder / "processor")
    BlockRefinementScheduler(block_length=CANVAS).save_pretrained(folder / "scheduler")
    _index(
        folder,
        "DiffusionGemmaPipeline",
        model=("transformers", "DiffusionGemmaForBlockDiffusion"),
        scheduler=("diffusers", "BlockRefinementScheduler"),
        processor=("transformers", "Gemma4Processor"),
    )


def diffusion_gemma_alone(folder, seed=0):
    """The same in transformers' layout: no scheduler, all in one folder."""
    processor = _processor()
    _save(_gemma(processor.tokenizer), folder, seed)
    processor.save_pretrained(folder)


TEXT_CHECKPOINTS = {made.__name__: made for made in (llada2, diffusion_gemma)}
"""By name; each is a function of a folder and a seed."""


def _words(special, **named):
    """A tokenizer of whole words: a text tells its tokens, but for the special ones.

    The last token is one that models do not know.
    """
    special = [*CHAT, *special]
    vocabulary = {word: i for i, word in enumerate(["<|unknown|>", *special, *WORDS, BEYOND])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unknown|>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        additional_special_tokens=special,
        unk_token="<|unknown|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        **named,
    )
    words.chat_template = SEES + TEMPLATE
    return words


def _beyond(words):
    return words.get_vocab()[BEYOND]


def _processor():
    make_torchvision_importable()
    words = _words(GEMMA_TOKENS.values(), extra_special_tokens=GEMMA_TOKENS)
    sizes = {"patch_size": 4, "pooling_kernel_size": 2}
    return transformers.Gemma4Processor(
        feature_extractor=transformers.Gemma4AudioFeatureExtractor(),
        image_processor=transformers.Gemma4ImageProcessor(max_soft_tokens=70, **sizes),
        tokenizer=words,
        video_processor=transformers.Gemma4VideoProcessor(**sizes),
        chat_template=words.chat_template,
    )


def _qwen(words):
    width = {**TEXT, "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": _beyond(words)}
    width["max_position_embeddings"] = LONGEST
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**width, head_dim=16))


def _gemma(words):
    vocabulary = words.get_vocab()
    config = transformers.DiffusionGemmaConfig(
        text_config={**GEMMA_TEXT, "vocab_size": vocabulary[BEYOND]},
        vision_config=GEMMA_VISION,
        image_token_id=vocabulary["<|image|>"],
        canvas_length=CANVAS,
    )
    return transformers.DiffusionGemmaForBlockDiffusion(config)


def _save(model, folder, seed):
    effective(model, seed, gain=1.2).save_pretrained(folder)


def _index(folder, name, **components):
    index = {"_class_name": name, **{n: list(entry) for n, entry in components.items()}}
    (folder / "model_index.json").write_text(json.dumps(index))
