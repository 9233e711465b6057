from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnistage.runtime.bench import run
from omnistage.tests.fakes.codecs import fill_batches
from omnistage.tests.fakes.tiny_diffusion import CHECKPOINTS


def test_eight_requests_share_forwards_and_come_to_what_each_comes_to_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_batches(monkeypatch)
    CHECKPOINTS["flux"](tmp_path / "checkpoints" / "flux")
    (tmp_path / "checkpoints" / "something else").mkdir()
    monkeypatch.chdir(tmp_path)
    run("families", checkpoints=tmp_path / "checkpoints")
    rows = json.loads((tmp_path / ".bench" / "families.json").read_text())["rows"]
    assert {(row["case"].split(", ")[2], row["baseline"]) for row in rows} == {
        (case, baseline)
        for case in ("one size", "mixed sizes")
        for baseline in ("one by one", "grouped", "single")
    }
    for row in rows:
        assert row["max_abs_diff"] <= 2e-5 * row["scale"]
        assert row["mean_batch"] > 1


def test_a_folder_of_checkpoints_is_for_this_benchmark_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--checkpoints"):
        run("families", checkpoints=tmp_path)
    with pytest.raises(ValueError, match="model of its own"):
        run("engine", checkpoints=tmp_path)
