"""What people want to know about jobs and hosts, answered at a bounded price.

Synchronous, for the command line. Nothing here changes anything (that is `operating.py`), nothing
counts beyond `LARGEST_COUNT`, every statement has a time limit, and the plans are the ones that the
headers in `store/sql` promise: a question asked in the middle of an incident must not add to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Self

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads

from jobctl.store.dsn import conninfo
from jobctl.store.link_template import link_of
from jobctl.store.schema_check import check
from jobctl.store.statements import sql
from jobctl.store.states import State

#: No count goes beyond this; a count that is larger is only known to be.
LARGEST_COUNT = 100_000
#: No drawing of what comes after what goes further.
MOST_DRAWN = 100

#: The error group of what died without one: by an older version, or for another reason.
UNGROUPED = "none"

Row = dict[str, Any]
Connection = psycopg.Connection[Row]

_SESSION_SETTINGS = {
    "statement_timeout": "15s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
    "TimeZone": "UTC",
    # The plans that the statements' headers promise, whatever the statistics say: indexes read in
    # the wanted order until there is enough. jit off: the penalty on a disabled plan type would
    # have PostgreSQL compile a one-page read.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}


@dataclass(frozen=True)
class JobFilter:
    """Which jobs are meant. None: whatever it is.

    `since` and `until` are when they were created; for dead jobs, when they died. `error` is text
    somewhere in the error, or its class or code, with `*` for anything. `parent`: a job that they
    come after.
    """

    queue: str | None = None
    type: str | None = None
    state: str | None = None
    subject: str | None = None
    key: str | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    error_group: str | None = None  # of dead jobs only; UNGROUPED: those that have none
    owner: str | None = None  # of their type; of dead jobs only
    parent: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it means every job."""
        return self == JobFilter()

    def words(self) -> dict[str, str]:
        """What was asked for, for the audit log."""
        return {
            name: value.isoformat() if isinstance(value, datetime) else str(value)
            for name, value in asdict(self).items()
            if value is not None
        }

    def parameters(self) -> dict[str, Any]:
        """For the `read_ids` statements."""
        return {
            **asdict(self),
            "error": None if self.error is None else _pattern(self.error),
            "ungrouped": self.error_group == UNGROUPED,
        }


@dataclass(frozen=True)
class Count:
    """So many, or `capped`: at least so many."""

    jobs: int
    capped: bool = False

    def __str__(self) -> str:
        return f"{self.jobs}+" if self.capped else str(self.jobs)

    @classmethod
    def of(cls, jobs: int) -> Self:
        """Of a count that stopped one beyond the largest."""
        return cls(min(jobs, LARGEST_COUNT), jobs > LARGEST_COUNT)


@dataclass(frozen=True)
class QueueStatus:
    """One queue: how many jobs in each open state, and how long the oldest due one has waited."""

    queue: str
    counts: dict[str, Count]
    age_seconds: float | None


def connect(dsn: str, schema: str, *, application_name: str = "jobctl") -> Connection:
    """A connection for questions, and for what `operating.py` does.

    Raises psycopg.OperationalError when the database cannot be reached, SchemaError when it does
    not hold the schema that this code needs.
    """
    where = conninfo(dsn, schema=schema, application_name=application_name)
    connection = psycopg.connect(
        where, autocommit=True, prepare_threshold=None, row_factory=dict_row
    )
    try:
        for name, value in _SESSION_SETTINGS.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        set_json_loads(_loads, connection)
        check(connection, schema)
    except BaseException:
        connection.close()
        raise
    return connection


def clock(connection: Connection) -> datetime:
    """What the database's clock says: the only one that decides anything."""
    (row,) = _run(connection, "read_clock")
    moment: datetime = row["now"]
    return moment


def ago(connection: Connection, seconds: float) -> datetime:
    """The moment so long before now, by the database's clock."""
    return clock(connection) - timedelta(seconds=seconds)


def job(connection: Connection, job_id: int) -> Row | None:
    """One job as the contract's view shows it, with its `attempts` and its `graph`; None if there
    is none."""
    with one_moment(connection):
        found = jobs(connection, [job_id])
        if not found:
            return None
        attempts = _run(connection, "read_attempts", id=job_id)
        return {**found[0], "attempts": attempts, "graph": graph(connection, job_id)}


def graph(connection: Connection, job_id: int) -> list[Row]:
    """A job with all that it comes after and all that comes after it, each with its state and, in
    `after`, what of these it comes after; at most MOST_DRAWN each way. Empty if it stands alone."""
    return _run(connection, "read_graph", id=job_id, most=MOST_DRAWN)


def jobs(connection: Connection, ids: Sequence[int]) -> list[Row]:
    """These jobs, in this order, as far as they exist. `link` is the URL that their type makes."""
    rows = {
        row["id"]: {**row, "link": link_of(row["link"], row)}
        for row in _run(connection, "read_jobs", ids=list(ids))
    }
    return [rows[job_id] for job_id in ids if job_id in rows]


