from __future__ import annotations

import pytest

from omnistage.runtime.engine.diffusion.cost import CostCurve


def line(fixed: float, per_token: float, *tokens: int) -> CostCurve:
    curve = CostCurve()
    for n in tokens:
        curve.observe(n, fixed + per_token * n)
    return curve


def test_a_line_is_found() -> None:
    fixed, slope = line(0.01, 1e-4, 16, 64, 256).fit() or (0, 0)
    assert fixed == pytest.approx(0.01)
    assert slope == pytest.approx(1e-4)


def test_full_where_more_tokens_gain_little() -> None:
    curve = line(0.01, 1e-4, 16, 64, 256)
    full = curve.full_tokens(0.95)
    assert full == pytest.approx(0.95 / 0.05 * 0.01 / 1e-4, rel=1e-3)
    throughput = full / curve.estimate_s(full)
    assert throughput == pytest.approx(0.95 / 1e-4, rel=1e-3)


def test_forwards_that_grow_faster_than_a_line_leave_the_fixed_part() -> None:
    """Attention over long rows does; batches of short ones must go on being formed."""
    curve = line(0.008, 1.5e-4, 8, 96, 192, 768)
    curve.observe(2768, 2.0)
    assert (curve.full_tokens(0.95) or 0) > 192


def test_large_pictures_fill_a_batch_alone() -> None:
    assert (line(0.001, 1e-3, 1024, 4096).full_tokens(0.95) or 0) < 1024


def test_unknown_until_different_sizes_were_seen() -> None:
    assert CostCurve().full_tokens(0.95) is None
    assert line(0.01, 1e-4, 64).fit() is None
    assert line(0.01, 1e-4, 64).estimate_s(64) == pytest.approx(0.0164)


def test_noise_that_falls_with_size_is_no_line() -> None:
    curve = CostCurve()
    curve.observe(16, 0.5)
    curve.observe(64, 0.1)
    assert curve.fit() is None


def test_a_disturbed_measurement_does_not_last() -> None:
    curve = line(0.01, 1e-4, 16, 64)
    curve.observe(64, 9.0)
    assert curve.estimate_s(64) < 0.03


def test_forwards_that_a_coarse_clock_does_not_see_are_points_too() -> None:
    curve = CostCurve()
    curve.observe(16, 0.0)
    curve.observe(64, 0.0)
    assert curve.fit() is None
    assert curve.estimate_s(64) < 1e-6


def test_points_are_bounded() -> None:
    curve = CostCurve()
    for n in range(1, 1000):
        curve.observe(n, n * 1e-4)
    assert len(curve.points) <= 64
