"""The bricks of a dashboard: a figure, a graph, a row, and how they are laid out.

Grafana's classic JSON, schema 39, which Grafana 11 and newer read. Everything is chosen by the
variables on the page; in a query `{}` is where their matchers go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
#: Variables that a dashboard can have beside the data source, and where their values come from.
VARIABLES: Mapping[str, tuple[str, str]] = {
    "job": ("Job", "label_values(jobctl_build_info, job)"),
    "instance": ("Supervisor", 'label_values(jobctl_build_info{job=~"$job"}, instance)'),
    "queue": ("Queue", 'label_values(jobctl_wait_seconds_count{job=~"$job"}, queue)'),
    "job_type": (
        "Job type",
        'label_values(jobctl_attempts_total{job=~"$job", queue=~"$queue"}, job_type)',
    ),
    "pool": ("Pool", 'label_values(jobctl_slots{job=~"$job"}, pool)'),
}
GREEN, AMBER, RED = "green", "orange", "red"
#: How an attempt ended, by what it says about the day.
OUTCOMES = {
    "succeeded": "green", "failed": "orange", "timeout": "red", "crashed": "dark-red",
    "lost": "purple", "snoozed": "blue", "interrupted": "light-blue", "cancelled": "text",
}  # fmt: skip
#: Likewise where a job stands.
STATES = {
    "running": "green", "queued": "blue", "scheduled": "light-blue", "retrying": "orange",
    "blocked": "purple", "dead": "red",
}  # fmt: skip


@dataclass(frozen=True)
class Query:
    """`text` has braces behind every metric of ours: there go the variables' matchers."""

    text: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel; `kind` is Grafana's, `defaults` are of its fields."""

    kind: str
    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str
    width: int
    height: int
    defaults: JSON = field(default_factory=dict)
    options: JSON = field(default_factory=dict)
    colours: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A heading, and what stands below it."""

    title: str
    panels: tuple[Panel, ...]


def figure(
    title: str,
    description: str,
    query: str,
    unit: str = "short",
    *,
    steps: Sequence[tuple[float, str]] = (),
    below: str = GREEN,
    words: Mapping[str, tuple[str, str]] | None = None,
    decimals: int | None = None,
) -> Panel:
    """A large number of now. `steps`: from this value on, that colour; `words` for single values,
    each with its colour."""
    thresholds: list[JSON] = [{"value": None, "color": below}]
    thresholds += [{"value": value, "color": colour} for value, colour in steps]
    defaults: JSON = {"thresholds": {"mode": "absolute", "steps": thresholds}, "noValue": "-"}
    if decimals is not None:
        defaults["decimals"] = decimals
    if words:
        options = {
            value: {"text": text, "color": colour, "index": index}
            for index, (value, (text, colour)) in enumerate(words.items())
        }
        defaults["mappings"] = [{"type": "value", "options": options}]
    return Panel(
        "stat", title, description, (Query(query),), unit, 3, 4, defaults,
        {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value", "graphMode": "area", "justifyMode": "auto",
            "orientation": "auto", "textMode": "auto",
        },
    )  # fmt: skip


def graph(
    title: str,
    description: str,
    unit: str,
    *queries: tuple[str, str],
    stacked: bool = False,
    width: int = 12,
    most: float | None = None,
    many: bool = False,
    colours: Mapping[str, str] | None = None,
) -> Panel:
    """Lines over time, `(query, legend)` each; `most` is the end of the axis, `many` lines have
    their legend as a table beside them, `colours` are for lines whose name means good or bad."""
    custom: JSON = {
        "drawStyle": "line", "lineWidth": 1, "fillOpacity": 60 if stacked else 8,
        "showPoints": "never", "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }  # fmt: skip
    defaults: JSON = {"custom": custom, "min": 0, "color": {"mode": "palette-classic"}}
    if most is not None:
        defaults["max"] = most
    legend: JSON = {
        "showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": [],
    }  # fmt: skip
    if many:
        legend |= {
            "displayMode": "table", "placement": "right", "calcs": ["max"],
            "sortBy": "Max", "sortDesc": True,
        }  # fmt: skip
    return Panel(
        "timeseries", title, description, tuple(Query(*one) for one in queries), unit, width, 8,
        defaults,
        {
            "legend": legend,
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        colours or {},
    )  # fmt: skip


@dataclass(frozen=True)
class Dashboard:
    """What is in one file; `variables` beside job and instance."""

    uid: str
    title: str
    description: str
    variables: tuple[str, ...]
    figures: tuple[Panel, ...]
    rows: tuple[Row, ...]

    def to_json(self) -> JSON:
        """As the file has it."""
        names = ("job", "instance", *self.variables)
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["jobctl"],
            "schemaVersion": 39,
            "editable": True,
            "graphTooltip": 1,
            "timezone": "browser",
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "links": [
                {
                    "type": "dashboards", "title": "jobctl", "tags": ["jobctl"], "icon": "dashboard",
                    "asDropdown": False, "includeVars": True, "keepTime": True,
                    "targetBlank": False, "tooltip": "", "url": "",
                }
            ],
            "annotations": {"list": _annotations()},
            "templating": {
                "list": [
                    {
                        "type": "datasource", "name": "datasource", "label": "Prometheus",
                        "query": "prometheus", "refresh": 1,
                    },
                    *(_variable(name) for name in names),
                ]
            },
            "panels": list(self._panels(names)),
        }  # fmt: skip

    def _panels(self, names: Sequence[str]) -> Sequence[JSON]:
        placed: list[JSON] = []
        y = _place(placed, self.figures, names, 0)
        for row in self.rows:
            placed.append(
                {
                    "id": len(placed) + 1, "type": "row", "title": row.title, "collapsed": False,
                    "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}, "panels": [],
                }
            )  # fmt: skip
            y = _place(placed, row.panels, names, y + 1)
        return placed


def _place(placed: list[JSON], panels: Sequence[Panel], names: Sequence[str], y: int) -> int:
    """From left to right, and on below; returns where the next row begins."""
    x = height = 0
    for panel in panels:
        if x + panel.width > WIDTH:
            x, y = 0, y + height
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        placed.append(_panel(panel, len(placed) + 1, place, names))
        x, height = x + panel.width, panel.height
    return y + height


def _panel(panel: Panel, number: int, place: JSON, names: Sequence[str]) -> JSON:
    targets = [
        {
            "refId": chr(ord("A") + index), "datasource": SOURCE, "editorMode": "code",
            "expr": filled_in(query.text, names), "legendFormat": query.legend or "__auto",
            "range": True,
        }
        for index, query in enumerate(panel.queries)
    ]  # fmt: skip
    overrides = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for name, colour in panel.colours.items()
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, **panel.defaults},
            "overrides": overrides,
        },
        "options": panel.options,
        "targets": targets,
    }


#: Labels that a metric has beside job and instance, as far as variables choose by them.
_CHOSEN_BY = {
    "jobctl_jobs": ("queue",),
    "jobctl_queue_age_seconds": ("queue",),
    "jobctl_queue_paused": ("queue",),
    "jobctl_wait_seconds": ("queue",),
    "jobctl_claim_to_start_seconds": ("queue",),
    "jobctl_redeliveries_total": ("queue",),
    "jobctl_jobs_enqueued_total": ("queue", "job_type"),
    "jobctl_jobs_finished_total": ("queue", "job_type"),
    "jobctl_attempts_total": ("queue", "job_type"),
    "jobctl_poisoned_jobs_total": ("queue", "job_type"),
    "jobctl_attempt_duration_seconds": ("queue", "job_type"),
    "jobctl_attempts_per_finished_job": ("job_type",),
    "jobctl_job_duration_seconds": ("job_type",),
    "jobctl_deadline_kills_total": ("job_type",),
    "jobctl_slots": ("pool",),
    "jobctl_saturation_ratio": ("pool",),
    "jobctl_slot_exits_total": ("pool",),
}


def filled_in(query: str, names: Sequence[str]) -> str:
    """The query with the variables' matchers behind each of our metrics."""

    def matched(found: re.Match[str]) -> str:
        base = re.sub(r"_(bucket|count|sum)$", "", found[1])
        labels = ["job", "instance", *(n for n in _CHOSEN_BY.get(base, ()) if n in names)]
        matchers = [f'{label}=~"${label}"' for label in labels]
        if found[2]:
            matchers.append(found[2])
        return f"{found[1]}{{{', '.join(matchers)}}}"

    return re.sub(r"\b((?:jobctl|process)_\w+)\{([^}]*)\}", matched, query)


