"""Questions to a chat model, answered through a real runtime or by transformers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Any, Self

import torch

from ..client import RuntimeClient
from ..config import Config
from ..models.ar_stage import ARRequest
from ..models.catalogue import ModelEntry
from ..models.location import SMOLLM2
from ..protocol.messages import JobEvent
from ..protocol.recipe import JobSpec, handle_of

STAGE = "thinker"
QUESTIONS = (
    "What is the capital of France?",
    "Write two sentences about the sea.",
    "Why is the sky blue? Explain it to a child.",
    "Name three fruits that are red.",
    "How do I boil an egg so that the yolk stays soft?",
    "Tell me a story that begins with an old clock which has stopped at noon.",
    "What does a compiler do?",
    "Give me a name for a cat.",
    "Which is heavier, a kilogram of iron or a kilogram of feathers, and why do people err?",
    "List the planets of the solar system in order of their distance from the sun.",
    "Translate into French: good morning.",
    "What should I pack for a week in the mountains in October?",
    "Describe a picture of a harbour at dawn, with boats, gulls and fog over the water.",
    "How many legs does a spider have?",
    "Explain how a bicycle stays upright while it moves.",
    "Suggest a title for an essay about trees in cities.",
)
"""Of different lengths, as real questions are."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a question.

    Attributes:
        tokens: ids of the generated tokens.
        first_s: seconds from asking to news of the first text, or to the end: a tiny model may
            have written it all before the client listens.
    """

    tokens: list[int]
    first_s: float


def smollm2() -> ModelEntry:
    """SmolLM2 as the runtime serves it when nothing is configured.

    Raises:
        UnknownModel: the package with the model is not installed.
    """
    return Config().catalogue()[SMOLLM2]


def settings_of(entry: ModelEntry) -> list[str]:
    """The settings that have a runtime serve a model."""
    facts = {"source": entry.checkpoint.folder, "dtype": entry.dtype}
    facts |= {f"vllm.{name}": value for name, value in entry.vllm.items()}
    return [f"models.{entry.id}.{name}={value}" for name, value in facts.items()]


def requests_of(entry: ModelEntry, questions: Sequence[str], max_tokens: int) -> list[ARRequest]:
    """What a model's Thinker stage asks of vLLM for questions."""
    program = entry.checkpoint.family.ar_stage(entry.checkpoint, STAGE)
    stage = entry.graph[STAGE]
    params = (stage.check_params(_params(question, max_tokens)) for question in questions)
    return [request for given in params for request in program.prepare(given, {})]


class RuntimeChats:
    """Asks a runtime, through its client; every answer is computed anew.

    Args:
        url: of the runtime.
    """

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._client = RuntimeClient(url)
        self._seeds = count()

    def __enter__(self) -> Self:
        """The client; its connections end with the block."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connections."""
        self._runner.run(self._client.close())
        self._runner.close()

    def together(self, model: str, questions: Sequence[str], max_tokens: int) -> list[Answer]:
        """Ask all at once."""

        async def ask(seed: int) -> list[Answer]:
            asked = (self._ask(model, question, max_tokens, seed) for question in questions)
            return list(await asyncio.gather(*asked))

        return self._run(ask)

    def one_by_one(self, model: str, questions: Sequence[str], max_tokens: int) -> list[Answer]:
        """Ask each when the one before it is answered."""

        async def ask(seed: int) -> list[Answer]:
            return [await self._ask(model, question, max_tokens, seed) for question in questions]

        return self._run(ask)

    def unload(self, engine: str) -> None:
        """Unload an engine."""
        self._runner.run(self._client.unload(engine))

    def _run(self, ask: Callable[[int], Awaitable[list[Answer]]]) -> list[Answer]:
        """Ask with a new seed: it makes no difference to the answers, but they are not at hand."""
        seed = next(self._seeds)

        async def asked() -> list[Answer]:
            answers = await ask(seed)
            await self._client.release(_owner(seed))
            return answers

        return self._runner.run(asked())

    async def _ask(self, model: str, question: str, max_tokens: int, seed: int) -> Answer:
        spec = JobSpec.make(model, STAGE, {**_params(question, max_tokens), "seed": seed}, {})
        news_s: list[float] = []

        def note(event: JobEvent) -> None:
            if event.kind == "text" or event.final:
                news_s.append(perf_counter() - start_s)

        start_s = perf_counter()
        hidden = await self._client.run(
            handle_of(spec, "hidden"),
            owner=_owner(seed),
            client="bench",
            on_event=note,
            previews=False,
        )
        ids = hidden.tensors["token_ids"].array[hidden.header["prompt_tokens"] :]
        return Answer(ids.tolist(), news_s[0])


class TransformersChats:
    """transformers' own `generate` over the same checkpoint: the reference."""

    def __init__(self, entry: ModelEntry) -> None:
        from transformers import AutoModelForCausalLM

        dtype = getattr(torch, entry.dtype)
        model = AutoModelForCausalLM.from_pretrained(entry.checkpoint.folder, dtype=dtype)
        # greedy: what the checkpoint says about sampling would only be warned about
        for name in ("temperature", "top_p", "top_k"):
            setattr(model.generation_config, name, None)
        self._model: Any = model.eval()

    @torch.inference_mode()
    def one_by_one(self, requests: Sequence[ARRequest]) -> list[list[int]]:
        """Ids of the generated tokens of each request, one call a request."""
        return [self._generate(request) for request in requests]

    def _generate(self, request: ARRequest) -> list[int]:
        assert request.sampling is not None
        ids = torch.tensor([request.prompt["prompt_token_ids"]])
        made = self._model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=request.sampling["max_tokens"],
        )
        return list(made[0, ids.shape[1] :].tolist())


def _params(question: str, max_tokens: int) -> dict[str, Any]:
    return {"prompt": question, "max_tokens": max_tokens, "temperature": 0.0}


def _owner(seed: int) -> str:
    return f"bench-{seed}"
