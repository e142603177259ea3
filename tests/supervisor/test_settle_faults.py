"""Settling against what can go wrong: rows that cannot be stored, and the way to the database."""

from __future__ import annotations

import pytest

from jobctl.supervisor.outcomes import Cancelled, Cause, Crashed, Failed, HandedBack, Snoozed
from jobctl.supervisor.settle import Success
from tests.claiming import claim, connect, enqueue, run, states
from tests.proxy import Proxy, Wire
from tests.supervisor.settling import FAILED, LINK, SESSION, Stage, play

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
                session=SESSION, results=['"kept"'], steps=[None], most_bytes=None,
                progress="{}",
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
