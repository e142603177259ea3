"""The shipped dashboard: it loads, nothing overlaps, and every query asks for what exists.

A dashboard breaks in silence: a metric that was renamed is an empty panel on the night when
somebody needs it. So every query is held against what a supervisor exposes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jobctl.supervisor.metrics import Metrics
from jobctl.supervisor.outcomes import UNREGISTERED

FOLDER = Path(__file__).parents[2] / "grafana"
COLUMNS = 24
#: What Prometheus adds to every sample, and what a bucket has.
ADDED_LABELS = {"job", "instance", "le"}

Panel = dict[str, Any]


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    loaded = json.loads((FOLDER / "jobctl-overview.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture(scope="module")
def exposed() -> dict[str, tuple[str, set[str]]]:
    """Name of each sample -> type of its metric and its labels, of a supervisor that leads."""
    metrics = Metrics("1.2.3")
    metrics.know([UNREGISTERED])
    metrics.know_pools(["default"])
    metrics.know_duties(["reap"])
    metrics.leading(True)
    metrics.crons({"nightly": 0.0})
    metrics.unrunnable(0)
    metrics.backlog([("mail", "queued", 3, 1.5)])
    metrics.oldest_transaction(7.0)
    text = b"".join(metrics.expose()).decode()
    return {
        sample.name: (family.type, set(sample.labels))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _panels(dashboard: dict[str, Any]) -> list[Panel]:
    panels: list[Panel] = dashboard["panels"]
    return panels


def _queries(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Where it stands, and the PromQL."""
    for panel in _panels(dashboard):
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def _variable_queries(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


def test_it_can_be_provisioned(dashboard: dict[str, Any]) -> None:
    """A fixed uid, no id, no inputs to be asked for; one data source, chosen on the page."""
    assert re.fullmatch(r"[a-z0-9-]{1,40}", dashboard["uid"])
    assert "id" not in dashboard
    assert "__inputs" not in dashboard
    first, *others = dashboard["templating"]["list"]
    assert (first["type"], first["query"]) == ("datasource", "prometheus")
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    panels = [panel for panel in _panels(dashboard) if panel["type"] != "row"]
    targets = [target for panel in panels for target in panel["targets"]]
    for user in (*panels, *targets, *others, *dashboard["annotations"]["list"]):
        assert user["datasource"] == chosen
    for variable in others:
        assert variable["multi"] and variable["includeAll"] and variable["allValue"] == ".+"


def test_ids_are_unique_and_nothing_overlaps(dashboard: dict[str, Any]) -> None:
    """24 columns; a cell belongs to one panel."""
    panels = _panels(dashboard)
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= COLUMNS, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies over {taken[x, y]}"
                taken[x, y] = panel["title"]


def test_every_panel_says_what_it_means(dashboard: dict[str, Any]) -> None:
    """A description and a unit. (The commands in it: tests/test_readme.py.)"""
    for panel in _panels(dashboard):
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_every_query_asks_for_what_a_supervisor_exposes(
    dashboard: dict[str, Any], exposed: dict[str, tuple[str, set[str]]]
) -> None:
    """Metrics, and the labels that they are chosen and grouped by."""
    every = [*_queries(dashboard), *_variable_queries(dashboard)]
    for where, query in every:
        chosen = re.findall(r"\b((?:jobctl|process)_\w+)(?:\{([^}]*)\})?", query)
        assert chosen, where
        for name, matchers in chosen:
            assert name in exposed, f"{where}: there is no {name}"
            labels = exposed[name][1] | ADDED_LABELS
            used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert used <= labels, f"{where}: {name} has no {used - labels}"
        labels = set().union(*(exposed[name][1] for name, _ in chosen)) | ADDED_LABELS
        for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", query):
            used = {label.strip() for label in group.split(",")}
            assert used <= labels, f"{where}: grouped by {used - labels}"


def test_every_query_can_be_narrowed(dashboard: dict[str, Any]) -> None:
    """To a job, an instance and, where the metric has one, a queue."""
    for where, query in _queries(dashboard):
        for name, matchers in re.findall(r"\b(jobctl_\w+)(?:\{([^}]*)\})?", query):
            assert 'job=~"$job"' in matchers and 'instance=~"$instance"' in matchers, where
            if name in ("jobctl_jobs", "jobctl_queue_age_seconds", "jobctl_attempts_total"):
                assert 'queue=~"$queue"' in matchers, where


def test_rates_are_of_counters(
    dashboard: dict[str, Any], exposed: dict[str, tuple[str, set[str]]]
) -> None:
    """A rate of a gauge is nonsense that draws a line; and the window follows the zoom."""
    for where, query in _queries(dashboard):
        for name, window in re.findall(
            r"\b(?:rate|irate|increase)\((\w+)\{[^}]*\}\[([^]]*)\]", query
        ):
            assert exposed[name][0] in ("counter", "histogram"), where
            assert window == "$__rate_interval", where
        assert len(re.findall(r"\b(?:rate|irate|increase)\(", query)) == query.count("[$__"), where


def test_prometheus_understands_every_query(dashboard: dict[str, Any], tmp_path: Path) -> None:
    """Through promtool, as rules."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here: apt-get install prometheus")
    rules = [
        {"record": f"query:{number}", "expr": _filled_in(query)}
        for number, (_, query) in enumerate(_queries(dashboard))
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", file], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_provisioning_names_a_folder_that_the_dashboard_can_be_put_into() -> None:
    """Without a YAML parser: the few lines that Grafana cannot do without."""
    text = (FOLDER / "provisioning.yaml").read_text()
    assert re.search(r"^apiVersion: 1$", text, re.M)
    assert re.search(r"^    type: file$", text, re.M)
    assert re.search(r"^      path: /\S+$", text, re.M)


def _filled_in(query: str) -> str:
    """As Grafana sends it."""
    query = query.replace("$__rate_interval", "5m").replace("$__range", "1h")
    return re.sub(r"\$\w+", ".+", query)
