"""A model of the store beside the store itself: the same steps, and after each the same facts.

The statements are the real ones. The model is a handful of dictionaries: where each job stands,
what it has spent, who holds it, who holds its key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from psycopg import errors

from jobctl.store.enqueue import enqueue
from jobctl.store.statements import sql
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.lanes import FRONT
from jobctl.supervisor.outcomes import Cause, Ending, Lost, decide
from tests import claiming
from tests.claiming import Connection, violations
from tests.store.store_model import (
    LATER,
    POLICY,
    SESSIONS,
    STANDS,
    TABLES,
    Job,
    Open,
    a_cause,
    a_key,
    a_success_or_cause,
    a_type,
    in_turn,
    let_down,
    let_go,
    several,
    some_jobs,
    which,
)


class StoreMachine(RuleBasedStateMachine):
    """`dsn` is set by the test. A control replaces a statement in `altered`."""

    dsn = ""
    altered: Mapping[str, str] = MappingProxyType({})
    key_names: tuple[str | None, ...] = ("k1", "k2", None, None)

    def __init__(self) -> None:
        super().__init__()
        self.admin = claiming.connect(self.dsn, {"lock_timeout": "20ms"})
        self.host = claiming.connect(self.dsn)
        self.locker = claiming.connect(self.dsn)
        self.producers = [Open(claiming.connect(self.dsn, {})) for _ in range(2)]
        with self.admin.transaction():
            for table in TABLES:
                self.admin.execute(f"DELETE FROM {table}".encode())  # noqa: S608
        self.jobs: dict[int, Job] = {}
        self.keys: dict[tuple[str, str], tuple[int, bool]] = {}  # job, and whether it is over
        self.sessions: dict[int, bool] = {}  # whether it is alive
        self.claims: list[Claimed] = []  # all that ever were
        # How a claim was settled, by token: its recorded outcome, its job's final state.
        self.fates: dict[int, tuple[str | None, str | None]] = {}
        self.turns = count(1)
        self.session_ids = count(1)
        for _ in range(SESSIONS):
            self._new_session()

    def teardown(self) -> None:
        for connection in (self.admin, self.host, self.locker):
            connection.close()
        for producer in self.producers:
            if producer.begun:
                producer.connection.execute("ROLLBACK")  # now, and not when the server notices
            producer.connection.close()

    # Enqueue ------------------------------------------------------------------------------------

    @initialize(jobs=some_jobs)
    def begin_with(self, jobs: list[tuple[str, str | None, int, bool]]) -> None:
        self.enqueue(jobs)

    @rule(jobs=some_jobs)
    def enqueue(self, jobs: list[tuple[str, str | None, int, bool]]) -> None:
        for type_, key, priority, delayed in jobs:
            self._enqueue_one(type_, key, priority, delayed)

    def _enqueue_one(self, type: str, key: str | None, priority: int, delayed: bool) -> None:
        if key is not None and any((type, key) in one.keys for one in self.producers):
            with pytest.raises(errors.LockNotAvailable):  # it waits for that transaction's end
                self._enqueue(self.admin, type, key, priority, delayed)
            return
        job_id, job = self._enqueue(self.admin, type, key, priority, delayed)
        holder = self._holder(type, key)
        if holder is not None:
            assert job_id == holder, "a key let a second job in"
            return
        assert job_id not in self.jobs
        self.jobs[job_id] = job
        if key is not None:
            self.keys[type, key] = (job_id, False)

    @rule(producer=which, type=a_type, key=a_key, delayed=st.booleans())
    def enqueue_in_transaction(
        self, producer: int, type: str, key: str | None, delayed: bool
    ) -> None:
        one = self.producers[producer % len(self.producers)]
        others = [other for other in self.producers if other is not one]
        if key is not None and any((type, key) in other.keys for other in others):
            return  # it would wait for itself to be committed by us
        if not one.begun:
            one.connection.execute("BEGIN")
            one.begun = True
        job_id, job = self._enqueue(one.connection, type, key, 0, delayed)
        holder = self._holder(type, key)
        if key is not None and (type, key) in one.keys:
            holder = one.keys[type, key]
        if holder is not None:
            assert job_id == holder, "a key let a second job in"
            return
        one.jobs[job_id] = job
        if key is not None:
            one.keys[type, key] = job_id

    @precondition(lambda self: any(one.begun for one in self.producers))
    @rule(producer=which, commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        begun = [one for one in self.producers if one.begun]
        one = begun[producer % len(begun)]
        one.connection.execute("COMMIT" if commit else "ROLLBACK")
        if commit:
            self.jobs |= one.jobs
            self.keys |= {
                key: (job_id, self.jobs[job_id].state == "cancelled")
                for key, job_id in one.keys.items()
            }
        one.jobs, one.keys, one.begun = {}, {}, False

    @precondition(lambda self: any(over for _, over in self.keys.values()))
    @rule(chosen=which)
    def a_key_runs_out(self, chosen: int) -> None:
        held = {key for one in self.producers for key in one.keys}
        over = [key for key, (_, is_over) in self.keys.items() if is_over and key not in held]
        if over:
            type_, key = over[chosen % len(over)]
            self.admin.execute(
                "UPDATE job_key SET until = now() - interval '1 s' WHERE type = %s AND key = %s",
                (type_, key),
            )
            del self.keys[type_, key]

    # Claim --------------------------------------------------------------------------------------

    @rule(session=which, most=st.integers(1, 6), causes=several)
    def work(self, session: int, most: int, causes: list[Cause | None]) -> None:
        """Claims, and ends some of it at once: None is a success."""
        held = self._claim(session, most)
        ended = list(zip(held, causes, strict=False))
        batch = [(one, self._decide(one, cause)) for one, cause in ended if cause is not None]
        if batch:
            self._end(batch)
        for one, cause in ended:
            if cause is None:
                self._succeed([one], None)

    @rule(session=which, most=st.integers(1, 6))
    def claim(self, session: int, most: int) -> None:
        """And runs it for a while."""
        self._claim(session, most)

    @precondition(lambda self: self.jobs)
    @rule(chosen=which, only_running=st.booleans())
    def cancel(self, chosen: int, only_running: bool) -> None:
        """By its number, wherever it stands; the answer says what has become of it."""
        among = list(self._running() if only_running and self._running() else self.jobs)
        job_id = among[chosen % len(among)]
        job = self.jobs[job_id]
        ((answer,),) = self.admin.execute("SELECT cancel(%s)", (job_id,)).fetchall()
        match job.state:
            case "running":
                assert answer == "cancel_requested"
                job.cancel = True
            case "dead" | "discarded":
                assert answer == "already_dead"
            case "succeeded":
                assert answer == "already_succeeded"
            case "cancelled":
                assert answer == "cancelled"
            case _:
                assert answer == "cancelled"
                job.state = "cancelled"
                self._key_is_over(job_id)
                self._let_down([job_id])

    # Settle -------------------------------------------------------------------------------------

    @precondition(lambda self: self._running())
    @rule(chosen=which, many=st.integers(1, 3), result=st.booleans())
    def succeed(self, chosen: int, many: int, result: bool) -> None:
        first = self._pick_running(chosen)[1].holder
        assert first is not None
        held = [
            job.holder
            for job in self._running().values()
            if job.holder is not None and job.holder.session_id == first.session_id
        ][:many]
        assert self._settle_succeeded(held, "1" if result else None) == {one.job_id for one in held}
        for one in held:
            self._ended(one, "succeeded", "succeeded", spent=1)
        self._let_go([one.job_id for one in held])

    @precondition(lambda self: self._running())
    @rule(chosen=which, causes=st.lists(a_cause, min_size=1, max_size=3))
    def end(self, chosen: int, causes: list[Cause]) -> None:
        """A batch of endings, of whatever sessions."""
        running = list(self._running())
        start = chosen % len(running)
        batch = []
        for job_id, cause in zip(running[start:], causes, strict=False):
            holder = self.jobs[job_id].holder
            assert holder is not None
            batch.append((holder, self._decide(holder, cause)))
        self._end(batch)

    @precondition(lambda self: self._over())
    @rule(chosen=which, cause=a_success_or_cause)
    def settle_what_is_over(self, chosen: int, cause: Cause | None) -> None:
        """A duplicate, or a stale token: nothing changes, and its fate is known."""
        over = self._over()
        one = over[chosen % len(over)]
        if cause is None:
            assert self._settle_succeeded([one], None) == set(), "a stale claim was settled"
        else:
            assert self._settle_ended([self._decide(one, cause)]) == {}
        assert self._fate(one) == (False, *self.fates[one.token])

    @precondition(lambda self: self._running())
    @rule(chosen=which, cause=a_success_or_cause, table=st.sampled_from(["claim", "job"]))
    def settle_what_is_locked(self, chosen: int, cause: Cause | None, table: str) -> None:
        """Somebody holds the row: it is skipped, and said to be locked."""
        job_id, job = self._pick_running(chosen)
        assert job.holder is not None
        column = "job_id" if table == "claim" else "id"
        with self.locker.transaction(force_rollback=True):
            lock = f"SELECT FROM {table} WHERE {column} = %s FOR UPDATE"
            self.locker.execute(lock.encode(), (job_id,))
            if cause is None:
                assert self._settle_succeeded([job.holder], None) == set()
            else:
                assert self._settle_ended([self._decide(job.holder, cause)]) == {}
            assert self._fate(job.holder) == (True, None, None)

    # Time, and hosts that go --------------------------------------------------------------------

    @precondition(lambda self: self._scheduled())
    @rule(chosen=which, many=st.integers(1, 3))
    def promote(self, chosen: int, many: int) -> None:
        """The time of some has come, in this order."""
        waiting = self._scheduled()
        start = chosen % len(waiting)
        for number, job_id in enumerate(waiting[start : start + many]):
            self.admin.execute(
                "UPDATE scheduled SET run_at = '2020-01-01Z'::timestamptz"
                " + make_interval(secs => %s) WHERE job_id = %s",
                (number, job_id),
            )
        ((moved, _, _),) = self._run("promote", most=100, within=None)
        assert moved == len(waiting[start : start + many])
        for job_id in waiting[start : start + many]:
            self._queue(self.jobs[job_id], "")

    @rule(chosen=which, how=st.sampled_from(["renews", "runs out", "ends"]))
    def a_lease(self, chosen: int, how: str) -> None:
        """Goes on; is over; or its session's row goes, with whatever it still claims."""
        session = list(self.sessions)[chosen % len(self.sessions)]
        match how:
            case "renews":
                rows = self._run(
                    "renew_session", session=session, lease=600.0, draining=False, busy=0,
                    ready=4, leader=False, types=[],
                )  # fmt: skip
                assert bool(rows) == self.sessions[session]
            case "runs out":
                past = "UPDATE session SET expires_at = now() - interval '1 s' WHERE id = %s"
                self.admin.execute(past, (session,))
                expired = [row[0] for row in self._run("expire_sessions", grace=0.0)]
                assert expired == ([session] if self.sessions[session] else [])
                self.sessions[session] = False
            case "ends":
                self._run("end_session", session=session)
                del self.sessions[session]
        if not any(self.sessions.values()):
            self._new_session()

    @precondition(lambda self: self._running())
    @rule(overdue=st.none() | which)
    def reclaim(self, overdue: int | None) -> None:
        """All that nobody runs any more; perhaps one of them by its deadline alone."""
        late: int | None = None
        if overdue is not None:
            late, _ = self._pick_running(overdue)
            self.admin.execute(
                "UPDATE claim SET deadline_at = now() - interval '1 s' WHERE job_id = %s", (late,)
            )
        expected = {
            job_id
            for job_id, job in self._running().items()
            if job.holder is not None
            and (job_id == late or not self.sessions.get(job.holder.session_id, False))
        }
        rows = self._run("lost_claims", most=100)
        assert {row[3] for row in rows} == expected
        batch = []
        for row in rows:
            holder = self.jobs[row[3]].holder
            assert holder is not None
            assert (row[0], row[4]) == (holder.session_id, holder.token)
            assert row[9:11] == (holder.attempt, holder.crashes)
            batch.append((holder, self._decide(holder, Lost("lease expired"))))
        if batch:
            self._end(batch)

    @precondition(lambda self: self._running())
    @rule(chosen=which)
    def a_host_forgets_what_it_claimed(self, chosen: int) -> None:
        """The answer of its claim was lost: it asks, and hands back what it does not know."""
        session = list(self.sessions)[chosen % len(self.sessions)]
        rows = self._run("session_claims", session=session)
        holders = [
            job.holder
            for job in self._running().values()
            if job.holder is not None and job.holder.session_id == session
        ]
        assert set(rows) == {(one.job_id, one.token) for one in holders}
        if holders:
            endings = [
                (one, Ending(one.job_id, session, one.token, "front"))
                for one in sorted(holders, key=lambda one: one.token)
            ]
            self._end(endings)

    # Operators ----------------------------------------------------------------------------------

    @precondition(lambda self: any(job.state == "dead" for job in self.jobs.values()))
    @rule(chosen=which, twice=st.booleans())
    def replay(self, chosen: int, twice: bool) -> None:
        """Its budgets are new, its attempts are kept; a second one finds nothing."""
        dead = [job_id for job_id, job in self.jobs.items() if job.state == "dead"]
        job_id = dead[chosen % len(dead)]
        order: dict[str, Any] = {"ids": [job_id], "actor": "me", "reason": None, "filter": "{}"}
        order |= {"args": None, "set": "{}", "unset": []}
        assert self._run("replay_dead", **order) == [(job_id,)]
        if twice:
            assert self._run("replay_dead", **order) == []
        job = self.jobs[job_id]
        job.attempt = job.crashes = 0
        job.cancel = False
        self._queue(job, "")

    @precondition(lambda self: any(job.state == "dead" for job in self.jobs.values()))
    @rule(chosen=which, twice=st.booleans())
    def discard(self, chosen: int, twice: bool) -> None:
        """It is history, its key is free, and what was to go with it goes."""
        dead = [job_id for job_id, job in self.jobs.items() if job.state == "dead"]
        job_id = dead[chosen % len(dead)]
        order = {"ids": [job_id], "actor": "me", "reason": "why", "filter": "{}"}
        assert self._run("discard_dead", **order) == [(job_id,)]
        if twice:
            assert self._run("discard_dead", **order) == []
        job = self.jobs[job_id]
        job.state = "discarded"
        if job.key is not None:
            del self.keys[job.type, job.key]
        self._let_down([job_id])

    @precondition(lambda self: self._scheduled())
    @rule(chosen=which)
    def hasten(self, chosen: int) -> None:
        waiting = self._scheduled()
        job_id = waiting[chosen % len(waiting)]
        order = {"ids": [job_id], "actor": "me", "reason": None, "filter": "{}"}
        assert self._run("hasten", **order) == [(job_id,)]
        self._queue(self.jobs[job_id], "")

    # What must hold -----------------------------------------------------------------------------

    @invariant()
    def every_job_is_in_one_place(self) -> None:
        assert violations(self.admin) == []

    @invariant()
    def the_store_is_as_the_model_says(self) -> None:
        """States, what was spent, who holds what, keys, recorded attempts."""
        rows = self.admin.execute(
            "SELECT j.id, j.state, j.attempt, j.crashes, c.session_id, c.token, n.notes"
            " FROM jobs AS j LEFT JOIN claim AS c ON c.job_id = j.id"
            " LEFT JOIN (SELECT job_id, array_agg(outcome ORDER BY outcome) AS notes"
            " FROM attempt GROUP BY job_id) AS n ON n.job_id = j.id"
        ).fetchall()
        expected = {
            (
                job_id,
                job.state,
                job.attempt + (job.state == "running"),
                job.crashes,
                job.holder and job.holder.session_id,
                job.holder and job.holder.token,
                tuple(sorted(job.notes.elements())),
            )
            for job_id, job in self.jobs.items()
        }
        assert {(*row[:6], tuple(row[6] or ())) for row in rows} == expected
        assert len(rows) == len(expected)
        keys = self.admin.execute(
            "SELECT type, key, job_id, until IS NOT NULL FROM job_key"
            " WHERE until IS NULL OR until > now()"
        )
        held = {((type_, key), (job_id, over)) for type_, key, job_id, over in keys}
        assert held == set(self.keys.items())

    # ----------------------------------------------------------------------------------------------

    def _run(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        text = self.altered.get(statement) or sql(statement)
        cursor = self.host.execute(text.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def _new_session(self) -> None:
        session = claiming.register(self.admin, next(self.session_ids), lease=600.0)
        self.sessions[session] = True

    def _enqueue(
        self, connection: Connection, type: str, key: str | None, priority: int, delayed: bool
    ) -> tuple[int, Job]:
        delay = LATER if delayed else None
        job_id = enqueue(connection, type, key=key, priority=priority, delay=delay)
        job = Job(type, key, priority, "scheduled")
        if not delayed:
            self._queue(job, "")
        return job_id, job

    def _holder(self, type: str, key: str | None) -> int | None:
        held = None if key is None else self.keys.get((type, key))
        return None if held is None else held[0]

    def _queue(self, job: Job, lane: str) -> None:
        job.state, job.lane, job.turn, job.holder = "queued", lane, next(self.turns), None

    def _running(self) -> dict[int, Job]:
        return {job_id: job for job_id, job in self.jobs.items() if job.state == "running"}

    def _pick_running(self, chosen: int) -> tuple[int, Job]:
        running = list(self._running().items())
        return running[chosen % len(running)]

    def _scheduled(self) -> list[int]:
        return [
            job_id for job_id, job in self.jobs.items() if job.state in ("scheduled", "retrying")
        ]

    def _over(self) -> list[Claimed]:
        """Claims that are nobody's any more."""
        return [one for one in self.claims if self.jobs[one.job_id].holder is not one]

    def _decide(self, one: Claimed, cause: Cause) -> Ending:
        return decide(one.job_id, one.session_id, one.token, one, POLICY, cause, 1.0)

    def _claim(self, session: int, most: int) -> list[Claimed]:
        """From all lanes, the highest and the oldest first."""
        session_id = list(self.sessions)[session % len(self.sessions)]
        queued = [job_id for job_id, job in self.jobs.items() if job.state == "queued"]
        expected = sorted(queued, key=lambda job_id: in_turn(self.jobs[job_id]))[:most]
        text = self.altered.get("claim")
        held = claiming.claim(self.host, session_id, most, text=text)
        assert {one.job_id for one in held} == set(expected)
        for one in held:
            job = self.jobs[one.job_id]
            assert (one.attempt, one.crashes) == (job.attempt, job.crashes)
            assert all(self.jobs[before].state == "succeeded" for before in job.came_after)
            job.state, job.holder = "running", one
            self.claims.append(one)
        return held

    def _succeed(self, held: list[Claimed], result: str | None) -> None:
        assert self._settle_succeeded(held, result) == {one.job_id for one in held}
        for one in held:
            self._ended(one, "succeeded", "succeeded", spent=1)
        self._let_go([one.job_id for one in held])

    def _let_go(self, succeeded: list[int]) -> None:
        for job_id in let_go(self.jobs, succeeded):
            self._let_run(self.jobs[job_id])

    def _let_run(self, job: Job) -> None:
        job.state = "scheduled"
        if not job.delayed:
            self._queue(job, "")

    def _let_down(self, lost: list[int]) -> None:
        for job_id in let_down(self.jobs, lost):
            self._key_is_over(job_id)

    def _key_is_over(self, job_id: int) -> None:
        job = self.jobs[job_id]
        if job.key is not None:
            self.keys[job.type, job.key] = (job_id, True)

    def _settle_succeeded(self, held: list[Claimed], result: str | None) -> set[int]:
        rows = self._run(
            "settle_succeeded",
            jobs=[one.job_id for one in held],
            tokens=[one.token for one in held],
            results=[result] * len(held),
            steps=[None] * len(held),
            most_bytes=None,
            session=held[0].session_id,
            progress="{}",
        )
        return {row[0] for row in rows}

    def _settle_ended(self, endings: list[Ending]) -> dict[int, str]:
        rows = self._run(
            "settle_ended",
            jobs=[one.job_id for one in endings],
            endings=json.dumps([one.to_dict() for one in endings]),
        )
        return {row[0]: row[2] for row in rows}

    def _fate(self, one: Claimed) -> tuple[Any, ...]:
        ((_, _, *fate),) = self._run(
            "settle_missing", jobs=[one.job_id], sessions=[one.session_id], tokens=[one.token]
        )
        return tuple(fate)

    def _end(self, batch: list[tuple[Claimed, Ending]]) -> None:
        goes = {}
        for one, ending in batch:
            cancelled = self.jobs[one.job_id].cancel and ending.place != "dead"
            goes[one.job_id] = "cancelled" if cancelled else ending.place
        assert self._settle_ended([ending for _, ending in batch]) == goes
        for one, ending in sorted(batch, key=lambda pair: pair[0].token):
            self._ended(one, goes[one.job_id], ending.outcome, ending.spent, ending.crashed)
        self._let_down([job_id for job_id, place in goes.items() if place in ("dead", "cancelled")])

    def _ended(
        self, one: Claimed, place: str, outcome: str | None, spent: int = 0, crashed: int = 0
    ) -> None:
        job = self.jobs[one.job_id]
        job.attempt += spent
        job.crashes += crashed
        job.holder = None
        noted = None if outcome == "succeeded" else outcome
        final = place if place in ("succeeded", "cancelled") else None
        self.fates[one.token] = (noted, final)
        if noted is not None:
            job.notes[noted] += 1
        match place:
            case "front":
                self._queue(job, FRONT)
            case "lane":
                self._queue(job, f"type:{job.type}@1")
            case "succeeded" | "cancelled":
                job.state = place
                if job.key is not None:
                    self.keys[job.type, job.key] = (one.job_id, True)
            case _:
                job.state = STANDS[place]
