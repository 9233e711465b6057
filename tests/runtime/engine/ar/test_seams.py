import pytest

from omnistage.runtime.engine.ar import seams

pytestmark = pytest.mark.ar


def test_this_vllm_has_every_hook():
    assert seams.missing_hooks() == []


def test_a_missing_hook_is_named(monkeypatch):
    from vllm.v1.core.sched.scheduler import Scheduler

    from omnistage.runtime.protocol.errors import ModelLoadFailed

    monkeypatch.delattr(Scheduler, "_preempt_request")
    with pytest.raises(ModelLoadFailed, match=r"Scheduler\._preempt_request"):
        seams.check_seams()
