"""Counters and histograms for the hot path: a number in memory, nothing else.

prometheus_client's own take a lock and a walk over the buckets at every observation, about five
times the cost, and a supervisor observes several things for each of thousands of jobs a second.
These are written by one thread, the loop's, and become prometheus_client's samples only when
somebody scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Counter:
    """How often."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, times: int = 1) -> None:
        """Once more."""
        self.value += times


class Histogram:
    """How long, or how many: observations sorted into buckets up to each edge, and their sum."""

    __slots__ = ("counts", "edges", "total")

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One observation. What two clocks make negative counts as nothing."""
        if value < 0:
            value = 0.0
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value


Member = TypeVar("Member", Counter, Histogram)


class Family(Collector, Generic[Member]):
    """All counters, or all histograms, of one name, by the values of their labels."""

    def __init__(
        self, name: str, help: str, labels: Sequence[str], make: Callable[[], Member]
    ) -> None:
        self.name = name
        self._help = help
        self._labels = labels
        self._make: Callable[[], Member] = make
        self._are_histograms = isinstance(make(), Histogram)
        self._members: dict[tuple[str, ...], Member] = {}

    def at(self, *values: str) -> Member:
        """The member with these labels; it exists from now on, at zero."""
        member = self._members.get(values)
        if member is None:
            if len(values) != len(self._labels):
                raise ValueError(f"{self.name} has the labels {', '.join(self._labels)}")
            member = self._members[values] = self._make()
        return member

    def collect(self) -> Iterable[Metric]:
        """For the registry."""
        counters = CounterMetricFamily(self.name, self._help, labels=self._labels)
        histograms = HistogramMetricFamily(self.name, self._help, labels=self._labels)
        for values, member in self._members.items():
            if isinstance(member, Counter):
                counters.add_metric(values, member.value)
            else:
                histograms.add_metric(values, _cumulative(member), member.total)
        yield histograms if self._are_histograms else counters


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    buckets = []
    running = 0
    names = (*(repr(float(edge)) for edge in histogram.edges), "+Inf")
    for name, count in zip(names, histogram.counts, strict=True):
        running += count
        buckets.append((name, float(running)))
    return buckets
