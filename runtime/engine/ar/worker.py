"""Seam 1: vLLM's worker, whose model runner keeps hidden states and feeds conditioning rows.

The mixin holds no state but what `load_model` reads from the configuration, so it can be put
over a runner that vLLM has made: no method of vLLM is copied, and none is replaced.

Hooks: `load_model`, `sample_tokens`, `_preprocess` of the V1 model runner.
"""

from __future__ import annotations

from typing import Any

from vllm.platforms import current_platform

from .rows import conditioning_rows, hidden_rows, key_of

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
"""Our part of vLLM's `additional_config`: `hidden_layers`, `conditioned`."""

LAST_LAYER = -1


class RowRunner(BaseRunner):
    """The stock runner with rows in and out."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load, and ask the model for the outputs of the layers whose rows are wanted."""
        super().load_model(*args, **kwargs)
        options = self.vllm_config.additional_config.get(OPTIONS, {})
        self.row_layers = [n for n in options.get("hidden_layers", ()) if n != LAST_LAYER]
        self.conditioned = bool(options.get("conditioned"))
        if self.row_layers:
            _language_model(self.get_model())._set_aux_hidden_state_layers(tuple(self.row_layers))
            self.use_aux_hidden_state_outputs = True

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Keep the hidden states of this step before vLLM drops them."""
        state = self.execute_model_state
        if state is not None:
            counts = state.scheduler_output.num_scheduled_tokens
            for key, start, end, position in self._slices(counts):
                rows = {LAST_LAYER: state.hidden_states}
                rows |= dict(zip(self.row_layers, state.aux_hidden_states or (), strict=False))
                for layer, hidden in rows.items():
                    hidden_rows.put(key, layer, position, hidden[start:end].to("cpu", copy=True))
        return super().sample_tokens(grammar_output)

    def _preprocess(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Let a conditioned model combine its tokens with their rows."""
        prepared = super()._preprocess(scheduler_output, *args, **kwargs)
        if self.conditioned:
            ids, embeddings = self.input_ids.gpu, self.inputs_embeds.gpu
            for key, start, end, position in self._slices(scheduler_output.num_scheduled_tokens):
                conditioning = conditioning_rows.get(key)
                if conditioning is not None:
                    rows = conditioning.between(position, position + end - start)
                    embeddings[start:end] = self.get_model().combine(ids[start:end], rows)
        return prepared

    def _slices(self, counts: dict[str, int]) -> list[tuple[str, int, int, int]]:
        """(key, start, end, first position) of the requests with a key, in the batch's order."""
        slices, start = [], 0
        for name in self.input_batch.req_ids:
            request, end = self.requests[name], start + counts[name]
            params = request.sampling_params
            key = None if params is None else key_of(params.extra_args)
            if key is not None:
                slices.append((key, start, end, request.num_computed_tokens))
            start = end
        return slices


class RowWorker(BaseWorker):
    """The stock worker with that runner."""

    def init_device(self) -> None:
        """Make the runner, and put ours over it."""
        super().init_device()
        self.model_runner.__class__ = RowRunner


def _language_model(model: Any) -> Any:
    """The part of a model that holds its decoder layers."""
    if hasattr(model, "get_language_model"):
        model = model.get_language_model()
    return getattr(model, "model", model)
