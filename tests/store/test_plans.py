"""The hot statements: each reads by its index, and costs the same after fifty thousand dead rows.

The cliff of job queues on PostgreSQL: while any session holds an old snapshot, nothing that was
deleted can be cleaned away, and a statement that walks over it grows slower with every job.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from jobctl.store.embedded import EmbeddedPostgres
from jobctl.store.link import DISPATCH_SETTINGS
from jobctl.store.migrate import migrate
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.lanes import PRIORITIES
from jobctl.supervisor.outcomes import UNREGISTERED, Cause, Failed, HandedBack, decide
from tests.claiming import Connection, connect, register, run
from tests.databases import SCHEMA, empty_database
from tests.store.measuring import Pages, Scan, plan

SESSION = 7
BATCH = 100
DEAD_ROWS = 50_000
GROWTH = 1.3
LANES = [("default", priority, name) for priority in PRIORITIES for name in ("front", "")]
OF_LANES = {
    "queues": [queue for queue, _, _ in LANES],
    "priorities": [priority for _, priority, _ in LANES],
    "lanes": [name for _, _, name in LANES],
}
ARRAY = [1] * BATCH

CLAIM, JOB = Scan("claim", "claim_pkey"), Scan("job", "job_pkey")
READY, READY_BY_JOB = Scan("ready", "ready_claim"), Scan("ready", "ready_job")
ATTEMPT = Scan("attempt", "attempt_by_job")
HISTORY = Scan("history", "history_id_idx")
DUE, DUE_BY_JOB = Scan("scheduled", "scheduled_due"), Scan("scheduled", "scheduled_job")
KEY = Scan("job_key", "job_key_pkey")
TYPE = Scan("job_type", "job_type_pkey")
KEY_ROW = Scan("job_key", "ctid")
PLACE = Scan("place", "place_pkey")
CHILDREN, PARENTS = Scan("job_edge", "job_edge_by_parent"), Scan("job_edge", "job_edge_by_child")
PLACES = {
    JOB, CLAIM, READY_BY_JOB, DUE_BY_JOB, Scan("blocked", "blocked_pkey"),
    Scan("dead", "dead_pkey"), Scan("session", "session_pkey"), Scan("job_type", "job_type_pkey"),
}  # fmt: skip

#: statement: parameters, and every way in which it may read a table
PLANS: dict[str, tuple[dict[str, Any], set[Scan]]] = {
    "claim": (
        {
            **OF_LANES,
            "marks": [0] * len(LANES),
            "limits": [BATCH] * len(LANES),
            "most": BATCH,
            "session": SESSION,
            "first_token": 1,
            "backstop": 60.0,
            "most_bytes": 2**20,
        },
        {READY, READY_BY_JOB, JOB},
    ),
    "settle_succeeded": (
        {"jobs": ARRAY, "tokens": ARRAY, "results": ["1"] * BATCH, "steps": [None] * BATCH,
         "most_bytes": 65536, "session": SESSION, "progress": "{}"},
        {CLAIM, JOB, KEY, KEY_ROW, PLACE, CHILDREN},
    ),
    "settle_ended": (
        {"jobs": ARRAY, "endings": "[]"},
        # The last two of what somebody has asked to cancel, and of nothing else.
        {CLAIM, JOB, KEY, KEY_ROW, PLACE, ATTEMPT, CHILDREN, Scan("job_type", "job_type_pkey")},
    ),
    "mark_early": ({"session": SESSION, "jobs": ARRAY, "tokens": ARRAY}, {CLAIM}),
    "settle_missing": (
        {"jobs": ARRAY, "sessions": ARRAY, "tokens": ARRAY},
        {CLAIM, JOB, HISTORY, ATTEMPT},
    ),
    "promote": ({"most": BATCH, "within": 10.0}, {DUE, DUE_BY_JOB, JOB, PLACE}),
    "look_below": (
        {**OF_LANES, "after": [0] * len(LANES), "upto": [1] * len(LANES)},
        {READY},
    ),
    "annotate_claims": (
        {
            "session": SESSION, "jobs": [1], "tokens": [1], "slots": [1], "pids": [1],
            "started_ago": [1.0], "remains": [1.0],
        },
        {CLAIM},
    ),
    "note_progress": (
        {"session": SESSION, "jobs": [1], "tokens": [1], "said": ['{"phase": "x"}']}, {CLAIM, JOB},
    ),
    # One row a host: all of them are read for whether somebody leads.
    "renew_session": (
        {
            "session": SESSION, "lease": 60.0, "draining": False, "busy": 1, "ready": 4,
            "leader": False, "types": ["t"],
        },
        {Scan("session", "session_pkey"), Scan("session", None, bounded=False)},
    ),
}  # fmt: skip

DEAD_FILTERS = ("subject", "key", "owner", "queue", "type", "error", "since", "until")

#: Asked by people, over connections that do not live long: planned for the tables as they are.
ASKED: dict[str, tuple[dict[str, Any], set[Scan]]] = {
    # What runs now, and nothing else.
    "read_progress": ({"most": 10}, {JOB, Scan("claim", None, bounded=False)}),
    # Both of these are empty here: whichever index costs nothing then.
    "read_jobs": (
        {"ids": [1]},
        PLACES
        | {
            HISTORY,
            PARENTS,
            Scan("blocked", "blocked_pkey", bounded=False),
            Scan("job_edge", "job_edge_by_parent", bounded=False),
        },
    ),
    "hasten": (
        {"ids": [1], "actor": "me", "reason": None, "filter": "{}"},
        {DUE, DUE_BY_JOB, JOB},
    ),
    "read_failures": (
        {"ids": [1]},
        {JOB, Scan("attempt", "attempt_pkey"), Scan("attempt", "attempt_by_job")},
    ),
    "read_dead_ids_by_group": (
        {
            **dict.fromkeys(DEAD_FILTERS),
            "error_group": "x",
            "most": 10,
        },
        {Scan("dead", "dead_by_group"), JOB, TYPE},
    ),
    "read_error_groups": (
        {
            **dict.fromkeys(DEAD_FILTERS),
            "most": 10,
            "groups": 10,
            "samples": 5,
        },
        {Scan("dead", "dead_since", bounded=False), JOB, TYPE},
    ),
    "count_dead": (
        {"since": None, "until": None, "most": 10},
        {Scan("dead", "dead_since", bounded=False)},
    ),
}

#: What a cancel does, by id, wherever the job stands.
LOOK_UPS = {
    "ready": READY_BY_JOB,
    "scheduled": DUE_BY_JOB,
    "claim": CLAIM,
    "blocked": Scan("blocked", "blocked_pkey"),
    "dead": Scan("dead", "dead_pkey"),
}


@dataclass
class Host:
    """A dispatcher's connection, kept for long, and its marks."""

    connection: Connection
    marks: list[int] = field(default_factory=lambda: [0] * len(LANES))
    next_token: int = 1

    def claim(self, most: int = BATCH) -> list[Claimed]:
        rows = run(
            self.connection,
            "claim",
            **OF_LANES,
            marks=self.marks,
            limits=[most] * len(LANES),
            most=most,
            session=SESSION,
            first_token=self.next_token,
            backstop=60.0,
            most_bytes=2**20,
        )
        self.next_token += most
        held = [Claimed.from_row(SESSION, 0, row) for row in rows]
        for one in held:
            at = LANES.index((one.queue, one.priority, one.lane))
            self.marks[at] = max(self.marks[at], one.seq)
        return held

    def succeed(self, held: list[Claimed]) -> int:
        return len(
            run(
                self.connection,
                "settle_succeeded",
                jobs=[one.job_id for one in held],
                tokens=[one.token for one in held],
                session=SESSION,
                results=[None] * len(held),
                steps=[None] * len(held),
                most_bytes=None,
                progress="{}",
            )
        )

    def end(self, held: list[Claimed], cause: Cause) -> int:
        endings = [
            decide(one.job_id, SESSION, one.token, one, UNREGISTERED, cause, 1.0).to_dict()
            for one in held
        ]
        jobs = [one.job_id for one in held]
        return len(run(self.connection, "settle_ended", jobs=jobs, endings=json.dumps(endings)))

    def ask(self, held: list[Claimed]) -> int:
        return len(
            run(
                self.connection,
                "settle_missing",
                jobs=[one.job_id for one in held],
                sessions=[SESSION] * len(held),
                tokens=[one.token for one in held],
            )
        )

    def promote(self, within: float | None = 10.0) -> int:
        return int(run(self.connection, "promote", most=1000, within=within)[0][0])

    def look_below(self) -> int:
        after = [max(0, mark - 2 * BATCH) for mark in self.marks]
        return len(run(self.connection, "look_below", **OF_LANES, after=after, upto=self.marks))

    def renew(self) -> int:
        return len(run(self.connection, "renew_session", **PLANS["renew_session"][0]))


