"""The shipped alert rules, and how they are asked whether they fire: by `promtool test rules`."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.grafana.alert_cases import Calm, Case
from tests.grafana.prometheus import promtool

LONG = 180  # minutes
FILE = Path(__file__).parents[2] / "grafana" / "alerts.yml"


def groups() -> list[dict[str, Any]]:
    """Of the file."""
    loaded: dict[str, list[dict[str, Any]]] = yaml.safe_load(FILE.read_text())
    return loaded["groups"]


def rules() -> dict[str, dict[str, Any]]:
    """All of them, by name."""
    every = [rule for group in groups() for rule in group["rules"]]
    return {rule.get("alert") or rule["record"]: rule for rule in every}


def alerts() -> dict[str, dict[str, Any]]:
    """Those that can fire, by name."""
    return {name: rule for name, rule in rules().items() if "alert" in rule}


def hastened(times: int) -> str:
    """The rules with every duration divided: what waits for an hour waits for a minute. Thresholds
    stay what they are."""

    def shorter(found: re.Match[str]) -> str:
        seconds = int(found[2]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[3]]
        return f"{found[1]}{max(1, round(seconds / times))}s"

    quick = groups()
    for rule in (rule for group in quick for rule in group["rules"]):
        rule["expr"] = re.sub(r"(\[|offset )(\d+)([smhd])", shorter, rule["expr"])
        if "for" in rule:
            rule["for"] = re.sub(r"()(\d+)([smhd])", shorter, rule["for"])
    return json.dumps({"groups": quick})


def failures(cases: Sequence[Case | Calm], folder: Path) -> str:
    """What promtool says of these cases; nothing if all is as it should be.

    Stories of many hours are evaluated every ten minutes, or they would take minutes.
    """
    tests = [_test(case) for case in cases]
    long = [one for one in tests if _last_minute(one) >= LONG]
    short = [one for one in tests if one not in long]
    return _asked(short, "1m", folder) + _asked(long, "10m", folder)


def _asked(tests: Sequence[dict[str, Any]], every: str, folder: Path) -> str:
    file = folder / f"alerts_every_{every}.yml"
    content = {"rule_files": [str(FILE)], "evaluation_interval": every, "tests": tests}
    file.write_text(json.dumps(content))
    command = [promtool(), "test", "rules", str(file)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _last_minute(test: Mapping[str, Any]) -> int:
    return max(int(one["eval_time"].removesuffix("m")) for one in test["alert_rule_test"])


def _test(case: Case | Calm) -> dict[str, Any]:
    quiet = case.at if isinstance(case, Calm) else (case.quiet,)
    expected: list[dict[str, Any]] = [
        {"eval_time": time, "alertname": case.alert, "exp_alerts": []} for time in quiet
    ]
    name = f"{case.alert}: {case.why if isinstance(case, Calm) else case.at}"
    if isinstance(case, Case):
        rule = alerts()[case.alert]
        expected.append(
            {
                "eval_time": case.at,
                "alertname": case.alert,
                "exp_alerts": [
                    {
                        "exp_labels": {**case.labels, **rule["labels"]},
                        "exp_annotations": {
                            **_filled_in(rule["annotations"], case.labels),
                            "summary": case.summary,
                        },
                    }
                ],
            }
        )
    return {
        "name": name,
        "interval": "1m",
        "input_series": [
            {"series": series, "values": values} for series, values in case.series.items()
        ],
        "alert_rule_test": expected,
    }


def _filled_in(annotations: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    def value(found: re.Match[str]) -> str:
        return labels[found[1]]

    return {
        name: re.sub(r"\{\{ \$labels\.(\w+) \}\}", value, text)
        for name, text in annotations.items()
        if name != "summary"
    }
