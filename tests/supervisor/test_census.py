"""The census: every committed job is counted once, whoever leads and whoever is slow to commit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import psycopg

from jobctl.store.dsn import conninfo
from jobctl.store.link import Link
from jobctl.store.statements import sql
from jobctl.supervisor.census import CENSUS_SECONDS, LARGEST_STEP, Census


class Told:
    """What was counted."""

    def __init__(self) -> None:
        self.found: Counter[tuple[str, str]] = Counter()

    def on_enqueued(self, rows: Iterable[tuple[str, str, int, bool]]) -> None:
        for queue, type_, jobs, registered in rows:
            assert not registered, type_
            self.found[queue, type_] += jobs


def count(dsn: str, *told: Told, steps: int = 3) -> list[float]:
    """So many steps of a leader for each of these; what they return."""

    async def play() -> list[float]:
        waits = []
        link = Link("lead", conninfo(dsn, schema="jobctl", application_name="census"), {})
        await link.connect()
        try:
            for _ in range(steps):
                for each in told:
                    waits.append(await Census(each).step(link))
        finally:
            await link.close()
        return waits

    return asyncio.run(play())


def test_a_job_is_counted_once_whatever_became_of_it(database: str) -> None:
    """Queued, scheduled, finished; an enqueue that found its key is no job."""
    told, other = Told(), Told()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET search_path = jobctl")
        connection.execute("SELECT enqueue('a', queue => 'mail') FROM generate_series(1, 5)")
        connection.execute("SELECT enqueue('b', delay => '1 day', key => 'k')")
        connection.execute("SELECT enqueue('b', key => 'k')")
        connection.execute(
            "WITH gone AS (DELETE FROM ready WHERE job_id IN (SELECT min(id) FROM job)"
            " RETURNING job_id), it AS (DELETE FROM job USING gone WHERE id = job_id RETURNING *)"
            " INSERT INTO history (id, type, queue, priority, args, schema_version, state, attempt,"
            " crashes, run_at, created_at, finished_at)"
            " SELECT id, type, queue, priority, args, schema_version, 'succeeded', 1, 0, run_at,"
            " created_at, now() FROM it"
        )
        count(database, told)
        assert told.found == {("mail", "a"): 5, ("default", "b"): 1}
        count(database, told, other)
        assert told.found.total() == 6 and not other.found
        connection.execute("SELECT enqueue('a')")
        count(database, told, other)
        assert (told.found + other.found)["default", "a"] == 1


def test_what_is_committed_late_is_counted_late_and_not_left_out(database: str) -> None:
    """A lower number may come after a higher one."""
    told = Told()
    with (
        psycopg.connect(database) as slow,
        psycopg.connect(database, autocommit=True) as quick,
    ):
        slow.execute("SELECT jobctl.enqueue('slow')")
        quick.execute("SELECT jobctl.enqueue('quick') FROM generate_series(1, 3)")
        count(database, told)
        assert not told.found, "the slow one could still commit a number below theirs"
        slow.commit()
        count(database, told)
        assert told.found == {("default", "slow"): 1, ("default", "quick"): 3}


def test_a_rollback_is_no_job(database: str) -> None:
    told = Told()
    with psycopg.connect(database) as connection:
        connection.execute("SELECT jobctl.enqueue('never')")
        connection.rollback()
    count(database, told)
    assert not told.found


def test_two_leaders_for_a_moment_count_once(database: str) -> None:
    """The second finds that the mark has moved since it read it."""
    told, late = Told(), Told()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT jobctl.enqueue('a') FROM generate_series(1, 4)")
        count(database, told, steps=1)  # everything is settled from here on

        class Overtaken(Link):
            async def run(
                self, statement: str, /, **parameters: object
            ) -> list[tuple[object, ...]]:
                if statement == "move_enqueue_mark":
                    await other.run(statement, **parameters)
                return await super().run(statement, **parameters)

        where = conninfo(database, schema="jobctl", application_name="census")
        link, other = Overtaken("lead", where, {}), Link("lead", where, {})

        async def play() -> None:
            await link.connect()
            await other.connect()
            try:
                await Census(late).step(link)
            finally:
                await link.close()
                await other.close()

        asyncio.run(play())
    assert not late.found


def test_a_great_many_are_counted_in_bounded_steps(database: str) -> None:
    """And the next step comes soon, with most of the time left to others."""
    told = Told()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET search_path = jobctl")
        connection.execute(
            "SELECT setval(pg_get_serial_sequence('job', 'id'), %s)", (3 * LARGEST_STEP,)
        )
        connection.execute("SELECT enqueue('a')")
        waits = count(database, told, steps=1)
        assert waits == [CENSUS_SECONDS]
        first, second, *_ = count(database, told, steps=5)
        assert first < CENSUS_SECONDS and second < CENSUS_SECONDS
    assert told.found.total() == 1


def test_counting_reads_only_what_is_new(database: str) -> None:
    """By index, in job and in history, also when the planner knows nothing of the newest."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET search_path = jobctl")
        for table, columns, values in (
            ("job", "created_at", "now()"),
            ("history", "state, attempt, crashes, created_at, finished_at",
             "'succeeded', 1, 0, now(), now()"),
        ):  # fmt: skip
            connection.execute(
                f"INSERT INTO {table} (id, type, queue, priority, args, schema_version, run_at,"  # noqa: S608 - ours
                f" {columns}) SELECT g, 't', 'q', 0, '{{}}', 1, now(), {values}"
                " FROM generate_series(1, 20000) AS g"
            )
            connection.execute(f"ANALYZE {table}")
        explain = b"EXPLAIN (ANALYZE, BUFFERS, TIMING off) " + sql("count_enqueued").encode()
        rows = connection.execute(explain, {"after": 19_900, "up_to": 20_000}).fetchall()
    text = "\n".join(row[0] for row in rows)
    assert "Seq Scan on job " not in text and "Rows Removed by Filter" not in text, text
