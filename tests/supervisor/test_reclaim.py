"""Reclaiming what a host that is gone has held: once, under its own token, by the table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from jobctl.store.link import DISPATCH_SETTINGS, Link
from jobctl.supervisor.outcomes import Ending
from jobctl.supervisor.reclaim import reclaim
from jobctl.supervisor.settle import Other, Settlement, Settler, Success
from tests.claiming import (
    Connection,
    claim,
    connect,
    enqueue,
    register,
    run,
    states,
    violations,
    where,
)
from tests.supervisor.settling import Ear

GONE, ALIVE = 11, 22


class Reaper:
    """One who reclaims, with a settler of its own."""

    def __init__(self, dsn: str) -> None:
        self.ear = Ear()
        self.link = Link("lead", where(dsn), {})
        self.settler = Settler(Link("settle", where(dsn), DISPATCH_SETTINGS), self.ear)

    async def step(self) -> int:
        """One step, and everything written."""
        found = await self.find(self.settler.settle)
        async with asyncio.timeout(20):
            await self.settler.written()
        return found

    async def find(self, settle: Callable[[Settlement], None]) -> int:
        await self.link.ready()
        return await reclaim(self.link, settle, self._pending)

    def _pending(self, session: int, token: int) -> bool:
        return (session, token) in self.settler.tokens()


def play(dsn: str, story: Callable[[Connection, Reaper, Reaper], Awaitable[None]]) -> None:
    """With a connection to look, and two reapers."""

    async def scene() -> None:
        reapers = Reaper(dsn), Reaper(dsn)
        tasks = [asyncio.create_task(one.settler.run()) for one in reapers]
        with connect(dsn) as see:
            register(see, GONE, host="old-host")
            register(see, ALIVE, host="new-host")
            try:
                await story(see, *reapers)
                assert violations(see) == []
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                for one in reapers:
                    await one.link.close()
                    one.settler._link.drop()

    asyncio.run(scene())


def bury(see: Connection, session: int = GONE, because: str = "lease expired") -> None:
    assert run(see, "bury_sessions", sessions=[session], because=because)


def test_a_dead_sessions_jobs_are_queued_again_at_once(database: str) -> None:
    """In the front lane, with an attempt and a crash spent, and a record that says why. Nobody
    else's claims are touched."""

    async def story(see: Connection, reaper: Reaper, _: Reaper) -> None:
        lost = enqueue(see, 3)
        claim(see, GONE)
        kept = enqueue(see, 2)
        claim(see, ALIVE)
        assert await reaper.step() == 0
        bury(see)
        assert await reaper.step() == 3
        assert states(see) == {**dict.fromkeys(lost, "queued"), **dict.fromkeys(kept, "running")}
        rows = see.execute("SELECT DISTINCT lane FROM ready").fetchall()
        assert rows == [("front",)]
        spent = see.execute("SELECT DISTINCT attempt, crashes FROM job WHERE id = ANY(%s)", (lost,))
        assert spent.fetchall() == [(1, 1)]
        notes = see.execute("SELECT DISTINCT outcome, attempt, host, exit_reason FROM attempts")
        assert notes.fetchall() == [("lost", 1, "old-host", "lease expired")]
        assert await reaper.step() == 0

    play(database, story)


def test_a_session_that_is_not_there_holds_nothing(database: str) -> None:
    """Its row was never committed, or was removed: its claims are nobody's."""

    async def story(see: Connection, reaper: Reaper, _: Reaper) -> None:
        (job,) = enqueue(see)
        claim(see, 999)
        assert await reaper.step() == 1
        assert states(see) == {job: "queued"}
        assert see.execute("SELECT exit_reason FROM attempts").fetchall() == [
            ("the session of its supervisor is gone",)
        ]

    play(database, story)


def test_a_claim_past_its_backstop_is_lost_although_its_session_lives(database: str) -> None:
    async def story(see: Connection, reaper: Reaper, _: Reaper) -> None:
        late, fine = enqueue(see, 2)
        claim(see, ALIVE)
        see.execute(
            "UPDATE claim SET deadline_at = now() - interval '1 s' WHERE job_id = %s", (late,)
        )
        assert await reaper.step() == 1
        assert states(see) == {late: "queued", fine: "running"}

    play(database, story)


def test_a_job_that_takes_its_hosts_along_is_dead_after_three(database: str) -> None:
    """max_crashes holds on the reaper's path too; the type need not be registered."""

    async def story(see: Connection, reaper: Reaper, _: Reaper) -> None:
        (job,) = enqueue(see)
        for number in range(3):
            assert states(see) == {job: "queued"}
            session = register(see, 100 + number)
            (one,) = claim(see, session)
            assert (one.attempt, one.crashes) == (number, number)
            bury(see, session)
            await reaper.step()
        row = see.execute("SELECT state, attempt, crashes, failure_class FROM jobs").fetchone()
        assert row == ("dead", 3, 3, "lost")

    play(database, story)


