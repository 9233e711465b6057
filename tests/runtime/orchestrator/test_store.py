import numpy as np
import pytest

from omnistage.runtime.orchestrator.store import Store
from omnistage.runtime.protocol.errors import StoreTooSmall
from omnistage.runtime.protocol.frames import Frame, Tensor


def frame(nbytes):
    return Frame({}, {"x": Tensor.of(np.zeros(nbytes, np.uint8))})


def test_the_least_recently_used_goes_first_and_the_budget_holds():
    store = Store(1000)
    store.put_result("a", {"o": frame(300)})
    store.put_blob("b", frame(300))
    store.result("a")
    store.put_result("c", {"o": frame(300)})
    store.check_integrity()
    assert store.blob("b") is None
    assert store.has_result("a") and store.has_result("c")
    assert store.evictions == 1


def test_replacing_and_dropping_count_once():
    store = Store(1000)
    store.put_result("a", {"o": frame(300)})
    store.put_result("a", {"o": frame(500)})
    store.check_integrity()
    store.drop_result("a")
    store.drop_result("a")
    assert (store.used_bytes, len(store)) == (0, 0)


def test_what_exceeds_the_budget_is_refused_and_evicts_nothing():
    store = Store(1000)
    store.put_result("a", {"o": frame(300)})
    with pytest.raises(StoreTooSmall, match="budget_mb"):
        store.put_result("b", {"o": frame(1001)})
    assert store.has_result("a")


def test_items_without_tensors_are_not_free():
    store = Store(1000)
    for i in range(1000):
        store.put_blob(str(i), Frame({"kind": "x"}))
    assert len(store) < 20
    store.check_integrity()
