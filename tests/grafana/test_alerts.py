"""The shipped alerts: each fires when it should and is quiet beside it, and says what to type."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from jobctl.supervisor.events import Event
from tests.grafana.alert_cases import CALM, CASES
from tests.grafana.alerts import FILE, alerts, failures, rules
from tests.grafana.prometheus import promtool
from tests.grafana.queries import samples, unknown_labels
from tests.mentions import commands, unknown_commands

RUNBOOK = FILE.with_name("RUNBOOK.md")


def test_promtool_finds_nothing_to_mend() -> None:
    """Also not what it would only mention."""
    done = subprocess.run(
        [promtool(), "check", "rules", "--lint=all", "--lint-fatal", FILE],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    """Whoever adds one shows what makes it fire."""
    assert {case.alert for case in CASES} == alerts().keys()
    assert {case.alert for case in CALM} <= alerts().keys()


def test_every_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    """With its labels, and with words in which every placeholder is filled in."""
    assert failures(CASES, tmp_path) == ""


def test_what_is_near_and_harmless_is_quiet(tmp_path: Path) -> None:
    """A paused queue does not stall, a deploy is no redelivery."""
    assert failures(CALM, tmp_path) == ""


def test_a_case_that_does_not_hold_is_found(tmp_path: Path) -> None:
    """The guard of the two above."""
    wrong = CASES[0].__class__(**{**vars(CASES[0]), "summary": "something else"})
    assert "something else" in failures([wrong], tmp_path)


def test_every_alert_says_what_it_is_about() -> None:
    """How bad it is, what has happened, what to type first, and where it is explained."""
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("critical", "warning"), name
        annotations = rule["annotations"]
        assert set(annotations) == {"summary", "command", "runbook_url"}, name
        assert annotations["runbook_url"] == f"RUNBOOK.md#{name.lower()}", name


def _sections() -> dict[str, str]:
    text = RUNBOOK.read_text()
    return dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", text, re.M | re.S))


def test_every_alert_is_explained_in_the_runbook() -> None:
    """What it means, how to see the cause, how to repair it; and nothing is explained that is not
    there any more."""
    sections = _sections()
    assert sections.keys() == alerts().keys()
    for name, text in sections.items():
        parts = re.findall(r"^\*\*(\w+)\.\*\* ", text, re.M)
        assert parts == ["Means", "See", "Repair"], name
        assert set(re.findall(r"\]\(#(\w+)\)", text)) <= {one.lower() for one in sections}, name


def test_every_command_that_it_says_exists() -> None:
    """With its options: whoever types it is in a hurry."""
    typed = [
        *commands(RUNBOOK.read_text()),
        *(
            re.sub(r"\{\{ \$labels\.\w+ \}\}", "NAME", rule["annotations"]["command"])
            for rule in alerts().values()
        ),
    ]
    assert len([line for line in typed if line.startswith("jobctl ")]) > 60
    assert unknown_commands(typed) == []


def test_events_that_the_runbook_names_exist() -> None:
    """They are what somebody will look for in the log."""
    known = {event.name.lower() for event in Event}
    named = re.findall(r"[Ee]vents? ((?:`\w+`(?:, | and )?)+)", RUNBOOK.read_text())
    events = {word for words in named for word in re.findall(r"`(\w+)`", words)}
    assert len(events) >= 5
    assert events <= known


def test_every_metric_that_is_named_exists() -> None:
    """With the labels by which it is chosen and grouped."""
    exposed = samples()
    for name, rule in rules().items():
        for metric in set(re.findall(r"\b(jobctl_\w+)", rule["expr"])):
            if f":{metric}:" not in rule["expr"]:
                assert metric in exposed, f"{name}: there is no {metric}"
        assert unknown_labels(rule["expr"], exposed) == set(), name
    assert set(re.findall(r"\bjobctl_\w+", RUNBOOK.read_text())) <= exposed.keys()
