"""What a query asks for, held against what a supervisor exposes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.exposed import families, new_metrics

#: What Prometheus adds to every sample, and what a bucket has.
ADDED = frozenset({"job", "instance", "le"})
#: Of Prometheus's own.
FOREIGN = {"up": ADDED}

Samples = Mapping[str, tuple[str, frozenset[str]]]


def samples() -> dict[str, tuple[str, frozenset[str]]]:
    """Name of each sample -> type of its metric and its labels, of a supervisor that leads."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for family in families(new_metrics()):
        for sample in family.samples:
            before = found.get(sample.name, ("", frozenset()))[1]
            found[sample.name] = (family.type, before | sample.labels.keys())
    return found


def metrics_of(query: str) -> list[tuple[str, str]]:
    """Every metric in a query, with what stands between its braces."""
    return re.findall(r"(?<![:\w])((?:jobctl|process)_\w+)(?:\{([^}]*)\})?", query)


def unknown_labels(query: str, exposed: Samples) -> set[str]:
    """Labels by which it chooses or groups and that what it asks for does not have."""
    unknown: set[str] = set()
    every = set(ADDED)
    for name, matchers in metrics_of(query):
        labels = exposed[name][1] | ADDED
        every |= labels
        unknown |= set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) - labels
    if re.search(r"\bjob_queue:", query):
        every.add("queue")
    for group in re.findall(r"\b(?:by|on|group_left|without)\s*\(([^)]*)\)", query):
        unknown |= {label.strip() for label in group.split(",")} - every
    return unknown
