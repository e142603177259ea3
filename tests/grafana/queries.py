"""What a query asks for, held against what a supervisor exposes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

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


def everywhere(dashboard: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Where each query of a dashboard stands, and the query as Grafana sends it with everything
    chosen and a page of an hour or so."""
    for where, query in queries(dashboard):
        filled = query.replace("$__rate_interval", "1m").replace("$__range", "1h")
        yield where, re.sub(r"\$\w+", ".+", filled)


def queries(dashboard: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Where it stands, and the PromQL as it is in the file."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]
