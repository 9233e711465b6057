"""The tokenizer fits Qwen-Image's prompt template."""

import random

from diffusers import QwenImagePipeline

from omnistage.runtime.demo.captions import held_out_request
from omnistage.runtime.demo.checkpoint import build_pipeline
from omnistage.runtime.demo.tokenizer import PREFIX_TOKENS, PROMPT_PREFIX, build_tokenizer


def test_template_prefix_is_34_tokens():
    pipeline = build_pipeline()
    assert isinstance(pipeline, QwenImagePipeline)
    assert pipeline.prompt_template_encode.startswith(PROMPT_PREFIX + "{}")
    assert pipeline.prompt_template_encode_start_idx == PREFIX_TOKENS
    assert len(pipeline.tokenizer(PROMPT_PREFIX).input_ids) == PREFIX_TOKENS


def test_prefix_stays_34_tokens_before_any_prompt():
    tokenizer = build_tokenizer()
    prefix = tokenizer(PROMPT_PREFIX).input_ids
    for prompt in ("a red circle", "zebra", "  BLUE background,star!", ""):
        assert tokenizer(PROMPT_PREFIX + prompt).input_ids[:PREFIX_TOKENS] == prefix


def test_grammar_words_are_known_and_others_harmless():
    tokenizer = build_tokenizer()
    unknown = tokenizer.unk_token_id
    assert tokenizer("a quokka").input_ids[1] == unknown
    assert unknown not in tokenizer(PROMPT_PREFIX).input_ids
    rng = random.Random(5)
    prompts = [held_out_request(rng).text for _ in range(300)]
    known = sum(unknown not in ids for ids in tokenizer(prompts).input_ids)
    assert known > 250  # the rest carry stray words on purpose
