"""The call spec of LLaDA 2, whose class is the checkpoint's own code.

Its pipeline takes any language model that it can give tokens, a mask and positions. So the spec
is proved of models that see forwards only, that see both ways, and that pick experts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from omnistage.runtime.engine.diffusion.call import ModuleCall
from omnistage.runtime.models.families.text_diffusion import LLaDA2
from tests.contracts.modules import DECODER, VOCABULARY, mask, strong, tokens
from tests.contracts.perturbation import check_merge, compare, described

SPEC = LLaDA2().specs()["model", "__call__"]
BLOCK = 8


def causal() -> torch.nn.Module:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**DECODER, head_dim=8))


def both_ways() -> torch.nn.Module:
    config = transformers.BertConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=VOCABULARY,
    )
    return transformers.BertForMaskedLM(config)


def experts() -> torch.nn.Module:
    sizes = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    config = transformers.Qwen3MoeConfig(**DECODER, **sizes, head_dim=8)
    return transformers.Qwen3MoeForCausalLM(config)


def call(module: torch.nn.Module, i: int, blocks: int) -> ModuleCall:
    """A call as the pipeline makes it for its last block, with a tail that is not asked for."""
    length = blocks * BLOCK
    arguments: dict[str, Any] = {
        "input_ids": tokens(i, length),
        "attention_mask": mask(length, hidden=2 * i, dtype=torch.long),
        "position_ids": torch.arange(length)[None],
    }
    request: Any = SimpleNamespace(mode="grouped")
    return described(ModuleCall(request, module, ("model", "__call__"), arguments, SPEC))


@pytest.mark.parametrize("blocks", [(2, 2), (2, 3), (3, 1)])
@pytest.mark.parametrize("build", [causal, both_ways, experts])
def test_rows_do_not_reach_each_other(
    build: Callable[[], torch.nn.Module], blocks: tuple[int, int]
) -> None:
    module = strong(build())
    first, second = (call(module, i, count) for i, count in enumerate(blocks))
    changed = check_merge(first, second)
    assert set(changed) == {"input_ids", "attention_mask", "position_ids"}


def test_a_missing_mask_is_found() -> None:
    module = strong(both_ways())
    spec = replace(SPEC, pad={"input_ids": None, "position_ids": None})
    unmasked = [
        replace(made, spec=spec, arguments={**made.arguments, "attention_mask": None})
        for made in (call(module, 0, 2), call(module, 1, 3))
    ]
    with pytest.raises(AssertionError, match="differs by"):
        compare("attention_mask", *unmasked)
