"""The shipped dashboards: they load, nothing overlaps, and every query asks for what exists.

A dashboard breaks in silence: a metric that was renamed is an empty panel on the night when
somebody needs it. So every query is held against what a supervisor exposes, and in
`test_rehearsal.py` against what a Prometheus has scraped.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.grafana.alerts import FILE as RULES
from tests.grafana.dashboards.files import DASHBOARDS, FOLDER, contents
from tests.grafana.dashboards.panels import WIDTH
from tests.grafana.prometheus import promtool
from tests.grafana.queries import everywhere, metrics_of, queries, samples, unknown_labels
from tests.mentions import unknown_commands

LOADED: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))
}
every_dashboard = pytest.mark.parametrize("dashboard", LOADED.values(), ids=LOADED.keys())


def test_the_files_are_what_the_code_makes() -> None:
    """If not: python -m tests.grafana.dashboards."""
    assert {path.name: path.read_text() for path in FOLDER.glob("*.json")} == contents()


@every_dashboard
def test_it_can_be_provisioned(dashboard: dict[str, Any]) -> None:
    """A fixed uid, no id, no inputs to be asked for; one data source, chosen on the page."""
    assert re.fullmatch(r"[a-z0-9-]{1,40}", dashboard["uid"])
    assert "id" not in dashboard
    assert "__inputs" not in dashboard
    first, *others = dashboard["templating"]["list"]
    assert (first["type"], first["query"]) == ("datasource", "prometheus")
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    targets = [target for panel in panels for target in panel["targets"]]
    for user in (*panels, *targets, *others, *dashboard["annotations"]["list"]):
        assert user["datasource"] == chosen
    for variable in others:
        assert variable["multi"] and variable["includeAll"] and variable["allValue"] == ".+"


def test_they_are_told_apart_and_lead_to_each_other() -> None:
    """By uid and title; the tag is what the links on each page go by."""
    assert len({one.uid for one in DASHBOARDS}) == len({one.title for one in DASHBOARDS}) == 4
    for dashboard in LOADED.values():
        assert "jobctl" in dashboard["tags"]
        assert dashboard["links"][0]["tags"] == ["jobctl"]


@every_dashboard
def test_ids_are_unique_and_nothing_overlaps(dashboard: dict[str, Any]) -> None:
    """24 columns; a cell belongs to one panel."""
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= WIDTH, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies over {taken[x, y]}"
                taken[x, y] = panel["title"]


@every_dashboard
def test_every_panel_says_what_it_means(dashboard: dict[str, Any]) -> None:
    """A description and a unit, of the kinds that Grafana still has; and no two of one title."""
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    for panel in panels:
        assert panel["type"] in ("stat", "timeseries")
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
    titles = [(panel["type"], panel["title"]) for panel in panels]
    assert len(set(titles)) == len(titles)


def test_every_command_on_them_exists() -> None:
    """Whoever reads a panel's description is in a hurry."""
    said = [
        panel["description"]
        for dashboard in LOADED.values()
        for panel in dashboard["panels"]
        if "description" in panel
    ]
    typed = [line for text in said for line in re.findall(r"More: (jobctl .*)$", text)]
    assert len(typed) > 20
    assert unknown_commands(typed) == []


@every_dashboard
def test_every_query_asks_for_what_a_supervisor_exposes(dashboard: dict[str, Any]) -> None:
    """Metrics, and the labels that they are chosen and grouped by."""
    exposed = samples()
    variables = [
        (variable["name"], variable["query"]["query"])
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    ]
    for where, query in [*queries(dashboard), *variables]:
        chosen = metrics_of(query)
        assert chosen or "ALERTS" in query, where
        for name, _ in chosen:
            assert name in exposed, f"{where}: there is no {name}"
        assert unknown_labels(query, exposed) == set(), where


@every_dashboard
def test_every_query_can_be_narrowed(dashboard: dict[str, Any]) -> None:
    """By every variable of the page that the metric has a label for."""
    exposed = samples()
    names = {variable["name"] for variable in dashboard["templating"]["list"][1:]}
    for where, query in queries(dashboard):
        for name, matchers in metrics_of(query):
            for variable in names & (exposed[name][1] | {"job", "instance"}):
                chosen = f'{variable}=~"${variable}"'
                # A statement's label must not be taken for a job type's, and so on.
                assert chosen in matchers or f"by ({variable}" in query, f"{where}: {variable}"


def test_every_metric_is_on_some_dashboard() -> None:
    """What is not shown is not looked at."""
    shown = {
        name
        for dashboard in LOADED.values()
        for _, query in queries(dashboard)
        for name, _ in metrics_of(query)
    }
    bases = {re.sub(r"_(bucket|count|sum)$", "", name) for name in shown}
    ours = {name for name in samples() if name.startswith("jobctl_")}
    hidden = {re.sub(r"_(bucket|count|sum)$", "", name) for name in ours} - bases
    hidden.discard("jobctl_job_type_info")  # it is for the alerts
    assert hidden == set(), "give it a panel in tests/grafana/dashboards/"


@every_dashboard
def test_rates_are_of_counters(dashboard: dict[str, Any]) -> None:
    """A rate of a gauge is nonsense that draws a line; and the window follows the zoom."""
    exposed = samples()
    for where, query in queries(dashboard):
        for name, window in re.findall(
            r"\b(?:rate|irate|increase)\((\w+)\{[^}]*\}\[([^]]*)\]", query
        ):
            counts = exposed[name][0] in ("counter", "histogram")
            assert counts or name == "process_cpu_seconds_total", where
            assert window == "$__rate_interval", where
        assert len(re.findall(r"\b(?:rate|irate|increase)\(", query)) == query.count("[$__"), where


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    """Through promtool, as rules."""
    every = [query for dashboard in LOADED.values() for _, query in everywhere(dashboard)]
    rules = [{"record": f"query:{at}", "expr": query} for at, query in enumerate(every)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))
    done = subprocess.run(
        [promtool(), "check", "rules", str(file)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_provisioning_names_a_folder_that_the_dashboards_can_be_put_into() -> None:
    """The few lines that Grafana cannot do without."""
    text = (FOLDER / "provisioning.yaml").read_text()
    assert re.search(r"^apiVersion: 1$", text, re.M)
    assert re.search(r"^    type: file$", text, re.M)
    assert re.search(r"^      path: /\S+$", text, re.M)


def test_panels_that_the_runbook_names_exist() -> None:
    """Between quotation marks, after the name of a dashboard."""
    text = " ".join(RULES.with_name("RUNBOOK.md").read_text().split())
    titles = {panel["title"] for one in LOADED.values() for panel in one["panels"]}
    named = set(re.findall(r'"([A-Z][^"]*)"', text))
    assert len(named) > 10
    for name in named:
        assert any(title.startswith(name) for title in titles), name


def test_every_dashboard_has_a_small_picture_in_the_readme() -> None:
    """Made by `make pictures`."""
    readme = (FOLDER.parent / "README.md").read_text()
    for name in LOADED:
        picture = FOLDER / "pictures" / f"{name.removeprefix('jobctl-')}.png"
        assert picture.read_bytes().startswith(b"\x89PNG"), picture
        assert picture.stat().st_size < 150_000, picture
        assert f"(grafana/pictures/{picture.name})" in readme
