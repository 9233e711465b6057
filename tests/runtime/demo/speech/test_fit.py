"""Training goes on where it was."""

import torch
from torch import nn

from omnistage.runtime.demo.speech.fit import Recipe, fit


class Line:
    """A module that learns to say nothing, and the batches that it has seen."""

    def __init__(self):
        self.module = nn.Linear(3, 1)
        self.draws = []

    def loss(self, rng):
        self.draws.append(rng.random())
        return self.module(torch.ones(4, 3)).pow(2).mean(), {}

    def fit(self, folder, steps):
        fit("line", self.module, self.loss, Recipe(0.1), folder, steps)
        return self


def test_a_finished_run_is_read_back(tmp_path):
    done = Line().fit(tmp_path, 5)
    again = Line().fit(tmp_path, 5)
    assert len(done.draws) == 5
    assert again.draws == []
    assert torch.equal(again.module.weight, done.module.weight)


def test_a_longer_run_goes_on_with_new_batches(tmp_path):
    first = Line().fit(tmp_path, 5)
    longer = Line().fit(tmp_path, 8)
    assert len(longer.draws) == 3
    assert not set(first.draws) & set(longer.draws)
