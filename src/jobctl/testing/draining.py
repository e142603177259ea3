"""Working off queues in the test's own process, out of a real PostgreSQL.

Claims, verdicts and ends are those of a supervisor: its statements, its table of outcomes, under a
session of its own. So keys, retries, dead letters, next steps, limits and fences are what they are
in production; what a supervisor adds around a process - deadlines, ceilings, slots - is not there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from jobctl.store.dsn import conninfo
from jobctl.store.json_values import max_args_bytes
from jobctl.store.schema_check import check
from jobctl.store.schema_name import schema_from_environment
from jobctl.store.statements import sql
from jobctl.supervisor.attempts import cause_of
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.lanes import PRIORITIES
from jobctl.supervisor.outcomes import (
    UNREGISTERED,
    Cause,
    Crashed,
    Ending,
    Unrunnable,
    decide,
)
from jobctl.testing.crashing import dies
from jobctl.testing.inline import Ran, Seen, attempts_of, ran_of, recorded
from jobctl.workerproc import frames, progress
from jobctl.workerproc.access import Access
from jobctl.workerproc.frames import Job as Given
from jobctl.workerproc.frames import Kind
from jobctl.workerproc.job import Job
from jobctl.workerproc.registry import registry

#: A test that has not ended by then hangs.
LEASE_SECONDS: Final = 3600.0
_BACKSTOP_SECONDS: Final = 3600.0

#: What the view calls the places that an ending can lead to.
_PLACES = {"retry": "retrying", "snooze": "scheduled", "front": "queued", "lane": "queued"}

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True)
class Drained:
    """One attempt that was made: which job, what came of it, and where the job stands since.

    `state` is that of the view: succeeded, retrying, scheduled (a snooze), dead, cancelled, queued
    (again, for its hook or for code that knows it).
    """

    job_id: int
    type: str
    attempt: int
    state: str
    ran: Ran


def drain(
    dsn: str,
    *,
    queue: str | None = None,
    skip_waits: bool = False,
    crash_after: int | None = None,
    most: int = 1_000,
) -> list[Drained]:
    """Runs what is due, one job after the other, until nothing is; returns what came of each.

    Jobs are those of this process's declarations, committed into the database of `dsn` and the
    schema of JOBCTL_SCHEMA. `queue`: of this queue alone. `skip_waits`: what waits for its time, a
    retry or a snooze too, is due. `crash_after`: the first attempt is made in a process that dies
    after so many lines of its handler. Raises AssertionError after `most` attempts: something
    enqueues itself for ever.
    """
    access = Access(dsn, schema_from_environment(), "jobctl testing")
    with closing(_connect(dsn)) as connection, _session(connection) as session:
        return _Drain(connection, session, queue, skip_waits, crash_after, access).run(most)


class _Drain:
    """One call of `drain`."""

    def __init__(
        self,
        connection: Connection,
        session: int,
        queue: str | None,
        skip_waits: bool,
        crash_after: int | None,
        access: Access,
    ) -> None:
        self._connection = connection
        self._session = session
        self._queue = queue
        self._skip_waits = skip_waits
        self._crash_after = crash_after
        self._token = 0
        self._access = access
        self._progress: dict[str, Any] | None = None  # what the attempt said last

    def run(self, most: int) -> list[Drained]:
        done: list[Drained] = []
        while claimed := self._next():
            if len(done) == most:
                self._settle(claimed, Ending(claimed.job_id, self._session, claimed.token, "front"))
                raise AssertionError(
                    f"{most} attempts were made and there are more: does a job enqueue itself for "
                    "ever, or snooze with skip_waits?"
                )
            done.append(self._attempt(claimed))
        return done

    def _next(self) -> Claimed | None:
        if self._skip_waits:
            self._run("testing_skip_waits")
        self._run("promote", most=1_000, within=None)
        self._run("admit")
        lanes = self._lanes()
        self._token += 1
        rows = self._run(
            "claim",
            queues=[queue for queue, _, _ in lanes],
            priorities=[priority for _, priority, _ in lanes],
            lanes=[lane for _, _, lane in lanes],
            marks=[0] * len(lanes),
            limits=[1] * len(lanes),
            most=1,
            session=self._session,
            first_token=self._token,
            backstop=_BACKSTOP_SECONDS,
        )
        return Claimed.from_row(self._session, monotonic_ns(), rows[0]) if rows else None

    def _lanes(self) -> list[tuple[str, int, str]]:
        """Those that this code can serve, in the order of a dispatcher."""
        found = self._run("read_lanes")
        queues = sorted({row[0] for row in found if self._queue in (None, row[0])})
        of_types = [
            (row[0], row[1], row[2])
            for row in found
            if row[2] is not None and row[0] in queues and _knows(row[2])
        ]
        own = [(queue, n, name) for n in PRIORITIES for queue in queues for name in ("front", "")]
        return [*own, *of_types]

    def _attempt(self, claimed: Claimed) -> Drained:
        job = registry.get(claimed.type)
        if job is None:
            ran = Ran("unrunnable", message=f"this code has no job type {claimed.type!r}")
            return self._end(claimed, job, Unrunnable(), ran)
        if job.job_type.ack == "early":
            self._run(
                "mark_early", session=self._session, jobs=[claimed.job_id], tokens=[claimed.token]
            )
        if self._crash_after is not None:
            lines, self._crash_after = self._crash_after, None
            line = dies(lambda: self._work(claimed, job), job.handler.__code__, lines)
            if line is not None:
                why = f"the process died after line {line}"
                ran = Ran("crashed", error_class="crash", message=why)
                return self._end(claimed, job, Crashed(why), ran)
        answer, ran = self._work(claimed, job)
        if frames.kind_of(answer) is Kind.DONE:
            return self._succeed(claimed, None, None, ran)
        body = frames.unpack(answer)
        if body["outcome"] == "succeeded":
            return self._succeed(claimed, body.get("result"), body.get("steps"), ran)
        return self._end(claimed, job, cause_of(body), ran)

    def _work(self, claimed: Claimed, job: Job[..., Any]) -> tuple[bytes, Ran]:
        seen = Seen()
        most = claimed.max_attempts or job.job_type.max_attempts
        given = Given(
            claimed.job_id, self._session, claimed.token, claimed.attempt + 1, most,
            claimed.schema_version, claimed.timeout_seconds or job.job_type.timeout_seconds, 0.0,
            claimed.type, claimed.queue, claimed.key, claimed.subject, claimed.args.encode(),
            claimed.compensating,
        )  # fmt: skip
        with attempts_of([recorded(job, seen)], self._access) as (attempts, page):
            answer = attempts.run(given)
            said = page.progress()
            words = None if said is None else progress.read(said.body)
            self._progress = None if words is None else {**words, "ago": 0.0}
        return answer, ran_of(answer, seen)

    def _succeed(
        self, claimed: Claimed, result: str | None, steps: str | None, ran: Ran
    ) -> Drained:
        rows = self._run(
            "settle_succeeded",
            jobs=[claimed.job_id],
            tokens=[claimed.token],
            results=[result],
            steps=[steps],
            most_bytes=max_args_bytes(),
            progress=json.dumps({str(claimed.token): self._progress} if self._progress else {}),
            session=self._session,
        )
        if not rows and self._fate(claimed) != "succeeded":  # by ctx.transaction() perhaps
            raise AssertionError(_lost(claimed))
        return Drained(claimed.job_id, claimed.type, claimed.attempt + 1, "succeeded", ran)

    def _end(self, claimed: Claimed, job: Job[..., Any] | None, cause: Cause, ran: Ran) -> Drained:
        elapsed = (claimed.elapsed or 0.0) + (monotonic_ns() - claimed.claimed_ns) / 1e9
        policy = UNREGISTERED if job is None else job.job_type
        ending = decide(
            claimed.job_id, self._session, claimed.token, claimed, policy, cause, elapsed
        )
        ending.host = "testing"
        ending.said = self._progress
        state = self._settle(claimed, ending)
        return Drained(claimed.job_id, claimed.type, claimed.attempt + 1, state, ran)

    def _settle(self, claimed: Claimed, ending: Ending) -> str:
        endings = json.dumps([ending.to_dict()], allow_nan=False)
        rows = self._run("settle_ended", jobs=[claimed.job_id], endings=endings)
        if not rows:
            fate = self._fate(claimed)
            if fate is None:
                raise AssertionError(_lost(claimed))
            return fate
        return _PLACES.get(rows[0][2], str(rows[0][2]))

    def _fate(self, claimed: Claimed) -> str | None:
        """The state that this claim has brought its job to without us."""
        rows = self._run(
            "settle_missing",
            jobs=[claimed.job_id],
            sessions=[self._session],
            tokens=[claimed.token],
        )
        return rows[0][4] if rows else None

    def _run(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(sql(statement), parameters)
        return cursor.fetchall() if cursor.description else []


def _lost(claimed: Claimed) -> str:
    return (
        f"{claimed.type} #{claimed.job_id}: its claim was no longer ours when it ended; does "
        "somebody else work off this database?"
    )


def _connect(dsn: str) -> Connection:
    schema = schema_from_environment()
    where = conninfo(dsn, schema=schema, application_name="jobctl testing")
    connection = psycopg.connect(where, autocommit=True, row_factory=tuple_row)
    try:
        check(connection, schema)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _session(connection: Connection) -> Iterator[int]:
    """A session like a supervisor's, for as long as it takes; its code counts as the newest."""
    session = random.getrandbits(62) + 1
    types = [kind.to_dict() for kind in registry.types()]
    connection.execute(
        sql("register_session"),
        {
            "session": session, "host": "testing", "machine_id": None, "boot_id": None,
            "pid_namespace": None, "pid": 0, "pid_start": None, "version": "testing", "slots": 1,
            "queues": None, "types": [kind["name"] for kind in types], "lease": LEASE_SECONDS,
        },
    )  # fmt: skip
    try:
        connection.execute(sql("register_types"), {"types": json.dumps(types)})
        yield session
    finally:
        if not connection.closed:
            connection.execute(sql("end_session"), {"session": session})


def _knows(lane: str) -> bool:
    """Whether a lane of a type, `type:NAME@VERSION`, holds what this code can run."""
    name, _, version = lane.removeprefix("type:").rpartition("@")
    job = registry.get(name)
    return job is not None and version.isdigit() and int(version) <= job.job_type.schema_version
