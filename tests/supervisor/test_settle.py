"""Settling, against a real database, and against what can go wrong on the way to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg import sql

from jobctl.store.link import DISPATCH_SETTINGS, Link
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.outcomes import (
    UNREGISTERED,
    Cancelled,
    Cause,
    Crashed,
    Failed,
    HandedBack,
    Interrupted,
    Lost,
    Snoozed,
    TimedOut,
    Unrunnable,
    decide,
)
from jobctl.supervisor.settle import Other, Settlement, Settler, Success
from tests.claiming import claim, connect, enqueue, run, states, violations, where
from tests.proxy import Proxy, Wire
from tests.waiting import until

SESSION = 77
LINK = "jobctl settle test"
FAILED = Failed("ValueError", "no such invoice", code="E1", stack="Traceback")


@dataclass
class Ear:
    """Writes down what the settler reports."""

    settled: list[tuple[int, str]] = field(default_factory=list)  # job, place
    lost: list[int] = field(default_factory=list)
    unstorable: list[tuple[int, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def on_settled(self, settlement: Settlement, place: str) -> None:
        self.settled.append((settlement.claimed.job_id, place))

    def on_lost(self, settlement: Settlement) -> None:
        self.lost.append(settlement.claimed.job_id)

    def on_unstorable(self, settlement: Settlement, error: str) -> None:
        self.unstorable.append((settlement.claimed.job_id, error))

    def on_settle_refused(self, error: str) -> None:
        self.refused.append(error)


@dataclass
class Stage:
    """A settler at work, and a connection of the test's own to see what it does."""

    dsn: str
    link: Link
    settler: Settler
    ear: Ear
    see: psycopg.Connection[tuple[Any, ...]]

    def other(self, claimed: Claimed, cause: Cause) -> Other:
        return Other(
            claimed,
            decide(
                claimed.job_id, claimed.session_id, claimed.token, claimed, UNREGISTERED, cause, 1.0
            ),
        )

    def value(self, query: str, *parameters: Any) -> Any:
        row = self.see.execute(query.encode(), parameters).fetchone()
        assert row is not None
        return row[0]

    async def written(self, within: float = 20.0) -> None:
        async with asyncio.timeout(within):
            await self.settler.written()

    async def until(self, fact: Callable[[], Any], within: float = 20.0) -> None:
        """`until` in a thread: the loop must go on, and the fact may ask the database."""
        await asyncio.to_thread(until, fact, within)


def play(dsn: str, story: Callable[[Stage], Awaitable[None]], through: str | None = None) -> Ear:
    """Plays a story with a settler whose link leads `through` there."""

    async def scene() -> Ear:
        ear = Ear()
        link = Link("settle", where(through or dsn, LINK), DISPATCH_SETTINGS)
        settler = Settler(link, ear)
        task = asyncio.create_task(settler.run())
        try:
            with connect(dsn) as see:
                await story(Stage(dsn, link, settler, ear, see))
                assert violations(see) == []
        finally:
            task.cancel()
            await asyncio.wait([task])
            await link.close()
        return ear

    return asyncio.run(scene())


# What is written ----------------------------------------------------------------------------------


def test_successes_go_to_history_in_a_batch(database: str) -> None:
    """With their results, their claims' tokens, and one attempt spent; their keys run out."""

    async def story(on: Stage) -> None:
        jobs = enqueue(on.see, 700)
        (keyed,) = enqueue(on.see, key="invoice-email:1842")
        for one in claim(on.see, SESSION):
            on.settler.settle(Success(one, json.dumps({"job": one.job_id})))
        await on.written()
        assert set(states(on.see).values()) == {"succeeded"}
        assert len(on.ear.settled) == 701
        ok = on.value(
            "SELECT count(*) FROM history WHERE result = jsonb_build_object('job', id)"
            " AND session_id = %s AND token IS NOT NULL AND attempt = 1 AND started_at IS NOT NULL",
            SESSION,
        )
        assert ok == len(jobs) + 1
        left = on.value("SELECT until - now() FROM job_key WHERE job_id = %s", keyed)
        assert 0 < left.total_seconds() <= 86_400

    play(database, story)


