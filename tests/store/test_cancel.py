"""Cancel in the database: one answer for each place, and every answer is what happened."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.rows import dict_row

from jobctl.store.reading import Connection
from jobctl.store.statements import sql
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
from tests import claiming
from tests.claiming import where
from tests.store.standing import put, put_session, violations
from tests.waiting import until

HOOK = """
    INSERT INTO job_type (name, queue, priority, timeout_seconds, max_attempts, max_crashes,
                          min_backoff_seconds, max_backoff_seconds, max_doublings, ack,
                          schema_version, on_cancel)
    VALUES ('send', 'mail', 0, 60, 5, 3, 1, 10, 3, 'late', 1, true)
"""


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with psycopg.connect(where(database), autocommit=True, row_factory=dict_row) as connection:
        yield connection
        assert violations(connection) == []


def cancel(conn: Connection, job: int, **options: Any) -> str:
    words = "".join(f", {name} => %({name})s" for name in options)
    text = f"SELECT cancel(%(job)s{words}) AS answer"
    row = conn.execute(text.encode(), {"job": job, **options}).fetchone()
    assert row is not None
    return str(row["answer"])


def state(conn: Connection, job: int) -> str:
    row = conn.execute("SELECT state FROM jobs WHERE id = %s", (job,)).fetchone()
    assert row is not None
    return str(row["state"])


# Each place -------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["queued", "scheduled", "retrying", "blocked"])
def test_what_waits_is_cancelled_at_once(conn: Connection, place: str) -> None:
    """Into history, its key free after its time; a second cancel says the same, in silence."""
    job = put(conn, place, key="k", subject="s")
    assert cancel(conn, job, actor="ann", reason="ordered twice") == "cancelled"
    assert state(conn, job) == "cancelled"
    assert conn.execute("SELECT until > now() AS held FROM job_key").fetchall() == [{"held": True}]
    assert cancel(conn, job) == "cancelled"
    (noted,) = conn.execute("SELECT actor, action, target, count, reason FROM audit").fetchall()
    assert noted == {
        "actor": "ann", "action": "cancel", "target": {"jobs": [job]}, "count": 1,
        "reason": "ordered twice",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("place", "answer"),
    [
        ("succeeded", "already_succeeded"),
        ("dead", "already_dead"),
        ("discarded", "already_dead"),
        ("cancelled", "cancelled"),
    ],
)
def test_it_is_too_late(conn: Connection, place: str, answer: str) -> None:
    """Nothing is changed, and nothing noted."""
    job = put(conn, place)
    assert cancel(conn, job) == answer
    assert state(conn, job) == place
    assert conn.execute("SELECT FROM audit").fetchall() == []


def test_what_runs_is_asked(database: str, conn: Connection) -> None:
    """It stays where it is, with the request; its supervisor is told, once, and nobody else."""
    put_session(conn, 1)
    job = put(conn, "running")
    with psycopg.connect(where(database), autocommit=True) as ear:
        channel = ear.execute("SELECT channel()").fetchone()
        assert channel is not None
        ear.execute(f"LISTEN {channel[0]}".encode())
        assert cancel(conn, job) == "cancel_requested"
        assert cancel(conn, job) == "cancel_requested"
        assert [one.payload for one in ear.notifies(timeout=0.5)] == ["cancel 1"]
        assert cancel(conn, job, force_after="1 hour") == "cancel_requested"
        assert cancel(conn, job, force_after="2 hours") == "cancel_requested"  # the sooner counts
        assert [one.payload for one in ear.notifies(timeout=0.5)] == ["cancel 1"]
    row = conn.execute(
        "SELECT cancel_force_at < now() + interval '61 min' AS soon FROM job"
    ).fetchone()
    assert (state(conn, job), row) == ("running", {"soon": True})
    (one,) = conn.execute(sql("read_cancels"), {"session": 1}).fetchall()
    assert 3500 < one["force_in"] < 3600
    assert not one["compensating"]
    assert conn.execute("SELECT count(*) AS n FROM audit").fetchone() == {"n": 2}


def test_a_rollback_takes_it_back(database: str, conn: Connection) -> None:
    """In the caller's transaction: nothing is cancelled, told or noted before its commit."""
    job = put(conn, "queued", key="k")
    with psycopg.connect(where(database)) as other:
        other.execute("SELECT cancel(%s)", (job,))
        other.rollback()
    assert state(conn, job) == "queued"
    assert conn.execute("SELECT until FROM job_key").fetchall() == [{"until": None}]


