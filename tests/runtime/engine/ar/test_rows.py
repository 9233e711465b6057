import pytest
import torch

from omnistage.runtime.engine.ar.rows import ConditioningRows, HiddenRows


def rows(*values):
    return torch.tensor([[float(v)] for v in values])


def test_rows_are_joined_by_position_whatever_the_order():
    kept = HiddenRows()
    kept.put("a", -1, 2, rows(3, 4))
    kept.put("a", -1, 0, rows(1, 2))
    kept.put("a", -1, 1, rows(2, 3, 4))  # computed again after a preemption
    assert kept.between("a", 0, 4)[-1].flatten().tolist() == [1, 2, 3, 4]
    assert kept.between("a", 1, 3)[-1].flatten().tolist() == [2, 3]
    kept.drop("a")
    assert len(kept) == 0


def test_rows_that_were_never_computed_are_missed():
    kept = HiddenRows()
    kept.put("a", -1, 2, rows(3))
    with pytest.raises(ValueError, match="2 of 3"):
        kept.between("a", 0, 3)


def test_a_position_is_ready_when_its_row_is_there_or_no_more_will_come():
    conditioning = ConditioningRows().open("a")
    assert not conditioning.ready(0)
    conditioning.push(rows(1, 2))
    assert conditioning.ready(1)
    assert not conditioning.ready(2)
    conditioning.push(rows(3), final=True)
    assert conditioning.ready(100)
    assert conditioning.between(1, 6).flatten().tolist() == [2, 3, 3, 3, 3]
