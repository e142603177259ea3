"""What `jobctl top` draws, for every size of a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from jobctl.cli import frame as drawing
from jobctl.cli import overview, table
from jobctl.cli.frame import Snapshot, frame, shares
from jobctl.store import reading
from jobctl.store.reading import Connection
from tests.store.standing import put, put_session

CODES = re.compile(r"\x1b\[\d+m")


def shot(connection: Connection, **more: Any) -> Snapshot:
    return Snapshot(
        now=reading.clock(connection),
        facts=overview.facts(connection),
        hosts=reading.hosts(connection),
        longest=reading.longest(connection, 100),
        **more,
    )


@pytest.fixture
def look(database: str) -> Callable[..., Snapshot]:
    """A fleet with a lot to say, some of it by strangers, as it stands."""
    with reading.connect(database, "jobctl") as connection:
        for number in range(30):
            put_session(connection, number + 1, f"host-with-a-long-name-{number}", leader=True)
        put_session(connection, 99, "gone", expires_at=datetime.now(UTC))
        for number in range(30):
            put(connection, queue=f"queue-{number}", run_at=datetime.now(UTC) - timedelta(hours=1))
            put(connection, "running", type=f"type\x1b[2J漢字-{number}", queue="mail")
        put(connection, "dead", queue="日本語" * 20)
        made = shot(connection, flow={"enqueued": 50.123, "finished": 12345.6})
    return lambda: made


SIZES = [(80, 24), (132, 50), (40, 10), (20, 5), (7, 3), (1, 1), (300, 200)]


@pytest.mark.parametrize("colours", [False, True])
def test_no_line_is_wider_and_there_are_not_more_of_them(
    look: Callable[..., Snapshot], monkeypatch: pytest.MonkeyPatch, colours: bool
) -> None:
    """Else the terminal scrolls, and what it shows is wrong."""
    monkeypatch.setattr(table, "_wants_colour", lambda: colours)
    errors = (None, "PostgreSQL cannot be reached: \x1b[31m" + "x" * 500)
    for (width, height), error, each in product(SIZES, errors, (look(), None)):
        lines = frame(each, width, height, every=2, error=error)
        assert len(lines) == height
        for line in lines:
            text = CODES.sub("", line)
            assert table.width(text) <= width, (width, text)
            assert "\x1b" not in text  # a stranger's


def test_at_80_by_24_everything_has_its_place(look: Callable[..., Snapshot]) -> None:
    """Who works, how fast, what is wrong, queues, hosts, jobs, keys."""
    lines = frame(look(), 80, 24, every=2)
    assert "30 supervisors" in lines[0]
    assert lines[1] == "enqueued 50.1/s   finished 12346/s"
    assert lines[2].startswith("!! ")
    text = "\n".join(lines)
    for title in ("QUEUE", "HOST", "JOB"):
        assert f"\n{title} " in text, text
    assert "and 26 more" in text or " more\n" in text
    assert lines[-1].startswith("q quit")


def test_what_was_read_last_stays_when_the_database_goes(look: Callable[..., Snapshot]) -> None:
    """Under a line that says that it is old."""
    lines = frame(look(), 80, 24, every=2, error="The connection to PostgreSQL was lost")
    assert lines[1] == "!! The connection to PostgreSQL was lost"
    assert "QUEUE" in "\n".join(lines)
    assert drawing.frame(None, 80, 24, every=2)[1] == "Asking PostgreSQL ..."


def test_shares() -> None:
    """The small have all that they want; the large share what is left; nothing is negative."""
    assert shares([2, 50, 50], 22) == [2, 10, 10]
    assert shares([1, 1, 1], 30) == [1, 1, 1]
    assert shares([5, 0, 5], -3) == [0, 0, 0]
