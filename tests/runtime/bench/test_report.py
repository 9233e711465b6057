from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnistage.runtime.bench import run
from omnistage.runtime.bench.report import Report, Row, fastest


def test_the_json_form_that_all_benches_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = Report("toy", seed=3)
    report.add(Row("case", 2.0, "baseline", 5.0, 1e-6, 4.0, {"mean_batch": 3.0}))
    body = json.loads(report.finish().read_text())
    assert (body["bench"], body["seed"]) == ("toy", 3)
    assert {"python", "torch", "diffusers"} <= body["versions"].keys()
    (row,) = body["rows"]
    assert row["ratio"] == 2.5
    assert (row["max_abs_diff"], row["mean_batch"]) == (1e-6, 3.0)


def test_works_take_turns() -> None:
    order: list[str] = []
    results = fastest(2, lambda: order.append("a"), lambda: order.append("b"))
    assert order == ["a", "b", "a", "b"]
    assert len(results) == 2


def test_an_unknown_bench_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="engine, families, memory, mixed, policy, queue"):
        run("speed")