def test_words_that_are_wrong(conn: Connection) -> None:
    job = put(conn)
    with pytest.raises(errors.InvalidParameterValue, match="force_after"):
        cancel(conn, job, force_after="-1 s")
    with pytest.raises(errors.NoDataFound, match="there is no job 404"):
        cancel(conn, 404)
    assert conn.execute("SELECT * FROM cancel_many(NULL)").fetchall() == []
    assert state(conn, job) == "queued"


def test_many_at_once(conn: Connection) -> None:
    """Each is answered for, what does not exist is left out, one line in the audit log."""
    jobs = [put(conn, place) for place in ("queued", "running", "dead", "succeeded")]
    rows = conn.execute(
        "SELECT * FROM cancel_many(%s, 'ann', asked => '{\"type\": \"send\"}')",
        ([*jobs, jobs[0], 404, None],),
    ).fetchall()
    assert [(row["job_id"], row["answer"], row["changed"]) for row in rows] == [
        (jobs[0], "cancelled", True),
        (jobs[1], "cancel_requested", True),
        (jobs[2], "already_dead", False),
        (jobs[3], "already_succeeded", False),
    ]
    (noted,) = conn.execute("SELECT target, count FROM audit").fetchall()
    assert noted == {"target": {"asked": {"type": "send"}, "jobs": jobs[:2]}, "count": 2}


def test_one_of_many_queued(conn: Connection) -> None:
    """By index: a hundred times the jobs make it no slower than a few times, let alone a scan."""

    def took() -> float:
        jobs = [put(conn) for _ in range(20)]
        begun = monotonic()
        for job in jobs:
            assert cancel(conn, job) == "cancelled"
        return monotonic() - begun

    took()
    few = took()
    conn.execute("SELECT enqueue_many(jsonb_agg('{\"type\": \"send\"}'::jsonb))"
                 " FROM generate_series(1, 30000)")  # fmt: skip
    assert took() < 10 * few + 0.2


def test_nobody_has_led_for_days(conn: Connection) -> None:
    """There is no partition for today: it is made."""
    for row in conn.execute(
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits"
        " WHERE inhparent = 'history'::regclass"
    ).fetchall():
        conn.execute(f"DROP TABLE {row['name']}".encode())
    job = put(conn)
    assert cancel(conn, job) == "cancelled"
    assert state(conn, job) == "cancelled"
    conn.execute("SELECT make_history_partitions()")


# Never again ------------------------------------------------------------------------------------

ENDINGS: tuple[Cause, ...] = (
    Failed("E", "why"),
    Failed("RetryAfter", "later", retry_after=1.0),
    TimedOut("hard", "too long"),
    TimedOut("soft", "too long"),
    Crashed("killed"),
    Lost("its host is gone"),
    Interrupted("a drain"),
    Snoozed(5.0),
    HandedBack(),
    Unrunnable(),
    Cancelled("at a safe point"),
    Cancelled("by force", forced=True),
)


def settle(conn: Connection, job: int, cause: Cause, token: int | None = None) -> str:
    """Ends the claim that `put` made; where the job went."""
    claimed = Claimed(1, 0, "mail", 0, "", 0, job, token or job, "send", None, None, 1, 0, 0,
                      None, None, "{}", 0.0, 0.0, None)  # fmt: skip
    ending = decide(job, 1, token or job, claimed, UNREGISTERED, cause, 1.0)
    rows = claiming.run(conn, "settle_ended", jobs=[job], endings=json.dumps([ending.to_dict()]))  # type: ignore[arg-type]  # it makes dicts, which do here
    return str(rows[0]["goes_to"])  # type: ignore[call-overload]  # likewise


