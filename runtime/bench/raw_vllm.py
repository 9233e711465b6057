"""vLLM by itself, without this runtime around it, in a process of its own: the reference.

vLLM binds threads, and what it has bound cannot be undone, so it is not run in the process of a
benchmark. `python -m ...bench.raw_vllm` reads JSON from standard input, line by line: first the
arguments of `vllm.LLM`, then requests; and writes an answer for each to standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, Self

from ..engine.ar.build import architectures_of, engine_options, preload
from ..engine.ar.out_of_tree import register_models
from ..engine.ar.settings import ARSettings
from ..models.ar_stage import ARRequest
from ..models.catalogue import ModelEntry

_OURS = ("worker_cls", "scheduler_cls", "additional_config")
"""Options that put our code into vLLM."""


class RawVLLM:
    """`vllm.LLM` with the options that the runtime gives vLLM for one stage of a model."""

    def __init__(self, entry: ModelEntry, stage: str) -> None:
        program = entry.checkpoint.family.ar_stage(entry.checkpoint, stage)
        options = engine_options(ARSettings.model_validate({}), entry, program.engine_args())
        self._options = {name: value for name, value in options.items() if name not in _OURS}

    def __enter__(self) -> Self:
        """Start the process, and wait until the model is loaded.

        Raises:
            RuntimeError: it ended instead; carries the end of its log.
        """
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        try:
            self._ask(self._options)
        except RuntimeError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self._process.communicate()
        self._log.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def generate(self, requests: Sequence[ARRequest]) -> list[list[int]]:
        """Ids of the generated tokens of each request; all run together."""
        return list(self._ask(_to_json("generate", requests)))

    def first_token_s(self, requests: Sequence[ARRequest]) -> list[float]:
        """Seconds until each request has its first text, when all begin together."""
        return list(self._ask(_to_json("first_token_s", requests)))

    def _ask(self, message: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended, as there will be no answer
            print(json.dumps(message), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            self._log.seek(0)
            tail = self._log.read()[-3000:].decode(errors="replace")
            raise RuntimeError(f"vLLM's process ended; the end of its log:\n{tail}")
        return json.loads(answer)


def _to_json(work: str, requests: Sequence[ARRequest]) -> dict[str, Any]:
    """The message that asks for work; all requests have the first one's sampling."""
    sampling = dict(requests[0].sampling or {})
    del sampling["json_schema"]  # an option of ours, not of vLLM
    return {
        "work": work,
        "prompts": [dict(request.prompt) for request in requests],
        "sampling": sampling,
    }


def _generate(llm: Any, prompts: list[Any], sampling: dict[str, Any]) -> list[list[int]]:
    from vllm import SamplingParams

    outputs = llm.generate(prompts, SamplingParams(**sampling), use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def _first_token_s(llm: Any, prompts: list[Any], sampling: dict[str, Any]) -> list[float]:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    engine = llm.llm_engine
    start_s, first_s = perf_counter(), dict[str, float]()
    for index, prompt in enumerate(prompts):
        params = SamplingParams(output_kind=RequestOutputKind.DELTA, **sampling)
        engine.add_request(str(index), prompt, params)
    while len(first_s) < len(prompts):
        for output in engine.step():
            if output.outputs[0].text or output.finished:
                first_s.setdefault(output.request_id, perf_counter() - start_s)
    engine.abort_request(list(first_s))
    return [first_s[str(index)] for index in range(len(prompts))]


_WORKS: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "generate": _generate,
    "first_token_s": _first_token_s,
}


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # vLLM must not print between answers
    options = json.loads(sys.stdin.readline())
    architectures = architectures_of(options)
    preload()
    from vllm import LLM

    register_models(architectures)
    llm = LLM(**options)
    print("null", file=answers, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        result = _WORKS[message["work"]](llm, message["prompts"], message["sampling"])
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
