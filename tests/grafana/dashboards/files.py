"""Which dashboard is which file in grafana/."""

from __future__ import annotations

import json
from pathlib import Path

from tests.grafana.dashboards.database import DATABASE
from tests.grafana.dashboards.hosts import HOSTS
from tests.grafana.dashboards.overview import OVERVIEW
from tests.grafana.dashboards.queues import QUEUES

FOLDER = Path(__file__).parents[3] / "grafana"
DASHBOARDS = (OVERVIEW, QUEUES, HOSTS, DATABASE)


def contents() -> dict[str, str]:
    """Name of the file, and what is in it."""
    return {f"{one.uid}.json": json.dumps(one.to_json(), indent=2) + "\n" for one in DASHBOARDS}
