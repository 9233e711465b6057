"""A text encoder on vLLM: a stage's own program, with vLLM in the place of the module.

The program runs twice. First with a stand-in that notes which tokens the encoder is called
with and answers with zeros; then, when vLLM has run them, with one that answers with vLLM's
hidden states. So templates, dropped prefixes and masks stay in diffusers' code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..protocol.frames import Frame
from .ar_stage import ARRequest, ARResult
from .program import Bundle, Program, enter_stage
from .wire import to_bundle, to_frame

_HOST = torch.device("cpu")
LAST = -1


class EncoderStage:
    """See `ARStage`.

    Args:
        folder: the encoder's own folder, in transformers layout.
        width: of its hidden states.
        max_tokens: the longest sequence the program makes.
        module: name under which the program asks for the encoder.
        layers: the hidden states that the program reads, counted as transformers counts them.
    """

    def __init__(
        self,
        program: Program,
        folder: Path,
        *,
        width: int,
        max_tokens: int,
        module: str = "text_encoder",
        layers: tuple[int, ...] = (LAST,),
    ) -> None:
        self._program = program
        self._folder = folder
        self._width = width
        self._max_tokens = max_tokens
        self._module = module
        self._layers = layers

    def engine_args(self) -> dict[str, Any]:
        """See `ARStage.engine_args`."""
        return {
            "model": str(self._folder),
            "runner": "pooling",
            "convert": "embed",
            "pooler_config": {
                "task": "token_embed",
                "tok_pooling_type": "ALL",
                "use_activation": False,
            },
            "skip_tokenizer_init": True,
            "limit_mm_per_prompt": {"image": 0, "video": 0},
            "max_model_len": self._max_tokens,
            # A hit would leave the hidden states of its tokens uncomputed.
            "enable_prefix_caching": False,
            **self._tap(),
        }

    def _tap(self) -> dict[str, Any]:
        """The arguments that make vLLM return other layers than the last."""
        if self._layers == (LAST,):
            return {}
        (architecture,) = json.loads((self._folder / "config.json").read_text("utf-8"))[
            "architectures"
        ]
        overrides = {"architectures": [f"{architecture}+tap"], "tap_layers": list(self._layers)}
        return {"hf_overrides": overrides}

    def prepare(self, params: Mapping[str, Any], inputs: Mapping[str, Frame]) -> list[ARRequest]:
        """See `ARStage.prepare`."""
        encoder = _Notes(self._width, self._layers)
        self._run(encoder, params, inputs)
        return [ARRequest({"prompt_token_ids": ids}) for ids in encoder.rows]

    def outputs(
        self, params: Mapping[str, Any], inputs: Mapping[str, Frame], results: Sequence[ARResult]
    ) -> dict[str, Frame]:
        """See `ARStage.outputs`."""
        encoder = _Answers(self._width, self._layers, results=iter(results))
        return self._run(encoder, params, inputs)

    def _run(
        self, encoder: _Encoder, params: Mapping[str, Any], inputs: Mapping[str, Frame]
    ) -> dict[str, Frame]:
        context = _Context({self._module: encoder})
        enter_stage(context)
        bundles = {name: to_bundle(frame, _HOST) for name, frame in inputs.items()}
        with torch.inference_mode():
            outputs = self._program(context, params, bundles)
        return {name: to_frame(bundle) for name, bundle in outputs.items()}


@dataclass(slots=True)
class _Context:
    """See `StageContext`."""

    modules: Mapping[str, Any]
    strict: bool = False

    def module(self, name: str) -> Any:
        return self.modules[name]

    def begin_steps(self, total: int) -> None:
        pass

    def end_step(self) -> None:
        pass

    def write(self, text: str) -> None:
        pass

    def parts(self, name: str) -> Iterator[Bundle]:
        return iter(())  # an encoder's inputs come whole

    def emit(self, **outputs: Bundle) -> None:
        pass


@dataclass(slots=True)
class _States:
    """What the program reads of an encoder's result."""

    hidden_states: Mapping[int, torch.Tensor]


@dataclass(slots=True)
class _Encoder:
    """Stands in for the encoder module."""

    width: int
    layers: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    device: torch.device = _HOST

    def __call__(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> _States:
        """Token ids and mask `[B, L]` to hidden states `[B, L, width]` by layer."""
        width = self.width * len(self.layers)
        hidden = torch.zeros(*input_ids.shape, width, dtype=self.dtype)
        for row, (ids, mask) in enumerate(zip(input_ids, attention_mask.bool(), strict=True)):
            states = self.encode(ids[mask].tolist())
            if states is not None:
                hidden[row, mask] = states.to(self.dtype)
        by_layer = torch.split(hidden, self.width, dim=-1)
        return _States(dict(zip(self.layers, by_layer, strict=True)))

    def encode(self, ids: list[int]) -> torch.Tensor | None:
        """The layers of one sequence side by side, `[len(ids), layers * width]`, if known."""
        raise NotImplementedError


@dataclass(slots=True)
class _Notes(_Encoder):
    """Notes what it is called with."""

    rows: list[list[int]] = field(default_factory=list)

    def encode(self, ids: list[int]) -> None:
        self.rows.append(ids)


@dataclass(slots=True)
class _Answers(_Encoder):
    """Answers the same calls with vLLM's results, in order."""

    results: Iterator[ARResult] = field(default_factory=lambda: iter(()))

    def encode(self, ids: list[int]) -> torch.Tensor | None:
        return next(self.results).pooled
