"""The runtime's statistics in Prometheus' format; keeps no numbers of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

BATCH_BOUNDS = (1, 2, 4, 8, 16, 32, 64)


class RuntimeCollector(Collector):
    """Reads the orchestrator's `stats` at each scrape.

    Args:
        stats: returns the statistics, as `/v1/stats` shows them.
    """

    def __init__(self, stats: Callable[[], Mapping[str, Any]]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        stats = self._stats()
        yield _by_label("omnistage_jobs", "Jobs now, by state.", "state", stats["jobs"])
        finished = CounterMetricFamily(
            "omnistage_jobs_finished", "Jobs ended, by how.", labels=["state"]
        )
        for state, count in stats["finished"].items():
            finished.add_metric([state], count)
        yield finished
        yield _batches(stats["batches"])
        yield GaugeMetricFamily("omnistage_leases", "Owners with a lease.", stats["leases"])
        yield from _store(stats["store"])
        yield from _engines(stats["engines"])


def exposition(stats: Callable[[], Mapping[str, Any]]) -> Callable[[], bytes]:
    """A function that returns all metrics as text, for `/metrics`."""
    registry = CollectorRegistry()
    registry.register(RuntimeCollector(stats))
    return lambda: generate_latest(registry)


def _store(store: Mapping[str, Any]) -> Iterator[Metric]:
    yield GaugeMetricFamily("omnistage_store_bytes", "Bytes in the result store.", store["bytes"])
    yield GaugeMetricFamily(
        "omnistage_store_budget_bytes", "Bytes it holds at most.", store["budget_bytes"]
    )
    yield CounterMetricFamily(
        "omnistage_store_evictions", "Items dropped to make room.", store["evictions"]
    )


def _engines(engines: Mapping[str, Any]) -> Iterator[Metric]:
    labels = ["engine"]
    ready = GaugeMetricFamily("omnistage_engine_ready", "1: the engine is up.", labels=labels)
    restarts = CounterMetricFamily(
        "omnistage_engine_restarts", "Dead engines replaced.", labels=labels
    )
    # A core's counters start over with each engine process, so they are gauges out here.
    core = GaugeMetricFamily(
        "omnistage_engine", "The engine core's own numbers.", labels=["engine", "name"]
    )
    components = GaugeMetricFamily(
        "omnistage_component_bytes",
        "Weights in memory, by component of a model.",
        labels=["engine", "component"],
    )
    for engine, state in engines.items():
        ready.add_metric([engine], int(state["ready"]))
        restarts.add_metric([engine], state["restarts"])
        for name, value in state["core"].items():
            if isinstance(value, int | float):
                core.add_metric([engine, name], value)
        for name, nbytes in state["core"].get("components", {}).items():
            components.add_metric([engine, name], nbytes)
    yield from (ready, restarts, core, components)


def _by_label(name: str, words: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=[label])
    for value_of, value in values.items():
        family.add_metric([value_of], value)
    return family


def _batches(counts: Mapping[str, int]) -> Metric:
    """One observation for each step of each request."""
    sizes = {int(size): count for size, count in counts.items()}
    buckets = [
        (str(float(bound)), sum(n for size, n in sizes.items() if size <= bound))
        for bound in BATCH_BOUNDS
    ]
    family = HistogramMetricFamily(
        "omnistage_batch_size", "Requests that shared a step's forward pass."
    )
    total = sum(sizes.values())
    weighted = sum(size * n for size, n in sizes.items())
    family.add_metric([], [*buckets, ("+Inf", total)], sum_value=weighted)
    return family