@pytest.mark.parametrize(
    ("cause", "state", "attempt", "crashes", "recorded"),
    [
        (FAILED, "retrying", 1, 0, "failed"),
        (Failed("E", "why", permanent=True), "dead", 1, 0, "failed"),
        (TimedOut("hard", "too long", stack="threads"), "retrying", 1, 0, "timeout"),
        (Crashed("killed by SIGSEGV", "SIGSEGV"), "retrying", 1, 1, "crashed"),
        (Lost("lease expired"), "queued", 1, 1, "lost"),
        (Snoozed(3600.0), "scheduled", 0, 0, "snoozed"),
        (Cancelled("by force"), "cancelled", 1, 0, "cancelled"),
        (Interrupted("drain"), "queued", 0, 0, "interrupted"),
        (HandedBack(), "queued", 0, 0, None),
        (Unrunnable(), "queued", 0, 0, None),
    ],
)
def test_every_ending_finds_its_place(
    database: str, cause: Cause, state: str, attempt: int, crashes: int, recorded: str | None
) -> None:
    """The job stands where its ending says, has spent what that costs, and the attempt is kept."""

    async def story(on: Stage) -> None:
        enqueue(on.see)
        (one,) = claim(on.see, SESSION)
        on.settler.settle(on.other(one, cause))
        await on.written()
        row = on.see.execute("SELECT state, attempt, crashes FROM jobs").fetchone()
        assert row == (state, attempt, crashes)
        outcomes = on.see.execute("SELECT outcome, attempt FROM attempts").fetchall()
        assert outcomes == ([] if recorded is None else [(recorded, 1)])
        again = claim(on.see, SESSION)
        assert bool(again) == (state == "queued")

    play(database, story)


def test_work_that_is_handed_back_goes_first(database: str) -> None:
    """In the front lane of its queue and priority, in the order in which it was claimed."""

    async def story(on: Stage) -> None:
        first = enqueue(on.see, 3)
        held = claim(on.see, SESSION)
        later = enqueue(on.see, 2)
        for one in reversed(held):
            on.settler.settle(on.other(one, HandedBack()))
        await on.written()
        assert [one.job_id for one in claim(on.see, SESSION, most=4)] != later
        assert on.value("SELECT count(*) FROM ready") == 1
        assert on.value("SELECT array_agg(job_id ORDER BY token) FROM claim") == [*first, later[0]]

    play(database, story)


def test_a_lane_of_a_type_is_announced_once_it_exists(database: str) -> None:
    """Every dispatcher must hear of a new lane, and a name may be anything."""

    async def story(on: Stage) -> None:
        enqueue(on.see, type="odd 'name' %s \"x\"", schema_version=3)
        channel = on.value("SELECT channel()")
        on.see.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        (one,) = claim(on.see, SESSION)
        on.settler.settle(on.other(one, Unrunnable()))
        await on.written()
        payloads = [note.payload for note in on.see.notifies(timeout=5, stop_after=1)]
        assert payloads == ["look"]
        lane = on.see.execute("SELECT lane, type, schema_version FROM lane").fetchone()
        assert lane == (f"type:{one.type}@3", one.type, 3)
        (again,) = claim(on.see, SESSION)
        assert again.lane == f"type:{one.type}@3"

    play(database, story)


@pytest.mark.parametrize("cause", [FAILED, Snoozed(60), Interrupted("drain"), HandedBack()])
def test_what_somebody_asked_to_cancel_never_runs_again(database: str, cause: Cause) -> None:
    async def story(on: Stage) -> None:
        enqueue(on.see, key="k")
        (one,) = claim(on.see, SESSION)
        on.see.execute("UPDATE job SET cancel_requested_at = now()")
        on.settler.settle(on.other(one, cause))
        await on.written()
        assert on.ear.settled == [(one.job_id, "cancelled")]
        assert states(on.see) == {one.job_id: "cancelled"}
        assert on.value("SELECT until IS NOT NULL FROM job_key")

    play(database, story)


# Others in the way --------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["claim", "job"])
def test_a_locked_row_holds_up_nobody(database: str, table: str) -> None:
    """Its neighbours, and those who come later, are written while it waits; then it is too."""

    async def story(on: Stage) -> None:
        enqueue(on.see, 6)
        held = claim(on.see, SESSION)
        with connect(database) as lock:
            key = "job_id" if table == "claim" else "id"
            lock.execute("BEGIN")
            lock.execute(
                f"SELECT FROM {table} WHERE {key} = ANY(%s) FOR UPDATE".encode(),
                ([held[0].job_id, held[1].job_id],),
            )
            on.settler.settle(Success(held[0]))
            on.settler.settle(on.other(held[1], FAILED))
            on.settler.settle(Success(held[2]))
            on.settler.settle(on.other(held[3], FAILED))
            await on.until(lambda: len(on.ear.settled) == 2)
            on.settler.settle(Success(held[4]))
            on.settler.settle(on.other(held[5], FAILED))
            await on.until(lambda: len(on.ear.settled) == 4)
            assert len(on.settler) == 2
            assert on.settler.tokens() == {(SESSION, held[0].token), (SESSION, held[1].token)}
            lock.execute("ROLLBACK")
        await on.written()
        assert sorted(on.ear.settled) == [
            (one.job_id, "retry" if number % 2 else "succeeded") for number, one in enumerate(held)
        ]
        assert on.ear.refused == []

    play(database, story)