REGISTERED = """
    INSERT INTO job_type (name, queue, priority, timeout_seconds, max_attempts, max_crashes,
                          min_backoff_seconds, max_backoff_seconds, max_doublings, ack,
                          schema_version)
    VALUES ('t', 'default', 0, 60, %s, %s, 10, 3600, 16, %s, 1)
"""


@pytest.mark.parametrize(
    ("attempts", "crashes", "ack", "state"),
    [
        (5, 3, "late", "queued"),
        (5, 1, "late", "dead"),
        (1, 3, "late", "dead"),
        (5, 3, "early", "queued"),  # it had not been marked, and so not begun
        (5, 3, "some day", "queued"),  # a newer version's word: the defaults decide
    ],
)
def test_the_types_own_policy_decides(
    database: str, attempts: int, crashes: int, ack: str, state: str
) -> None:
    async def story(see: Connection, reaper: Reaper, _: Reaper) -> None:
        see.execute(REGISTERED, (attempts, crashes, ack))
        (job,) = enqueue(see)
        claim(see, GONE)
        bury(see)
        await reaper.step()
        assert states(see) == {job: state}

    play(database, story)


@pytest.mark.parametrize("ack", ["early", "late"])
def test_what_is_marked_as_begun_never_runs_again(database: str, ack: str) -> None:
    """Acknowledged early, and its host is gone: dead, whatever its type says by now."""

    async def story(see: Connection, reaper: Reaper, _: Reaper) -> None:
        see.execute(REGISTERED, (5, 3, ack))
        (job,) = enqueue(see)
        (one,) = claim(see, GONE)
        assert run(see, "mark_early", session=GONE, jobs=[job], tokens=[one.token])
        bury(see)
        await reaper.step()
        assert states(see) == {job: "dead"}
        assert see.execute("SELECT failure_class FROM jobs").fetchall() == [("lost",)]

    play(database, story)


def test_what_somebody_asked_to_cancel_is_cancelled(database: str) -> None:
    async def story(see: Connection, reaper: Reaper, _: Reaper) -> None:
        (job,) = enqueue(see)
        claim(see, GONE)
        see.execute("UPDATE job SET cancel_requested_at = now()")
        bury(see)
        await reaper.step()
        assert states(see) == {job: "cancelled"}

    play(database, story)


def test_two_who_reclaim_at_once_do_it_once(database: str) -> None:
    """Two leaders for a moment are harmless: of each claim one ending is written."""

    async def story(see: Connection, first: Reaper, second: Reaper) -> None:
        enqueue(see, 50)
        claim(see, GONE)
        bury(see)
        found = await asyncio.gather(first.step(), second.step())
        assert sum(found) >= 50
        settled = [job for ear in (first.ear, second.ear) for job, _ in ear.settled]
        assert set(states(see).values()) == {"queued"}
        assert see.execute("SELECT DISTINCT attempt, crashes FROM job").fetchall() == [(1, 1)]
        assert see.execute("SELECT count(*) FROM attempt").fetchall() == [(50,)]
        assert len(set(settled)) == 50

    play(database, story)


def test_what_waits_to_be_written_is_not_found_again(database: str) -> None:
    """The next step comes before the last one's endings are written."""

    async def story(see: Connection, reaper: Reaper, _: Reaper) -> None:
        (job,) = enqueue(see)
        claim(see, GONE)
        bury(see)
        with connect(database) as lock:
            lock.execute("BEGIN")
            lock.execute("SELECT FROM claim FOR UPDATE")
            await reaper.find(reaper.settler.settle)
            handed: list[Settlement] = []
            assert await reaper.find(handed.append) == 1
            assert handed == []
            lock.execute("ROLLBACK")
        await reaper.step()
        assert states(see) == {job: "queued"}
        assert reaper.ear.lost == []

    play(database, story)


def test_a_host_that_was_only_slow_loses_its_claim_cleanly(database: str) -> None:
    """It comes back after its jobs were reclaimed, and claimed by another: what it says changes
    nothing, and it is told so."""

    async def story(see: Connection, reaper: Reaper, slow: Reaper) -> None:
        (job,) = enqueue(see)
        (stale,) = claim(see, GONE)
        bury(see)
        await reaper.step()
        (now,) = claim(see, ALIVE)
        assert now.attempt == 1
        slow.settler.settle(Success(stale, '"too late"'))
        async with asyncio.timeout(20):
            await slow.settler.written()
        assert slow.ear.lost == [job]
        assert states(see) == {job: "running"}
        slow.settler.settle(
            Other(stale, Ending(job, GONE, stale.token, "dead", "failed", 1, failed=True))
        )
        async with asyncio.timeout(20):
            await slow.settler.written()
        assert slow.ear.lost == [job, job]
        assert see.execute("SELECT attempt, crashes FROM job").fetchall() == [(1, 1)]

    play(database, story)


def test_a_large_loss_is_reclaimed_in_steps(database: str) -> None:
    async def story(see: Connection, reaper: Reaper, _: Reaper) -> None:
        enqueue(see, 2300)
        claim(see, GONE, most=3000)
        bury(see)
        assert [await reaper.step() for _ in range(4)] == [1000, 1000, 300, 0]
        assert set(states(see).values()) == {"queued"}

    play(database, story)
