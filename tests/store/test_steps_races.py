"""Joins under real concurrency: several hosts, enqueuers with open transactions, cancels, a sweep.

Each actor is a thread with connections of its own, and nobody waits for anybody. What must have
come out is asked afterwards: every job that can succeed has succeeded exactly once, none was
claimed before all that it comes after had succeeded, and nothing was deadlocked or misplaced.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import psycopg
import pytest

from jobctl.supervisor.outcomes import UNREGISTERED, Cause, Crashed, Failed, HandedBack, decide
from tests.claiming import Connection, claim, connect, register, run, states, succeed, violations

HOSTS = 3
SECONDS = 6.0
CAUSES: tuple[Cause, ...] = (HandedBack(), Crashed("x"), Failed("E", "e", permanent=True))
#: A long one for a machine that has other things to do.
PATIENCE = 90.0

_TOO_EARLY = """
    SELECT e.child, e.parent
    FROM job_edge AS e
    WHERE e.child = ANY(%s)
        AND NOT EXISTS (SELECT FROM history AS h WHERE h.id = e.parent AND h.state = 'succeeded')
"""


@dataclass
class Race:
    """What the actors share."""

    dsn: str
    seed: int
    over: threading.Event = field(default_factory=threading.Event)
    faults: list[str] = field(default_factory=list)
    claims: list[int] = field(default_factory=list)

    def play(self, *actors: Callable[[Connection, random.Random], None]) -> None:
        threads = [
            threading.Thread(target=self._act, args=(actor, number))
            for number, actor in enumerate(actors)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    def _act(self, actor: Callable[[Connection, random.Random], None], number: int) -> None:
        try:
            with connect(self.dsn) as connection:
                actor(connection, random.Random(self.seed * 100 + number))
        except Exception as error:
            self.faults.append(f"{actor}: {type(error).__name__}: {error}")
            self.over.set()

    # Actors -------------------------------------------------------------------------------------

    def host(self, session: int, connection: Connection, dice: random.Random) -> None:
        """Claims, and ends what it has claimed in one way or another, in batches."""
        while not self.over.is_set():
            held = claim(connection, session, dice.randint(1, 12))
            early = connection.execute(_TOO_EARLY, ([one.job_id for one in held],)).fetchall()
            self.faults += [
                f"{child} was claimed before {parent} succeeded" for child, parent in early
            ]
            good = [one for one in held if dice.random() < 0.8]
            bad = [one for one in held if one not in good]
            if bad:
                causes = [dice.choice(CAUSES) for _ in bad]
                endings = [
                    decide(one.job_id, session, one.token, one, UNREGISTERED, cause, 1.0).to_dict()
                    for one, cause in zip(bad, causes, strict=True)
                ]
                jobs = [one.job_id for one in bad]
                run(connection, "settle_ended", jobs=jobs, endings=json.dumps(endings))
            if good:
                done = succeed(connection, good)
                self.claims += list(done)
                assert done == {one.job_id for one in good}
            if not held:
                self.over.wait(0.01)

    def producer(self, connection: Connection, dice: random.Random) -> None:
        """Graphs of its own, and children of what it sees, in transactions that last."""
        while not self.over.is_set():
            try:
                with connection.transaction(force_rollback=dice.random() < 0.1):
                    seen = [row[0] for row in connection.execute("SELECT id FROM jobs LIMIT 50")]
                    jobs = []
                    for at in range(dice.randint(1, 6)):
                        before = [{"item": n + 1} for n in range(at) if dice.random() < 0.5]
                        others = dice.sample(seen, min(len(seen), dice.randint(0, 2)))
                        on_dead = dice.choice(["hold", "cancel"])
                        jobs.append({"type": "t", "after": [*before, *others], "on_dead": on_dead})
                    connection.execute("SELECT enqueue_many(%s::jsonb)", (json.dumps(jobs),))
                    self.over.wait(dice.random() * 0.1)
            except psycopg.errors.InvalidParameterValue as error:
                assert "will never succeed" in str(error)

    def operator(self, connection: Connection, dice: random.Random) -> None:
        """Replays what is dead, cancels what waits; both at random."""
        connection.execute("SELECT set_config('lock_timeout', '5s', false)")
        while not self.over.wait(0.05):
            dead = [row[0] for row in connection.execute("SELECT job_id FROM dead")]
            for job in dead:
                if dice.random() < 0.5:
                    connection.execute("SELECT replay(%s)", (job,))
            blocked = [row[0] for row in connection.execute("SELECT job_id FROM blocked")]
            if blocked and dice.random() < 0.2:
                connection.execute("SELECT cancel(%s)", (dice.choice(blocked),))

    def leader(self, connection: Connection, dice: random.Random) -> None:
        """Sweeps, now and then."""
        while not self.over.wait(0.3):
            run(connection, "sweep_children", since=0, most=1000)


@pytest.mark.parametrize("seed", range(2))
def test_every_child_runs_once_after_all_its_parents(database: str, seed: int) -> None:
    """Whoever finishes, cancels, replays, enqueues or sweeps at the same moment."""
    race = Race(database, seed)
    with connect(database, {}) as see:
        for session in range(1, HOSTS + 1):
            register(see, session, lease=3600.0)
        stop = threading.Timer(SECONDS, race.over.set)
        stop.start()
        hosts = [
            lambda connection, dice, session=session: race.host(session, connection, dice)
            for session in range(1, HOSTS + 1)
        ]
        before = _deadlocks(see)
        race.play(*hosts, race.producer, race.producer, race.operator, race.leader, race.leader)
        stop.join()
        assert race.faults == []
        assert violations(see) == []
        assert _deadlocks(see) == before
        _finish(see)
        assert violations(see) == []
        found = states(see)
        # What is left waits for something that was cancelled, and says so.
        left = {job for job, state in found.items() if state not in ("succeeded", "cancelled")}
        stuck = {row[0] for row in see.execute("SELECT id FROM jobs WHERE stuck")}
        waits = {
            row[0]
            for row in see.execute(
                "WITH RECURSIVE held AS (SELECT id FROM jobs WHERE stuck UNION"
                " SELECT e.child FROM held AS h JOIN job_edge AS e ON e.parent = h.id)"
                " SELECT id FROM held"
            )
        }
        assert stuck <= left <= waits
        twice = see.execute("SELECT id FROM history GROUP BY id HAVING count(*) > 1").fetchall()
        assert twice == []
        assert len(race.claims) == len(set(race.claims)) > 20
        early = see.execute(
            "SELECT c.id FROM history AS c JOIN job_edge AS e ON e.child = c.id"
            " JOIN history AS p ON p.id = e.parent"
            " WHERE c.state = 'succeeded' AND (p.state <> 'succeeded'"
            " OR c.started_at < p.finished_at - interval '1 ms')"
        ).fetchall()
        assert early == []


def _deadlocks(connection: Connection) -> int:
    row = connection.execute(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0])


def _finish(connection: Connection) -> None:
    """All faults have stopped: whatever can run runs."""
    give_up = monotonic() + PATIENCE
    while True:
        run(connection, "sweep_children", since=0, most=100_000)
        for (job,) in connection.execute("SELECT job_id FROM dead").fetchall():
            connection.execute("SELECT replay(%s)", (job,))
        connection.execute("UPDATE scheduled SET run_at = now() - interval '1 s'")
        run(connection, "promote", most=10_000, within=None)
        held = claim(connection, 1)
        if not held:
            break
        succeed(connection, held)
        assert monotonic() < give_up
