"""Hidden states and tokens are the same however vLLM cuts, preempts or caches the work."""

import pytest
import torch

from omnistage.tests.fakes import tiny_models

from .conftest import tokens_of

pytestmark = pytest.mark.ar

STEPS = 140
"""More than a block of the KV cache holds, so that every request grows into another one."""
PROMPTS = [f"tell {i} " + "the red circle and the blue square on white " * 20 for i in range(6)]
BLOCK_BYTES = 2 * 3 * 2 * 32 * 4 * 128
"""Keys and values, layers, heads, head width, bytes of a float, tokens of a CPU block."""


def run(engine, layers=(-1,)):
    for i, prompt in enumerate(PROMPTS):
        engine.submit(
            str(i), prompt=prompt, temperature=0.0, max_tokens=STEPS, hidden_layers=list(layers)
        )
    ends = engine.run()
    rows = [ends[str(i)].outputs["hidden"].tensors.get("layer_-1") for i in range(6)]
    return [tokens_of(ends[str(i)]) for i in range(6)], rows


@pytest.fixture(scope="session")
def expected(engine):
    return run(engine(tiny_models.chat_model, enable_prefix_caching=False))


@pytest.mark.parametrize(
    "options",
    [{"max_num_batched_tokens": 64}, {"kv_cache_memory_bytes": BLOCK_BYTES * 8}],
    ids=["chunked-prefill", "preemption"],
)
def test_nothing_is_lost(options, engine, expected):
    pressed = engine(tiny_models.chat_model, enable_prefix_caching=False, **options)
    tokens, rows = run(pressed)
    if "kv_cache_memory_bytes" in options:
        assert pressed.core.stats()["preemptions"] > 0
    assert tokens == expected[0]
    for mine, reference in zip(rows, expected[1], strict=True):
        a, b = torch.from_numpy(mine.array), torch.from_numpy(reference.array)
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()


def test_a_prefix_hit_is_used_where_no_hidden_states_are_wanted_and_not_where_they_are(
    engine, expected
):
    cached = engine(tiny_models.chat_model, enable_prefix_caching=True)
    run(cached, layers=())
    before = cached.core.stats()["prefix_hit_tokens"]
    tokens, _ = run(cached, layers=())
    hits = cached.core.stats()["prefix_hit_tokens"]
    assert hits > before
    assert tokens == expected[0]
    tokens, rows = run(cached)
    assert cached.core.stats()["prefix_hit_tokens"] == hits
    assert tokens == expected[0]
    assert all(
        len(row.array) == len(prompt) + len(made) - 1
        for row, (prompt, made) in zip(rows, tokens, strict=True)
    )
