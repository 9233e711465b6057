"""Call specs of the codecs, derived from their modules and not believed."""

import pytest

from omnistage.runtime.engine.diffusion import engine as engine_module
from omnistage.runtime.engine.diffusion.batch import Batch
from tests.contracts.perturbation import check_merge
from tests.fakes.codecs import qwen3_codec, qwen25_codec


def recorded(codec, tasks):
    """The first call of each method that each task makes."""
    found = {}

    class Recorder(Batch):
        def run(self):
            for call in self.calls:
                own = found.setdefault(call.method, {})
                own.setdefault(call.request.task.id, call)
            return super().run()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "pick", lambda calls, **_: Recorder([next(iter(calls))]))
        run = codec.run(*tasks)
    assert all(run.fate(task.id) == "done" for task in tasks)
    return {method: list(calls.values()) for method, calls in found.items()}


def test_rows_of_qwen25_do_not_reach_each_other(tmp_path):
    codec = qwen25_codec(tmp_path)
    for guidance in (0.5, 0.0):
        tasks = [
            codec.task(voice, codec.codes(4, i), voice=voice, guidance=guidance, seed=i, steps=2)
            for i, voice in enumerate(("Chelsie", "Ethan"))
        ]
        calls = recorded(codec, tasks)
        assert calls.keys() == codec.model.specs.keys()
        assert set(check_merge(*calls["dit", "__call__"])) == {
            "hidden_states",
            "condition_vector",
            "speaker_embedding",
            "quantized_code",
            "time_step",
        }
        assert set(check_merge(*calls["vocoder", "__call__"])) == {"frames"}


def test_rows_of_qwen3_do_not_reach_each_other(tmp_path):
    codec = qwen3_codec(tmp_path)
    calls = recorded(codec, [codec.task(str(i), codec.codes(4, i)) for i in range(2)])
    assert calls.keys() == codec.model.specs.keys()
    assert set(check_merge(*calls["code2wav", "__call__"])) == {"codes"}
