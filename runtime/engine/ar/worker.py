"""Seam 1: vLLM's worker, whose model runner keeps hidden states and feeds conditioning rows.

The mixin holds no state but what `load_model` reads from the configuration, so it can be put
over a runner that vLLM has made: no method of vLLM is copied, and none is replaced.

Hooks: `load_model`, `sample_tokens`, `_preprocess`, `_init_mrope_positions` of the V1 model runner.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from vllm.platforms import current_platform

from ...models.ar_stage import POSITIONS, Layer
from .code_predictor import Choice, embedded, predict
from .rows import LAYERS, Conditioning, conditioning_rows, hidden_rows, key_of

BaseRunner: Any
BaseWorker: Any

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner
    from vllm.v1.worker.cpu_worker import CPUWorker

    BaseRunner, BaseWorker = CPUModelRunner, CPUWorker
else:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner
    from vllm.v1.worker.gpu_worker import Worker

    BaseRunner, BaseWorker = GPUModelRunner, Worker

OPTIONS = "omnistage"
"""Our part of vLLM's `additional_config`: `hidden_layers`, `conditioned`, `code_predictor`."""

LAST_LAYER = -1
_GREEDY = 1e-5
"""VLLM takes a lower temperature for none."""


class _Slice(NamedTuple):
    """The rows of one request in a step's batch."""

    key: str
    layers: tuple[Layer, ...]
    seed: int | None
    start: int
    end: int
    position: int
    prompt: int

    @property
    def here(self) -> slice:
        """Where in the batch."""
        return slice(self.start, self.end)

    @property
    def stop(self) -> int:
        """The position after its last."""
        return self.position + self.end - self.start


class RowRunner(BaseRunner):
    """The stock runner with rows in and out."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load, and ask the model for the outputs of the layers whose rows are wanted."""
        super().load_model(*args, **kwargs)
        options = self.vllm_config.additional_config.get(OPTIONS, {})
        self.row_layers = [n for n in options.get("hidden_layers", ()) if n != LAST_LAYER]
        self.conditioned = bool(options.get("conditioned"))
        self.predicts = bool(options.get("code_predictor"))
        if self.row_layers:
            _language_model(self.get_model())._set_aux_hidden_state_layers(tuple(self.row_layers))
            self.use_aux_hidden_state_outputs = True

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Keep the hidden states of this step before vLLM drops them."""
        state = self.execute_model_state
        if state is not None:
            rows: dict[Layer, Any] = {LAST_LAYER: state.hidden_states}
            rows |= dict(zip(self.row_layers, state.aux_hidden_states or (), strict=False))
            if self.uses_mrope:
                rows[POSITIONS] = self.mrope_positions.cpu.T
            for part in self._slices(state.scheduler_output.num_scheduled_tokens):
                for layer in part.layers:
                    kept = rows[layer][part.here].to("cpu", copy=True)
                    hidden_rows.put(part.key, layer, part.position, kept)
                if self.predicts:
                    last = state.hidden_states[part.end - 1 : part.end]
                    _conditioning(part).remember(part.stop - 1, last)
        return super().sample_tokens(grammar_output)

    def _preprocess(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Let a conditioned model combine its tokens with their rows."""
        prepared = super()._preprocess(scheduler_output, *args, **kwargs)
        if self.conditioned:
            parts = self._slices(scheduler_output.num_scheduled_tokens)
            for part in parts:
                rows = _conditioning(part).between(part.position, part.stop)
                ids = self.input_ids.gpu[part.here]
                self.inputs_embeds.gpu[part.here] = self.get_model().combine(ids, rows)
            if self.predicts:
                self._complete(parts)
        return prepared

    def _complete(self, parts: list[_Slice]) -> None:
        """Add to each code's embedding those of the other codes of its frame."""
        model, ids, embeddings = self.get_model(), self.input_ids.gpu, self.inputs_embeds.gpu
        places = [
            (part, part.start + position - part.position, position - part.prompt)
            for part in parts
            for position in range(max(part.position, part.prompt), part.stop)
        ]
        frames = [_conditioning(part).frames for part, _, _ in places]
        new = [at for at, place in enumerate(places) if place[2] == len(frames[at])]
        if new:
            first = ids[[places[at][1] for at in new]].long()
            past = torch.cat([_past(places[at][0]) for at in new])
            choices = [Choice(places[at][0].seed, places[at][2]) for at in new]
            rest = predict(model.code_predictor, past, model.embed_codes(first), choices)
            for at, frame in zip(new, torch.cat([first[:, None], rest], dim=1), strict=True):
                frames[at].append(frame)
        if places:
            codes = torch.stack([have[n] for have, (_, _, n) in zip(frames, places, strict=True)])
            rows = [row for _, row, _ in places]
            embeddings[rows] += embedded(model.code_predictor, codes[:, 1:])

    def _init_mrope_positions(self, req_state: Any) -> None:
        """A request may bring its prompt's positions."""
        super()._init_mrope_positions(req_state)
        params = req_state.sampling_params
        key = None if params is None else key_of(params.extra_args)
        conditioning = None if key is None else conditioning_rows.get(key)
        if conditioning is not None and conditioning.positions is not None:
            positions = conditioning.positions
            req_state.mrope_positions = positions
            req_state.mrope_position_delta = int(positions.max()) + 1 - positions.shape[1]

    def _slices(self, counts: dict[str, int]) -> list[_Slice]:
        """Those of the requests with a key, in the batch's order."""
        slices, start = [], 0
        for name in self.input_batch.req_ids:
            request, end = self.requests[name], start + counts[name]
            params = request.sampling_params
            key = None if params is None else key_of(params.extra_args)
            if key is not None:
                layers = params.extra_args[LAYERS]
                seed = None if params.temperature < _GREEDY else params.seed
                at, prompt = request.num_computed_tokens, request.num_prompt_tokens
                slices.append(_Slice(key, layers, seed, start, end, at, prompt))
            start = end
        return slices


class RowWorker(BaseWorker):
    """The stock worker with that runner."""

    def init_device(self) -> None:
        """Make the runner, and put ours over it."""
        super().init_device()
        self.model_runner.__class__ = RowRunner


def _conditioning(part: _Slice) -> Conditioning:
    found = conditioning_rows.get(part.key)
    assert found is not None
    return found


def _past(part: _Slice) -> torch.Tensor:
    state = _conditioning(part).past
    assert state is not None
    return state


def _language_model(model: Any) -> Any:
    """The part of a model that holds its decoder layers."""
    if hasattr(model, "get_language_model"):
        model = model.get_language_model()
    return getattr(model, "model", model)
