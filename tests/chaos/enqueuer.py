"""A process that enqueues: one transaction after the other, some late, some rolled back.

`python -m tests.chaos.enqueuer NAME`, until SIGTERM, with this in the environment: CHAOS_DSN,
CHAOS_FOLDER, CHAOS_SEED, CHAOS_PACE (seconds between transactions), CHAOS_KINDS (JSON: types of
jobs and how often), CHAOS_LONGEST (seconds that a slow job takes at most). What it writes down,
with the tags: `insert` before, then `commit`, `rollback`, or `unknown` (an answer was lost).
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg

from tests.chaos.history import History

LATE, ROLLED_BACK = 0.2, 0.15
LONGEST_HOLD = 0.6  # seconds between the insert and the end of a late transaction


class Enqueuer:
    """One connection, opened again whenever it is lost."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._history = History(Path(os.environ["CHAOS_FOLDER"]), name)
        self._chance = random.Random(f"{os.environ['CHAOS_SEED']} {name}")
        self._pace = float(os.environ["CHAOS_PACE"])
        self._kinds: dict[str, int] = json.loads(os.environ["CHAOS_KINDS"])
        self._longest = float(os.environ["CHAOS_LONGEST"])
        self._made = 0
        self._leaving = False
        signal.signal(signal.SIGTERM, self._leave)

    def run(self) -> None:
        while not self._leaving:
            try:
                with psycopg.connect(os.environ["CHAOS_DSN"], connect_timeout=5) as connection:
                    connection.execute("SET statement_timeout = '5s'")
                    connection.commit()
                    while not self._leaving:
                        self._transaction(connection)
                        time.sleep(self._chance.uniform(0, 2 * self._pace))
            except psycopg.Error:
                time.sleep(self._chance.uniform(0.1, 0.5))

    def _transaction(self, connection: psycopg.Connection) -> None:
        jobs = [self._job() for _ in range(self._chance.randint(1, 4))]
        tags = [job["args"]["tag"] for job in jobs]
        self._history.say("insert", tags=tags)
        connection.execute(
            "SELECT count(*) FROM jobctl.enqueue_many(%s::jsonb)", (json.dumps(jobs),)
        )
        if self._chance.random() < LATE:
            time.sleep(self._chance.uniform(0, LONGEST_HOLD))
        if self._chance.random() < ROLLED_BACK:
            connection.rollback()
            self._history.say("rollback", tags=tags)
            return
        self._history.say("committing", tags=tags)
        try:
            connection.commit()
        except psycopg.Error:
            self._history.say("unknown", tags=tags)
            raise
        self._history.say("commit", tags=tags)

    def _job(self) -> dict[str, Any]:
        self._made += 1
        (kind,) = self._chance.choices(list(self._kinds), list(self._kinds.values()))
        args: dict[str, Any] = {"tag": f"{self._name}:{self._made}"}
        if kind == "slow":
            args["seconds"] = round(self._chance.uniform(0.1, self._longest), 2)
        return {"type": kind, "args": args}

    def _leave(self, signum: int, frame: FrameType | None) -> None:
        self._leaving = True


if __name__ == "__main__":
    Enqueuer(sys.argv[1]).run()
