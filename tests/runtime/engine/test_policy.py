from __future__ import annotations

import pytest

from omnistage.runtime.engine.diffusion.policy import RequestFacts, order, policy_key
from omnistage.runtime.engine.diffusion.settings import EngineSettings

SETTINGS = EngineSettings(ageing=0.5)
LONG = RequestFacts("long", arrived_s=0.0, remaining_s=60.0, client_served_s=30.0)
SHORT = RequestFacts("short", arrived_s=5.0, remaining_s=2.0, client_served_s=1.0)
URGENT = RequestFacts("urgent", arrived_s=6.0, remaining_s=90.0, client_served_s=50.0, priority=9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fcfs", ["long", "short", "urgent"]),
        ("srpt", ["short", "long", "urgent"]),
        ("fair", ["short", "long", "urgent"]),
        ("priority", ["urgent", "long", "short"]),
    ],
)
def test_order(name: str, expected: list[str]) -> None:
    key = policy_key(name, SETTINGS)
    assert order(key, [URGENT, SHORT, LONG], now_s=10.0) == expected


@pytest.mark.parametrize("name", ["fcfs", "fair", "priority"])
def test_what_comes_before_the_loop_goes_first(name: str) -> None:
    key = policy_key(name, SETTINGS)
    looping = RequestFacts("looping", arrived_s=0.0, in_loop=True)
    preparing = RequestFacts("preparing", arrived_s=5.0)
    assert order(key, [looping, preparing], now_s=10.0) == ["preparing", "looping"]


def test_ageing_brings_a_long_job_forward() -> None:
    key = policy_key("srpt", SETTINGS)
    new = RequestFacts("new", arrived_s=200.0, remaining_s=2.0)
    assert order(key, [LONG, new], now_s=200.0) == ["long", "new"]


def test_without_ageing_it_starves() -> None:
    key = policy_key("srpt", EngineSettings(ageing=0.0))
    new = RequestFacts("new", arrived_s=1000.0, remaining_s=2.0)
    assert order(key, [LONG, new], now_s=1000.0) == ["new", "long"]


def test_ties_are_broken_by_id() -> None:
    twins = [RequestFacts(name, arrived_s=0.0) for name in ("b", "a")]
    assert order(policy_key("fcfs", SETTINGS), twins, now_s=0.0) == ["a", "b"]
