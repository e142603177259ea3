"""Writes the dashboards into grafana/: `python -m tests.grafana.dashboards`."""

from __future__ import annotations

from tests.grafana.dashboards.files import FOLDER, contents

for name, text in contents().items():
    (FOLDER / name).write_text(text)
