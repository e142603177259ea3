"""Prometheus's own programs, where they are: `promtool`, and a server for a test.

They are not on the package index. Debian has them: `apt-get install prometheus`; others unpack the
archive of prometheus.io and put it into PATH. Where they are missing, what needs them is skipped.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until


def promtool() -> str:
    """Its path; skips the test where there is none."""
    return found("promtool")


def found(program: str) -> str:
    """Its path; skips the test where there is none."""
    path = shutil.which(program)
    if path is None:
        package = "prometheus-alertmanager" if "alertmanager" in program else "prometheus"
        pytest.skip(f"no {program} here: apt-get install {package}")
    return path


class Prometheus:
    """A server of the test's own, on a port that it was given by the kernel; stop it. `alerts` is
    the address of its Alertmanager; `prefix` is put before the command."""

    def __init__(
        self, folder: Path, rules: Path, every: str = "1s", *,
        alerts: str | None = None, prefix: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._targets = folder / "targets.json"
        self._targets.write_text("[]")
        self._log = folder / "prometheus.log"
        config = folder / "prometheus.yml"
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": every, "evaluation_interval": every},
                    "rule_files": [str(rules)],
                    "alerting": {
                        "alertmanagers": [{"static_configs": [{"targets": [alerts]}]}]
                        if alerts
                        else []
                    },
                    "scrape_configs": [
                        {
                            "job_name": "jobctl",
                            "file_sd_configs": [
                                {"files": [str(self._targets)], "refresh_interval": "1s"}
                            ],
                        }
                    ],
                }
            )
        )
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *prefix, found("prometheus"), f"--config.file={config}",
                    f"--storage.tsdb.path={folder / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{port}", "--web.cors.origin=.*",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def ready(self) -> Prometheus:
        """Returns once it answers."""
        until(self._answers, within=60, what=f"Prometheus ({self._log.read_text()[-500:]})")
        return self

    def watch(self, targets: Mapping[str, str]) -> None:
        """What to scrape: name to address. Soon after."""
        content = [
            {"targets": [address], "labels": {"instance": name}}
            for name, address in targets.items()
        ]
        written = self._targets.with_suffix(".new")
        written.write_text(json.dumps(content))
        written.rename(self._targets)

    def ask(self, query: str) -> list[dict[str, Any]]:
        """An instant query. Raises AssertionError with its words if it does not understand."""
        return self._result("query", {"query": query})

    def ask_range(self, query: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """A query over a time, in seconds of the epoch."""
        words = {"query": query, "start": str(start), "end": str(end), "step": str(step)}
        return self._result("query_range", words)

    def stop(self) -> None:
        """And wait for its end."""
        end(self._process)

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:  # noqa: S310 - ours
                return bool(answer.status == 200)
        except OSError:
            return False

    def _result(self, what: str, words: Mapping[str, str]) -> list[dict[str, Any]]:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(words)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - ours
                answered = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{words['query']}: {error.read().decode()}") from error
        result: list[dict[str, Any]] = answered["data"]["result"]
        return result


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks it to go, and kills it if it does not."""
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """Of the loopback; somebody else could take it in between, which the test would then say."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
