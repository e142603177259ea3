"""A real Alertmanager, and the desk to which it brings what fires and what is over.

Debian has it: `apt-get install prometheus-alertmanager`.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.grafana.prometheus import end, found, free_port

PROGRAM = "prometheus-alertmanager"


class Desk:
    """Where notifications arrive; in the network of the thread that makes it. Close it."""

    def __init__(self) -> None:
        self._told: list[tuple[str, Mapping[str, str]]] = []
        desk = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                desk._told += [(one["status"], one["labels"]) for one in body["alerts"]]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass  # pytest's output is not its log

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def names(self, status: str) -> set[str]:
        """Of alerts that were told of as `firing`, or as `resolved`."""
        return {labels["alertname"] for said, labels in self._told if said == status}

    def of(self, name: str) -> list[tuple[str, Mapping[str, str]]]:
        """What was told of one alert: status and labels, in order."""
        return [(said, labels) for said, labels in self._told if labels["alertname"] == name]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Alertmanager:
    """One of the test's own, that tells `desk` of each alert by itself; stop it."""

    def __init__(self, folder: Path, desk: str, prefix: Sequence[str] = ()) -> None:
        config = folder / "alertmanager.yml"
        route = {
            "receiver": "desk", "group_by": ["..."], "group_wait": "1s", "group_interval": "1s",
            "repeat_interval": "1h",
        }  # fmt: skip
        hook = {"url": desk, "send_resolved": True}
        receivers = [{"name": "desk", "webhook_configs": [hook]}]
        config.write_text(json.dumps({"route": route, "receivers": receivers}))
        self.address = f"127.0.0.1:{free_port()}"
        with (folder / "alertmanager.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *prefix, found(PROGRAM), f"--config.file={config}",
                    f"--storage.path={folder / 'alertmanager'}", "--cluster.listen-address=",
                    f"--web.listen-address={self.address}",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def stop(self) -> None:
        end(self._process)
