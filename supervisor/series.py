"""Counters and histograms for the hot path: a number in memory, nothing else.

prometheus_client's own take a lock and a walk over the buckets at every observation, about five
times the cost, and a supervisor observes several things for each of thousands of jobs a second.
These are written by one thread, the loop's, and become text only when somebody scrapes: in pieces,
between which the loop does what is more urgent, and without doing again what has not changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

#: So many members make one piece of text; a histogram is about twenty lines.
PIECE = 25


class Counter:
    """How often."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, times: int = 1) -> None:
        """Once more."""
        self.value += times

    def text(self, name: str, labels: str) -> str:
        """Its line."""
        return f"{name}_total{_braced(labels)} {self.value}.0\n"


class Fact:
    """Something that is so: always 1, the labels say what."""

    __slots__ = ()

    def text(self, name: str, labels: str) -> str:
        """Its line."""
        return f"{name}{_braced(labels)} 1.0\n"


class Histogram:
    """How long, or how many: observations sorted into buckets up to each edge, and their sum."""

    __slots__ = ("_text", "_text_of", "counts", "edges", "total")

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total = 0.0
        self._text = ""  # as it was when it had so many observations
        self._text_of = -1

    def observe(self, value: float) -> None:
        """One observation. What two clocks make negative counts as nothing."""
        if value < 0:
            value = 0.0
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value

    def text(self, name: str, labels: str) -> str:
        """Its lines."""
        observations = sum(self.counts)
        if observations != self._text_of:
            self._text = "".join(self._lines(name, labels))
            self._text_of = observations
        return self._text

    def _lines(self, name: str, labels: str) -> Iterator[str]:
        before = f"{name}_bucket{{{labels}{',' if labels else ''}le="
        running = 0
        for edge, count in zip((*self.edges, None), self.counts, strict=True):
            running += count
            yield f'{before}"{"+Inf" if edge is None else float(edge)}"}} {running}.0\n'
        yield f"{name}_count{_braced(labels)} {running}.0\n"
        yield f"{name}_sum{_braced(labels)} {self.total!r}\n"


Member = TypeVar("Member", Counter, Histogram, Fact)
#: What is written behind the name, and what Prometheus calls the kind.
_KINDS: dict[type, tuple[str, str]] = {
    Counter: ("_total", "counter"), Histogram: ("", "histogram"), Fact: ("", "gauge"),
}  # fmt: skip


class Family(Generic[Member]):
    """All members of one name, which are of one kind, by the values of their labels."""

    def __init__(
        self, name: str, help: str, labels: Sequence[str], make: Callable[[], Member]
    ) -> None:
        self.name = name
        self._labels = labels
        self._make: Callable[[], Member] = make
        suffix, kind = _KINDS[type(make())]
        self._head = f"# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"
        self._members: dict[tuple[str, ...], Member] = {}
        self._shown: list[tuple[str, Member]] = []  # the labels as they are written

    def __len__(self) -> int:
        return len(self._members)

    def at(self, *values: str) -> Member:
        """The member with these labels; it exists from now on, at zero."""
        member = self._members.get(values)
        if member is None:
            if len(values) != len(self._labels):
                raise ValueError(f"{self.name} has the labels {', '.join(self._labels)}")
            member = self._members[values] = self._make()
            pairs = sorted(zip(self._labels, values, strict=True))
            written = ",".join(f'{label}="{_escaped(value)}"' for label, value in pairs)
            self._shown.append((written, member))
        return member

    def clear(self) -> None:
        """None of them is so any more."""
        self._members.clear()
        self._shown.clear()

    def pieces(self) -> Iterator[bytes]:
        """The text of all of them, a few at a time."""
        yield self._head.encode()
        for first in range(0, len(self._shown), PIECE):
            some = self._shown[first : first + PIECE]
            yield "".join(member.text(self.name, labels) for labels, member in some).encode(
                errors="replace"
            )


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