def test_a_cancel_in_an_open_transaction_is_seen_once_it_commits(database: str) -> None:
    """The attempt fails while somebody's cancel is not committed yet: the cancel wins."""

    async def story(on: Stage) -> None:
        enqueue(on.see)
        (one,) = claim(on.see, SESSION)
        with connect(database) as application:
            application.execute("BEGIN")
            application.execute("UPDATE job SET cancel_requested_at = now()")
            on.settler.settle(on.other(one, FAILED))
            await on.until(lambda: on.settler._aside)
            application.execute("COMMIT")
        await on.written()
        assert states(on.see) == {one.job_id: "cancelled"}

    play(database, story)


def test_of_two_endings_of_one_claim_the_first_counts(database: str) -> None:
    """The reaper's and the slot's, in one batch or one after the other: nothing is written twice,
    and what was not written is reported as lost."""

    async def story(on: Stage) -> None:
        enqueue(on.see)
        (one,) = claim(on.see, SESSION)
        on.settler.settle(on.other(one, Lost("past its deadline")))
        on.settler.settle(Success(one))
        await on.written()
        on.settler.settle(on.other(one, FAILED))
        await on.written()
        assert on.ear.settled == [(one.job_id, "front")]
        assert on.ear.lost == [one.job_id, one.job_id]
        assert on.see.execute("SELECT outcome FROM attempts").fetchall() == [("lost",)]
        assert states(on.see) == {one.job_id: "queued"}

    play(database, story)


@pytest.mark.parametrize("cause", [None, FAILED, Lost("x"), Snoozed(5), Cancelled()])
def test_a_claim_that_was_lost_is_reported_and_nothing_changes(
    database: str, cause: Cause | None
) -> None:
    """Reclaimed meanwhile, and claimed again: whoever holds it now is not disturbed."""

    async def story(on: Stage) -> None:
        enqueue(on.see)
        (stale,) = claim(on.see, SESSION)
        on.settler.settle(on.other(stale, HandedBack()))
        await on.written()
        (now,) = claim(on.see, SESSION + 1)
        before = on.see.execute("SELECT to_jsonb(j) FROM jobs AS j").fetchall()
        # Also under the new session's name, and the new token under the old session's.
        stale.attempt = now.attempt
        on.settler.settle(Success(stale) if cause is None else on.other(stale, cause))
        stale_name = Claimed(**{**_fields(now), "session_id": SESSION})
        on.settler.settle(Success(stale_name) if cause is None else on.other(stale_name, cause))
        stale_token = Claimed(**{**_fields(now), "token": stale.token})
        on.settler.settle(Success(stale_token) if cause is None else on.other(stale_token, cause))
        await on.written()
        assert on.ear.lost == [stale.job_id] * 3
        assert on.see.execute("SELECT to_jsonb(j) FROM jobs AS j").fetchall() == before
        assert on.value("SELECT token FROM claim") == now.token
        assert on.value("SELECT count(*) FROM attempt") == 0

    play(database, story)


def test_two_claims_of_one_job_are_told_apart_in_one_batch(database: str) -> None:
    """The session that lost it has claimed it again: only the new claim's result is kept."""

    async def story(on: Stage) -> None:
        enqueue(on.see)
        (old,) = claim(on.see, SESSION)
        run(
            on.see,
            "settle_ended",
            jobs=[old.job_id],
            endings=json.dumps([on.other(old, Lost("x")).ending.to_dict()]),
        )
        (new,) = claim(on.see, SESSION)
        on.settler.settle(Success(new, '"new"'))
        on.settler.settle(Success(old, '"old"'))
        await on.written()
        assert on.ear.settled == [(new.job_id, "succeeded")]
        assert on.ear.lost == [old.job_id]
        assert on.value("SELECT result FROM history") == "new"

    play(database, story)


