"""`jobctl top`: the fleet on one screen, refreshed until somebody has seen enough.

The screen and the keyboard are the main thread's, the database is another's: a key is heard at once
whatever PostgreSQL does, and what it does not answer any more is said above the last that it did.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from time import monotonic
from typing import Any

import click
import psycopg

from jobctl.cli import database, overview
from jobctl.cli.endings import ExitCode, Failure, explain
from jobctl.cli.frame import Snapshot, frame
from jobctl.cli.moments import DURATION
from jobctl.cli.options import database_options
from jobctl.cli.screen import Screen, is_usable
from jobctl.store import reading
from jobctl.store.reading import Connection, Row
from jobctl.supervisor.settings_sources import Loaded

LEAST_EVERY, MOST_EVERY = 0.5, 60.0
#: More of the longest jobs than these fit on no screen.
MOST_LONGEST = 100
#: The screen is looked after at least this often.
LONGEST_NAP = 0.25


@click.command()
@click.option(
    "--every", type=DURATION, default="2s", show_default=True, help="How often to look anew."
)
@database_options
def top(loaded: Loaded, every: float) -> int:
    """Watch queues, hosts and the longest jobs on a screen of the terminal."""
    if not is_usable():
        raise Failure(
            ExitCode.USAGE,
            "jobctl top needs a terminal. Elsewhere there are jobctl status --watch and "
            "jobctl status --json",
        )
    database.connect(loaded).close()  # what is wrong at the beginning is said as everywhere else
    source = _Source(loaded, min(max(every, LEAST_EVERY), MOST_EVERY))
    source.start()
    with Screen() as screen:
        while True:
            width, height = screen.size()
            screen.draw(frame(source.shot, width, height, every=source.every, error=source.error))
            match screen.key(LONGEST_NAP):
                case "q" | "Q" | "\x1b" | "\x04":
                    return ExitCode.DONE
                case " ":
                    source.hurry()
                case "+" | "=":
                    source.every = min(source.every * 2, MOST_EVERY)
                case "-" | "_":
                    source.every = max(source.every / 2, LEAST_EVERY)
                    source.hurry()


class _Source(threading.Thread):
    """Reads, again and again. A daemon: nobody waits for an answer that does not come."""

    def __init__(self, loaded: Loaded, every: float) -> None:
        super().__init__(name="jobctl-top", daemon=True)
        self.every = every
        self.shot: Snapshot | None = None
        self.error: str | None = None
        self._loaded = loaded
        self._hurry = threading.Event()
        self._counted: Row | None = None

    def hurry(self) -> None:
        """Looks now."""
        self._hurry.set()

    def run(self) -> None:
        connection: Connection | None = None
        while True:
            begun = monotonic()
            self._hurry.clear()
            try:
                if connection is None or connection.closed:
                    connection = database.connect(self._loaded)
                self.shot, self.error = self._look(connection), None
            except Exception as error:
                failure = explain(error)
                sentences = failure.sentences if failure else (f"{type(error).__name__}: {error}",)
                self.error = " ".join(sentences)
                if connection is not None:
                    with suppress(psycopg.Error):
                        connection.close()
                connection = None
            self._hurry.wait(max(0.1, self.every - (monotonic() - begun)))

    def _look(self, connection: Connection) -> Snapshot:
        counted = reading.flow(connection)
        before, self._counted = self._counted, counted
        return Snapshot(
            now=reading.clock(connection),
            facts=overview.facts(connection),
            hosts=reading.hosts(connection),
            longest=reading.longest(connection, MOST_LONGEST),
            flow=None if before is None else _speed(before, counted),
        )


def _speed(before: Row, now: Row) -> dict[str, float]:
    """Events a second between the two."""
    seconds = max(0.001, (now["at"] - before["at"]).total_seconds())
    names: dict[str, Any] = {
        "enqueued": "enqueued", "finished": "finished",
        "attempts gone wrong": "unsuccessful", "died": "died",
    }  # fmt: skip
    # Counters begin anew after a crash, or with a new partition.
    return {said: max(0, now[name] - before[name]) / seconds for said, name in names.items()}
