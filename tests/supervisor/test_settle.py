"""Settling: what is written, and that nobody who is in the way holds up anybody else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from psycopg import sql

from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.outcomes import (
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
)
from jobctl.supervisor.settle import Success
from tests.claiming import claim, connect, enqueue, run, states
from tests.supervisor.settling import FAILED, SESSION, Stage, play

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


def _fields(claimed: Claimed) -> dict[str, Any]:
    return {name: getattr(claimed, name) for name in Claimed.__dataclass_fields__}
