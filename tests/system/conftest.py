"""Hosts and jobs for stories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.host import Hosts, Jobs, jobs_of


@pytest.fixture
def hosts(database: str, tmp_path: Path) -> Iterator[Hosts]:
    """Starts supervisors against the test's database."""
    started = Hosts(database, tmp_path)
    try:
        yield started
    finally:
        started.end()


@pytest.fixture
def jobs(database: str) -> Iterator[Jobs]:
    """The test's own connection."""
    with jobs_of(database) as mine:
        yield mine