# What cannot be stored ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result",
    [
        '{"a": "\\u0000"}',
        "not json",
        "",
        "NaN",
        '"\\ud800"',
        '"\ud800"',
        '"\0"',
        "[" * 200_000 + "]" * 200_000,
    ],
    ids=["nul", "no json", "empty", "nan", "half", "half raw", "nul raw", "deep"],
)
def test_a_result_that_postgresql_refuses_fails_no_neighbour(database: str, result: str) -> None:
    """The others succeed; this one is dead, and says why."""

    async def story(on: Stage) -> None:
        enqueue(on.see, 7)
        held = claim(on.see, SESSION)
        bad = held.pop(3)
        for one in held[:3]:
            on.settler.settle(Success(one, "1"))
        on.settler.settle(Success(bad, result))
        for one in held[3:]:
            on.settler.settle(Success(one))
        await on.written()
        assert states(on.see) == {
            **{one.job_id: "succeeded" for one in held},
            bad.job_id: "dead",
        }
        assert [job for job, _ in on.ear.unstorable] == [bad.job_id]
        assert on.ear.refused == []
        row = on.see.execute(
            "SELECT failure_class, last_error, attempt FROM jobs WHERE id = %s", (bad.job_id,)
        ).fetchone()
        assert row is not None
        assert (row[0], row[2]) == ("unstorable_result", 1)
        assert "could not store its result" in row[1]

    play(database, story)


@pytest.mark.parametrize(
    ("cause", "state"),
    [
        (Failed("E\0", "a\0b"), "retrying"),
        (Failed("E", "half \ud800 a character"), "retrying"),
        (Failed("E", "why", permanent=True, stack="\0"), "dead"),
        (Failed("E", "why", retry_after=1e300), "retrying"),
        (Failed("E", "why", retry_after=float("nan")), "retrying"),
        (Failed("E", "why", retry_after=1e10), "retrying"),
        (Snoozed(float("inf")), "scheduled"),
        (Snoozed(1e11), "scheduled"),
        (Crashed("\0"), "retrying"),
    ],
)
def test_an_ending_that_postgresql_refuses_is_told_in_plain_words(
    database: str, cause: Cause, state: str
) -> None:
    """It goes where it would have gone, within a day, and its neighbours as they are."""

    async def story(on: Stage) -> None:
        enqueue(on.see, 3)
        first, bad, last = claim(on.see, SESSION)
        on.settler.settle(on.other(first, FAILED))
        on.settler.settle(on.other(bad, cause))
        on.settler.settle(on.other(last, FAILED))
        await on.written()
        assert states(on.see) == {
            first.job_id: "retrying", bad.job_id: state, last.job_id: "retrying",
        }  # fmt: skip
        assert [job for job, _ in on.ear.unstorable] == [bad.job_id]
        assert on.value("SELECT max(run_at) < now() + interval '1 day 1 minute' FROM jobs")
        codes = on.value("SELECT array_agg(last_error_code) FROM jobs WHERE id <> %s", bad.job_id)
        assert codes == ["E1", "E1"]

    play(database, story)


def test_a_job_that_cannot_be_settled_at_all_waits_by_itself(database: str) -> None:
    """Something is wrong with this one that no words cure: it is reported and tried again, and
    nobody waits for it."""

    async def story(on: Stage) -> None:
        enqueue(on.see, 3)
        bad, first, last = claim(on.see, SESSION)
        on.see.execute("INSERT INTO dead (job_id) VALUES (%s)", (bad.job_id,))
        on.settler.settle(on.other(bad, Failed("E", "why", permanent=True)))
        on.settler.settle(on.other(first, FAILED))
        await on.until(lambda: on.ear.settled == [(first.job_id, "retry")])
        await on.until(lambda: on.ear.refused)
        on.settler.settle(on.other(last, FAILED))
        await on.until(lambda: len(on.ear.settled) == 2)
        on.see.execute("DELETE FROM dead")  # somebody puts it right
        await on.written()
        assert states(on.see)[bad.job_id] == "dead"

    play(database, story)