def _variable(name: str) -> JSON:
    label, query = VARIABLES[name]
    return {
        "type": "query", "name": name, "label": label, "datasource": SOURCE,
        "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1, "multi": True,
        "includeAll": True, "allValue": ".+",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }  # fmt: skip


def _annotations() -> list[JSON]:
    names = ("job", "instance")
    started = "process_start_time_seconds{} and on (job, instance) jobctl_build_info{}"
    return [
        {
            "name": "Supervisor started", "enable": True, "iconColor": "blue",
            "datasource": SOURCE, "expr": f"({filled_in(started, names)}) * 1000",
            "useValueForTime": True, "titleFormat": "Supervisor started",
            "textFormat": "{{instance}}",
        },
        {
            "name": "Leader changed", "enable": True, "iconColor": "purple", "datasource": SOURCE,
            "expr": filled_in("jobctl_leader{} == 1 unless jobctl_leader{} offset 1m == 1", names),
            "step": "1m", "titleFormat": "New leader", "textFormat": "{{instance}}",
        },
        {
            "name": "Alert", "enable": True, "iconColor": "red", "datasource": SOURCE,
            "expr": 'ALERTS{job=~"$job", alertname=~"Jobctl.+", alertstate="firing"}',
            "step": "1m", "titleFormat": "{{alertname}}",
            "textFormat": "{{severity}} {{queue}} {{job_type}} {{instance}}",
        },
    ]  # fmt: skip