@pytest.mark.parametrize("cause", ENDINGS, ids=lambda cause: type(cause).__name__)
def test_what_was_asked_to_end_never_runs_again(conn: Connection, cause: Cause) -> None:
    """However its attempt ends; and without the request it would have, or was cancelled anyway."""
    job, control = put(conn, "running"), put(conn, "running")
    assert cancel(conn, job) == "cancel_requested"
    assert settle(conn, job, cause) == "cancelled"
    assert state(conn, job) == "cancelled"
    assert (settle(conn, control, cause) == "cancelled") == isinstance(cause, Cancelled)


def test_what_had_no_attempt_left_is_dead(conn: Connection) -> None:
    """It was not cancelled but failed; and a replay forgets the request."""
    job = put(conn, "running")
    cancel(conn, job)
    assert settle(conn, job, Failed("E", "why", permanent=True)) == "dead"
    assert cancel(conn, job) == "already_dead"
    assert conn.execute("SELECT replay(%s)", (job,)).fetchall()
    row = conn.execute("SELECT state, cancel_requested_at FROM jobs").fetchone()
    assert row == {"state": "queued", "cancel_requested_at": None}


@pytest.mark.parametrize("cause", ENDINGS, ids=lambda cause: type(cause).__name__)
def test_a_hook_is_all_that_is_left_to_run(conn: Connection, cause: Cause) -> None:
    """Once, for what had begun, and however it ends the job is cancelled; what never began needs
    none. An interrupted hook, or one that did not start, comes again."""
    conn.execute(HOOK)
    job = put(conn, "running")
    cancel(conn, job)
    begun = not isinstance(cause, HandedBack | Unrunnable)
    cooperative = isinstance(cause, Cancelled) and not cause.forced
    assert settle(conn, job, cause) == ("front" if begun and not cooperative else "cancelled")
    if not begun or cooperative:
        assert state(conn, job) == "cancelled"
        return
    assert state(conn, job) == "queued"
    assert cancel(conn, job) == "cancel_requested"
    assert hook(conn, job, Interrupted("a drain")) == "front"
    assert hook(conn, job, HandedBack()) == "front"
    assert hook(conn, job, Unrunnable()) == "lane"
    last = Lost("gone") if isinstance(cause, Interrupted) else cause
    assert hook(conn, job, last) == "cancelled"
    assert state(conn, job) == "cancelled"


def hook(conn: Connection, job: int, cause: Cause) -> str:
    """Claims the job for its hook, and ends that attempt."""
    row = conn.execute("SELECT compensating FROM job WHERE id = %s", (job,)).fetchone()
    assert row == {"compensating": True}
    conn.execute("DELETE FROM ready WHERE job_id = %s", (job,))
    conn.execute(
        "INSERT INTO claim (job_id, session_id, token, claimed_at, deadline_at)"
        " VALUES (%s, 1, 99, now(), now() + interval '1 h')",
        (job,),
    )
    assert cancel(conn, job) == "cancel_requested"
    return settle(conn, job, cause, 99)


def test_a_hook_for_what_had_run_before(conn: Connection) -> None:
    """A job that waits for another attempt had begun, also before a replay; a fresh one had not."""
    conn.execute(HOOK)
    fresh, tried = put(conn, "queued"), put(conn, "retrying", attempt=1)
    replayed = put(conn, "queued")
    conn.execute("INSERT INTO attempt (job_id, attempt, outcome) VALUES (%s, 1, 'failed')",
                 (replayed,))  # fmt: skip
    assert [cancel(conn, job) for job in (fresh, tried, replayed)] == [
        "cancelled", "cancel_requested", "cancel_requested",
    ]  # fmt: skip
    assert [state(conn, job) for job in (fresh, tried, replayed)] == [
        "cancelled", "queued", "queued",
    ]  # fmt: skip