# The way to the database --------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [None, FAILED, Cancelled(), HandedBack(), Snoozed(60)])
def test_a_lost_answer_is_not_a_second_settling(database: str, cause: Cause | None) -> None:
    """The statement was committed and nobody heard of it: sent again, it is recognised."""

    async def story(on: Stage) -> None:
        enqueue(on.see, 3)
        warm, *held = claim(on.see, SESSION)
        # The statement is prepared then, and one message is all that it takes.
        on.settler.settle(Success(warm) if cause is None else on.other(warm, cause))
        await on.written()
        proxy.wire = Wire.DEAF
        for one in held:
            on.settler.settle(Success(one) if cause is None else on.other(one, cause))
        await on.until(lambda: on.value("SELECT count(*) FROM claim") == 0)
        assert len(on.ear.settled) == 1
        proxy.wire = Wire.WORKS
        proxy.cut()
        await on.written()
        assert [job for job, _ in on.ear.settled] == [one.job_id for one in (warm, *held)]
        assert len({place for _, place in on.ear.settled}) == 1
        assert on.ear.lost == []
        assert on.value("SELECT count(*) FROM jobs") == 3
        assert on.value("SELECT count(*) FROM attempts") in (0, 3)

    with Proxy.to(database) as proxy:
        play(database, story, through=proxy.dsn)


def test_a_success_that_the_handler_committed_itself_stands(database: str) -> None:
    """Whatever its slot says afterwards: the database's word is the last."""

    async def story(on: Stage) -> None:
        enqueue(on.see, 2)
        done, raised = claim(on.see, SESSION)
        for one in (done, raised):
            run(
                on.see, "settle_succeeded", jobs=[one.job_id], tokens=[one.token],
                session=SESSION, results=['"kept"'],
            )  # fmt: skip
        on.settler.settle(Success(done))
        on.settler.settle(on.other(raised, FAILED))
        await on.written()
        assert sorted(on.ear.settled) == [(done.job_id, "succeeded"), (raised.job_id, "succeeded")]
        assert on.value("SELECT array_agg(DISTINCT result::text) FROM history") == ['"kept"']
        assert on.value("SELECT count(*) FROM attempt") == 0

    play(database, story)


def test_a_connection_that_is_killed_in_the_middle_loses_nothing(database: str) -> None:
    """The server process dies while it writes the batch: it is written once, by the next one."""

    async def story(on: Stage) -> None:
        enqueue(on.see, 20)
        held = claim(on.see, SESSION)
        with connect(database) as lock:
            lock.execute("BEGIN")
            lock.execute("LOCK TABLE history IN ACCESS EXCLUSIVE MODE")
            for one in held:
                on.settler.settle(Success(one))
            await on.until(
                lambda: on.value(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                    " WHERE application_name = %s AND wait_event_type = 'Lock'",
                    LINK,
                )
            )
            lock.execute("ROLLBACK")
        await on.written()
        assert sorted(on.ear.settled) == sorted((one.job_id, "succeeded") for one in held)
        assert on.ear.lost == []
        assert on.value("SELECT count(*) FROM history") == 20

    play(database, story)


def test_a_missing_partition_of_history_is_made(database: str) -> None:
    """Nobody has led for a week: the first who needs today's partition makes it."""

    async def story(on: Stage) -> None:
        names = on.see.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'history'::regclass"
        ).fetchall()
        for (name,) in names:
            on.see.execute(f"DROP TABLE {name}".encode())
        enqueue(on.see, 4)
        first, second, third, fourth = claim(on.see, SESSION)
        on.settler.settle(Success(first))
        on.settler.settle(on.other(second, Cancelled()))
        on.settler.settle(on.other(third, FAILED))
        on.settler.settle(Success(fourth, "not json"))
        await on.written()
        assert states(on.see) == {
            first.job_id: "succeeded", second.job_id: "cancelled", third.job_id: "retrying",
            fourth.job_id: "dead",
        }  # fmt: skip
        assert len(names) == on.value(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 'history'::regclass"
        )

    play(database, story)


def test_a_standby_is_left_for_the_primary(database: str) -> None:
    """A connection that has become read-only is given up; the next one writes."""

    async def story(on: Stage) -> None:
        enqueue(on.see)
        (one,) = claim(on.see, SESSION)
        await on.link.ready()
        await on.link.execute("set", "SET default_transaction_read_only = on")
        before = on.link.generation
        on.settler.settle(Success(one))
        await on.written()
        assert on.ear.settled == [(one.job_id, "succeeded")]
        assert on.ear.refused == []  # it is the connection that is of no use
        assert on.link.generation == before + 1

    play(database, story)


def _fields(claimed: Claimed) -> dict[str, Any]:
    return {name: getattr(claimed, name) for name in Claimed.__dataclass_fields__}
