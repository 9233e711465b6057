"""Which requests go first: pure functions of facts and a clock, without torch.

Each policy gives a request a sort key; the smallest goes first. Filling the batch is the
engine's business: it takes calls that can share the first request's forward, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .settings import EngineSettings, PolicyName


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What a policy may know about a waiting request.

    Attributes:
        request: its id.
        arrived_s: when it was submitted, on the clock that `now_s` is read from.
        in_loop: it is in its loop of steps. What comes before and after is little, and what comes
            before lets it share the loop's forwards with the others: it goes first.
        remaining_s: estimated device time it still needs.
        client_served_s: device time its client has had lately.
        priority: higher goes first (policy `priority`).
    """

    request: str
    arrived_s: float
    in_loop: bool = False
    remaining_s: float = 0.0
    client_served_s: float = 0.0
    priority: int = 0


SortKey = Callable[[RequestFacts, float], tuple[float, ...]]


def fcfs(facts: RequestFacts, now_s: float) -> tuple[float, ...]:
    """First come, first served."""
    return (facts.in_loop, facts.arrived_s)


def fair(facts: RequestFacts, now_s: float) -> tuple[float, ...]:
    """The client that had least device time goes first; within a client, first come."""
    return (facts.client_served_s, facts.in_loop, facts.arrived_s)


def priority(facts: RequestFacts, now_s: float) -> tuple[float, ...]:
    """Higher priority first; among equals, first come."""
    return (-facts.priority, facts.in_loop, facts.arrived_s)


def shortest_remaining(ageing: float) -> SortKey:
    """Least remaining work first, less `ageing` seconds for each second waited.

    Without ageing, large requests starve under load: their 95th percentile doubles.
    """

    def key(facts: RequestFacts, now_s: float) -> tuple[float, ...]:
        waited_s = now_s - facts.arrived_s
        return (facts.remaining_s - ageing * waited_s, facts.arrived_s)

    return key


def policy_key(name: PolicyName, settings: EngineSettings) -> SortKey:
    """The policy of that name."""
    table: dict[PolicyName, SortKey] = {
        "fcfs": fcfs,
        "srpt": shortest_remaining(settings.ageing),
        "fair": fair,
        "priority": priority,
    }
    return table[name]


def order(key: SortKey, facts: Sequence[RequestFacts], now_s: float) -> list[str]:
    """Ids of the requests, the one that goes first at the front."""
    return [f.request for f in sorted(facts, key=lambda f: (*key(f, now_s), f.request))]