@pytest.fixture(scope="module")
def own_database(postgres: EmbeddedPostgres) -> Iterator[str]:
    """Migrated, analysed while it is empty, and cleaned by nobody."""
    with empty_database(postgres) as dsn:
        migrate(dsn, schema=SCHEMA)
        with connect(dsn, {}) as connection:
            for table in ("ready", "scheduled", "claim", "job", "session", "attempt", "job_key"):
                connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
            connection.execute("ANALYZE")
            register(connection, SESSION)
        yield dsn


def enqueue(connection: Connection, many: int, delay: float = 0.0) -> None:
    connection.execute(
        "SELECT count(*) FROM enqueue_many((SELECT jsonb_agg(jsonb_build_object("
        "'type', 't', 'delay_seconds', %s::float)) FROM generate_series(1, %s)))",
        (delay, many),
    )


def schedule_in_the_past(connection: Connection, many: int) -> None:
    """As after an outage: they have been due for an hour."""
    enqueue(connection, many)
    connection.execute(
        "WITH gone AS (DELETE FROM ready RETURNING job_id)"
        " INSERT INTO scheduled (run_at, job_id) SELECT now() - interval '1 hour', job_id FROM gone"
    )


def churn(host: Host, producer: Connection, many: int) -> None:
    """So many jobs live their whole life: scheduled, promoted, claimed, succeeded."""
    for _ in range(many // 1000):
        schedule_in_the_past(producer, 1000)
        host.promote(within=None)
        while held := host.claim(500):
            host.succeed(held)


def measure(host: Host, producer: Connection) -> dict[str, float]:
    """Pages that each statement touches, by job."""
    pages = Pages(host.connection, producer)
    costs: dict[str, float] = {}

    def of(name: str, step: Callable[[], int]) -> None:
        before = pages.touched()
        rows = step()
        costs[name] = (pages.touched() - before) / max(rows, 1)

    def claimed() -> int:
        held[:] = host.claim()
        return len(held)

    held: list[Claimed] = []
    enqueue(producer, 4 * BATCH)
    of("claim", claimed)
    of("succeed", lambda: host.succeed(held))
    of("ask about succeeded", lambda: host.ask(held))
    claimed()
    of("retry", lambda: host.end(held, Failed("E", "why", retry_after=3600)))
    of("ask about retried", lambda: host.ask(held))
    claimed()
    of("dead", lambda: host.end(held, Failed("E", "why", permanent=True)))
    claimed()
    of("hand back", lambda: host.end(held, HandedBack()))
    claimed()
    host.succeed(held)
    enqueue(producer, BATCH, delay=0.001)
    of("promote", host.promote)
    of("promote nothing", host.promote)
    of("look below", host.look_below)
    of("claim again", claimed)
    host.succeed(held)
    of("claim nothing", claimed)
    of("renew", host.renew)
    return costs


def assert_flat(before: dict[str, float], after: dict[str, float]) -> None:
    # An index may have grown by a level: one more page for each descent, whatever it costs else.
    grown = {
        name: (before[name], cost)
        for name, cost in after.items()
        if cost > max(before[name] * GROWTH, before[name] + len(LANES))
    }
    # What was promoted in the last seconds is walked over, and no more than that.
    lately = grown.pop("promote nothing", (0.0, 0.0))[1]
    assert lately < 5 * BATCH
    assert not grown, f"pages a job, before and after: {grown}"


def test_costs_stay_flat_under_an_old_snapshot(own_database: str) -> None:
    """Statistics say that the tables are empty, the connection is old and its plans are generic;
    then everything was deleted and nothing can be cleaned; then the statistics are those of now."""
    with connect(own_database) as connection, connect(own_database, {}) as producer:
        host = Host(connection)
        for _ in range(4):  # what was empty has pages now, and plans are made
            measure(host, producer)
        before = measure(host, producer)
        with psycopg.connect(own_database) as old:
            old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            old.execute("SELECT count(*) FROM pg_class")
            churn(host, producer, DEAD_ROWS)
            assert_flat(before, measure(host, producer))
            enqueue(producer, 20 * BATCH)
            producer.execute("ANALYZE")
            assert_flat(before, measure(host, producer))
            with connect(own_database) as new_connection:
                new = Host(new_connection, list(host.marks), host.next_token)
                measure(new, producer)
                assert_flat(before, measure(new, producer))


def test_what_is_done_to_dead_jobs_is_done_by_index(own_database: str) -> None:
    """As many pages for each among ten thousand as among few, also when nothing was analysed."""
    with connect(own_database) as connection, connect(own_database, {}) as producer:
        producer.execute("TRUNCATE job, ready, scheduled, claim, dead, attempt, job_key, history")
        host, pages = Host(connection), Pages(connection, producer)
        order = {"ids": [0], "actor": "me", "reason": "why", "filter": "{}"}
        edit: dict[str, Any] = {"args": None, "set": '{"x": 1}', "unset": []}

        def die(many: int) -> list[int]:
            enqueue(producer, many)
            held = host.claim(many)
            host.end(held, Failed("E", "why", permanent=True))
            return [one.job_id for one in held]

        def cost(statement: str, ids: list[int], **more: Any) -> float:
            before = pages.touched()
            assert len(run(producer, statement, **{**order, "ids": ids}, **more)) == len(ids)
            return (pages.touched() - before) / len(ids)

        def costs() -> tuple[float, float]:
            return cost("replay_dead", die(BATCH), **edit), cost("discard_dead", die(BATCH))

        costs()
        few = costs()
        for _ in range(20):
            die(500)
        many = costs()
        assert all(m < 2 * f + 20 for f, m in zip(few, many, strict=True)), (few, many)


@pytest.mark.parametrize("filled", [0, 20_000])
def test_every_hot_statement_reads_by_its_index(own_database: str, filled: int) -> None:
    """Whatever the statistics say: nothing is read from end to end, and no other index is used."""
    with connect(own_database, {}) as producer, connect(own_database) as connection:
        producer.execute(
            "TRUNCATE job, ready, scheduled, claim, blocked, dead, attempt, job_key, history,"
            " job_edge"
        )
        if filled:
            enqueue(producer, filled)
            enqueue(producer, filled // 10, delay=3600)
            host = Host(connection)
            host.succeed(host.claim(filled // 10))
            host.end(host.claim(filled // 20), Failed("E", "why", permanent=True))
            host.claim(filled // 20)
        producer.execute("ANALYZE")
        asked = PLANS | ASKED if filled else PLANS
        wrong = {
            statement: strange
            for statement, (parameters, allowed) in asked.items()
            if (strange := plan(connection, statement, **parameters) - allowed)
        }
        assert not wrong
        for table, allowed_scan in LOOK_UPS.items():
            row = connection.execute(
                f"EXPLAIN (FORMAT JSON) DELETE FROM {table} WHERE job_id = 1".encode()  # noqa: S608
            ).fetchone()
            assert row is not None
            (node,) = row[0][0]["Plan"]["Plans"]
            assert node["Index Name"] == allowed_scan.by


def test_the_settings_of_the_dispatcher_are_needed(own_database: str) -> None:
    """A control: without them PostgreSQL reads small tables whole, and this test would see it."""
    with connect(own_database, {"jit": "off"}) as connection:
        connection.execute("TRUNCATE claim, ready")
        connection.execute("ANALYZE claim, ready")
        parameters, allowed = PLANS["settle_ended"]
        assert not plan(connection, "settle_ended", **parameters) <= allowed


def test_a_promotion_does_not_read_what_is_not_due(own_database: str) -> None:
    """A hundred thousand jobs of next week cost it nothing."""
    with connect(own_database) as connection, connect(own_database, {}) as producer:
        host = Host(connection)
        pages = Pages(connection, producer)
        enqueue(producer, 10_000, delay=7 * 86_400)
        host.promote(None)
        before = pages.touched()
        assert host.promote(None) == 0
        assert pages.touched() - before < 50


def test_dispatch_settings_switch_off_what_the_penalty_would_compile() -> None:
    """jit off goes with every enable_* off: else a one-page read takes tens of milliseconds."""
    assert DISPATCH_SETTINGS["jit"] == "off"
    assert DISPATCH_SETTINGS["plan_cache_mode"] == "force_generic_plan"