def test_a_failed_hook_is_on_record(conn: Connection) -> None:
    """With the job, which is cancelled all the same."""
    conn.execute(HOOK)
    job = put(conn, "running")
    cancel(conn, job)
    spoilt = Cancelled("the bank is closed", "RuntimeError", None, "stack", failed=True)
    assert settle(conn, job, spoilt) == "cancelled"
    row = conn.execute("SELECT state, failure_class, last_error FROM jobs").fetchone()
    assert row == {
        "state": "cancelled", "failure_class": "on_cancel", "last_error": "the bank is closed",
    }  # fmt: skip


# Races ------------------------------------------------------------------------------------------


def test_a_claim_is_on_its_way(database: str, conn: Connection) -> None:
    """The cancel waits for it, and finds the job running."""
    job = put(conn)
    with claiming.connect(database) as host:
        host.execute("BEGIN")
        claiming.claim(host, 1)
        answers: list[str] = []
        asking = threading.Thread(target=lambda: answers.append(_cancel_alone(database, job)))
        asking.start()
        until(lambda: _waits(conn), what="the cancel to wait")
        host.execute("COMMIT")
        asking.join(30)
    assert answers == ["cancel_requested"]
    assert state(conn, job) == "running"


@pytest.mark.parametrize("committed", [True, False])
def test_two_cancel_the_same_job(database: str, conn: Connection, committed: bool) -> None:
    """The second waits for the first, and says what has become of it then."""
    job = put(conn)
    with psycopg.connect(where(database)) as first:
        first.execute("SELECT cancel(%s)", (job,))
        answers: list[str] = []
        second = threading.Thread(target=lambda: answers.append(_cancel_alone(database, job)))
        second.start()
        until(lambda: _waits(conn), what="the second to wait")
        first.commit() if committed else first.rollback()
        second.join(30)
    assert answers == ["cancelled"]
    assert conn.execute("SELECT count(*) AS n FROM audit").fetchone() == {"n": 1}


def test_an_attempt_ends_while_a_cancel_is_open(database: str, conn: Connection) -> None:
    """The ending steps aside, and finds the request when it comes back."""
    job = put(conn, "running")
    with psycopg.connect(where(database)) as caller:
        caller.execute("SELECT cancel(%s)", (job,))
        ending = decide(job, 1, job, _claimed(job), UNREGISTERED, Failed("E", "why"), 1.0)
        with claiming.connect(database) as host:
            parameters = {"jobs": [job], "endings": json.dumps([ending.to_dict()])}
            assert claiming.run(host, "settle_ended", **parameters) == []
            caller.commit()
            assert claiming.run(host, "settle_ended", **parameters)[0][2] == "cancelled"


def test_nobody_keeps_a_snapshot_from_the_truth(database: str, conn: Connection) -> None:
    """In REPEATABLE READ: what has moved since is a serialization failure, never a wrong answer."""
    job = put(conn)
    with psycopg.connect(where(database)) as caller:
        caller.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        caller.execute("SELECT 1 FROM job")
        with claiming.connect(database) as host:
            claiming.claim(host, 1)
        with pytest.raises(errors.SerializationFailure):
            caller.execute("SELECT cancel(%s)", (job,))
        caller.rollback()
        caller.execute("SELECT 1 FROM job")
        assert settle(conn, job, HandedBack(), _token(conn, job)) == "front"
        with pytest.raises(errors.SerializationFailure):
            caller.execute("SELECT cancel(%s)", (job,))