def find(
    connection: Connection, wanted: JobFilter, most: int, *, after: int | None = None
) -> list[Row]:
    """Jobs that match, newest first (dead ones: those that died last first), at most `most`.

    `after` continues behind a job of the page before; not for dead ones, whose pages `until` turns.
    """
    with one_moment(connection):
        return jobs(connection, ids(connection, wanted, most, after=after))


def ids(
    connection: Connection, wanted: JobFilter, most: int, *, after: int | None = None
) -> list[int]:
    """The ids of jobs that match; see `find`."""
    asked = {**wanted.parameters(), "after": after, "most": most}
    if wanted.error_group is not None or wanted.owner is not None:
        grouped = wanted.error_group not in (None, UNGROUPED)
        statement = "read_dead_ids_by_group" if grouped else "read_dead_ids"
        return [row["job_id"] for row in _run(connection, statement, **asked)]
    if wanted.parent is not None:
        statement = "read_ids_by_parent"
    elif wanted.subject is not None:
        statement = "read_ids_by_subject"
    elif wanted.key is not None:
        statement = "read_ids_by_key"
    elif wanted.state == State.DEAD:
        return [row["job_id"] for row in _run(connection, "read_dead_ids", **asked)]
    else:
        statement = "read_ids"
    return [row["id"] for row in _run(connection, statement, **asked)]


def queues(connection: Connection) -> list[QueueStatus]:
    """Every queue that has ever had a job."""
    found: dict[str, QueueStatus] = {}
    totals: dict[str, int] = {}
    rows = _run(connection, "gauges", most=LARGEST_COUNT + 1)
    for row in rows:
        place = _PLACE[row["state"]]
        totals[place] = totals.get(place, 0) + row["jobs"]
    for row in rows:
        status = found.setdefault(row["queue"], QueueStatus(row["queue"], {}, None))
        count = Count.of(row["jobs"])
        if row["state"] != State.QUEUED and totals[_PLACE[row["state"]]] > LARGEST_COUNT:
            # All queues were counted together, up to the bound: there are more, somewhere.
            count = Count(min(row["jobs"], LARGEST_COUNT), capped=True)
        status.counts[row["state"]] = count
        if row["age"] is not None:
            found[row["queue"]] = QueueStatus(row["queue"], status.counts, max(0.0, row["age"]))
    return [found[name] for name in sorted(found)]


def stuck(connection: Connection, most: int = 100) -> list[Row]:
    """Running jobs that nobody looks after any more."""
    return _run(connection, "read_stuck", most=most)


def progress(connection: Connection, most: int = 100) -> list[Row]:
    """Running jobs that have said how far they are, those that have run longest first."""
    return _run(connection, "read_progress", most=most)


def unrunnable(connection: Connection) -> list[Row]:
    """Types that no live supervisor can run, with how many jobs wait for one."""
    return _run(connection, "read_unrunnable", most=LARGEST_COUNT)


def hosts(connection: Connection) -> list[Row]:
    """Supervisors that are there, or were lately."""
    return _run(connection, "read_hosts")


def oldest_transaction(connection: Connection) -> float:
    """For how many seconds the oldest transaction of this database has been open."""
    (row,) = _run(connection, "oldest_transaction")
    seconds: float = row["age"]
    return seconds


def ceilings(connection: Connection) -> Row:
    """The `largest` ceiling of memory in bytes that a `type` declares, if any, and how many types
    are `without` one."""
    (row,) = _run(connection, "read_ceilings")
    return row


def names(connection: Connection) -> list[Row]:
    """The `name`s of queues, types, hosts and crons, each with its `kind`."""
    return _run(connection, "read_names")


def flow(connection: Connection) -> Row:
    """How many were `enqueued`, `finished` and `died`, and how many attempts `unsuccessful`, up to
    `at`: the difference of two is a speed."""
    (row,) = _run(connection, "read_flow")
    return row


def longest(connection: Connection, most: int) -> list[Row]:
    """What has been running for longest."""
    return _run(connection, "read_longest", most=most)


def crons(connection: Connection, name: str | None = None) -> list[Row]:
    """Every cron, or the one of this name, with how it stands and its last firing."""
    return _run(connection, "read_crons", name=name)


@contextmanager
def one_moment(connection: Connection) -> Iterator[None]:
    """Within it all statements see the same state: a job cannot move on between two of them."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def _run(connection: Connection, statement: str, **parameters: Any) -> list[Row]:
    return connection.execute(sql(statement), parameters).fetchall()


#: Which states are counted together.
_PLACE = {
    State.QUEUED.value: "ready",
    State.SCHEDULED.value: "scheduled",
    State.RETRYING.value: "scheduled",
    State.RUNNING.value: "claim",
    State.BLOCKED.value: "blocked",
    State.DEAD.value: "dead",
}


def _pattern(text: str) -> str:
    """For ILIKE: `*` is anything; without one, the text may stand anywhere."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%") if "*" in escaped else f"%{escaped}%"


def _loads(text: str | bytes) -> Any:
    """JSON of anybody's making: what is too deep for Python is shown as the text that it is."""
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return text if isinstance(text, str) else text.decode(errors="replace")