def test_answers_agree_with_what_happened(database: str, conn: Connection) -> None:
    """Cancel, promote, claim, succeed, fail, hand back and reap at once, over connections of their
    own: every answer fits a moment between question and answer, and the record's."""
    jobs = [put(conn, random.choice(["queued", "scheduled", "retrying"])) for _ in range(150)]
    conn.execute("UPDATE scheduled SET run_at = now() - interval '1 s'")
    over = threading.Event()
    answers: dict[int, list[str]] = {job: [] for job in jobs}
    succeeded: set[int] = set()
    failed: list[BaseException] = []

    def ask(seed: int) -> None:
        order = random.Random(seed).sample(jobs, len(jobs))
        with psycopg.connect(where(database), autocommit=True, row_factory=dict_row) as mine:
            for job in order:
                answers[job].append(cancel(mine, job))

    def work(seed: int) -> None:
        chance = random.Random(seed)
        with claiming.connect(database) as host:
            while not over.is_set():
                claiming.run(host, "promote", most=20, within=None)
                for one in claiming.claim(host, seed, most=5):
                    if chance.random() < 0.4:
                        settled = claiming.succeed(host, [one])
                        succeeded.update(settled)
                        if settled:
                            continue
                    causes: list[Cause] = [
                        Failed("E", "why", retry_after=0.0), HandedBack(), Lost("gone"),
                    ]  # fmt: skip
                    cause = chance.choice(causes)
                    _end_for_sure(host, one, cause, seed)

    def guarded(step: Callable[[int], None], seed: int) -> None:
        try:
            step(seed)
        except BaseException as error:
            failed.append(error)
            over.set()

    workers = [threading.Thread(target=guarded, args=(work, seed)) for seed in (11, 12)]
    askers = [threading.Thread(target=guarded, args=(ask, seed)) for seed in (1, 2)]
    for thread in (*workers, *askers):
        thread.start()
    for thread in askers:
        thread.join(120)
    until(lambda: failed or not _open(conn), within=60, what="all jobs to end")
    over.set()
    for thread in workers:
        thread.join(60)
    assert failed == []
    for job in jobs:
        last = state(conn, job)
        assert last in ("succeeded", "cancelled", "dead")
        assert (last == "succeeded") == (job in succeeded)
        said = answers[job]
        if "cancelled" in said:
            assert last == "cancelled", (job, said)
        if "already_succeeded" in said:
            assert last == "succeeded", (job, said)
        if last == "cancelled":
            assert set(said) <= {"cancelled", "cancel_requested"}, (job, said)
        # Nobody was told that it was too late, and then it was not.
        assert "already_dead" not in said or last == "dead", (job, said)


def _end_for_sure(host: claiming.Connection, one: Claimed, cause: Cause, session: int) -> None:
    """As the settler does: what is locked is tried again."""
    ending = decide(one.job_id, session, one.token, one, UNREGISTERED, cause, 1.0)
    parameters = {"jobs": [one.job_id], "endings": json.dumps([ending.to_dict()])}
    begun = monotonic()
    while not claiming.run(host, "settle_ended", **parameters):
        assert monotonic() - begun < 60


def _open(conn: Connection) -> bool:
    return bool(conn.execute("SELECT FROM job LIMIT 1").fetchall()) and bool(
        conn.execute(
            "SELECT FROM jobs WHERE state NOT IN ('succeeded', 'cancelled', 'dead') LIMIT 1"
        ).fetchall()
    )


def _cancel_alone(database: str, job: int) -> str:
    with psycopg.connect(where(database), autocommit=True, row_factory=dict_row) as alone:
        return cancel(alone, job)


def _waits(conn: Connection) -> bool:
    return bool(
        conn.execute("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall()
    )


def _token(conn: Connection, job: int) -> int:
    row = conn.execute("SELECT token FROM claim WHERE job_id = %s", (job,)).fetchone()
    assert row is not None
    return int(row["token"])


def _claimed(job: int) -> Claimed:
    return Claimed(1, 0, "mail", 0, "", 0, job, job, "send", None, None, 1, 0, 0, None, None, "{}",
                   0.0, 0.0, None)  # fmt: skip
