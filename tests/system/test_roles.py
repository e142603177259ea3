"""Four kinds of database roles at work: everything that each is promised, logged in as one.

What none of them may is tried, thing by thing, in `tests/store/test_rights.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import jobctl
from jobctl.cli import execute
from jobctl.store import grants
from jobctl.store.errors import SchemaError
from jobctl.store.migrate import migrate
from jobctl.store.rights import USUAL_NAMES, Kind
from tests.logins import PASSWORD, LoginServer
from tests.servers import guarded_folder
from tests.system.host import Hosts, Jobs, jobs_of
from tests.waiting import until

SECRET = "Zoe's address"


@pytest.fixture(scope="module")
def server() -> Iterator[LoginServer]:
    with guarded_folder() as folder:
        server = LoginServer(folder / "logins")
        # The owner is an ordinary user, as in production: nothing may rest on a superuser's rights.
        owner = server.login("owner")
        with psycopg.connect(server.owner, autocommit=True) as connection:
            connection.execute("ALTER ROLE owner CREATEROLE")
            connection.execute("GRANT CREATE ON DATABASE jobctl TO owner")
        migrate(owner)
        grants.grant(owner, [(name, kind) for kind, name in USUAL_NAMES.items()])
        for kind, name in USUAL_NAMES.items():
            server.login(_user(kind), name)
        yield server


@pytest.fixture
def jobs(server: LoginServer) -> Iterator[Jobs]:
    with jobs_of(server.owner) as mine:
        yield mine


@pytest.fixture
def hosts(server: LoginServer, tmp_path: Path) -> Iterator[Hosts]:
    started = Hosts(server.dsn(_user(Kind.WORKER)), tmp_path)
    try:
        yield started
    finally:
        started.end()


def _user(kind: Kind) -> str:
    return f"a_{kind.replace('-', '_')}"


class As:
    """The command line of a user of one kind."""

    def __init__(self, server: LoginServer, kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
        self.dsn = server.dsn(_user(kind))
        self._capsys = capsys

    def __call__(self, *words: object) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = execute([*map(str, words), "--dsn", self.dsn])
        printed = self._capsys.readouterr()
        assert PASSWORD not in printed.out + printed.err
        return code, printed.out, printed.err


@pytest.fixture
def producer(server: LoginServer, capsys: pytest.CaptureFixture[str]) -> As:
    return As(server, Kind.PRODUCER, capsys)


@pytest.fixture
def worker(server: LoginServer, capsys: pytest.CaptureFixture[str]) -> As:
    return As(server, Kind.WORKER, capsys)


@pytest.fixture
def operator(server: LoginServer, capsys: pytest.CaptureFixture[str]) -> As:
    return As(server, Kind.OPERATOR, capsys)


@pytest.fixture
def reader(server: LoginServer, capsys: pytest.CaptureFixture[str]) -> As:
    return As(server, Kind.READ_ONLY, capsys)


def test_a_producer_enqueues_and_asks(server: LoginServer, producer: As, jobs: Jobs) -> None:
    """In its own transaction, sync, async, in SQL and at the shell, with everything that a job can
    have; it asks, waits and cancels. It does not see arguments, which others' jobs have too."""
    with psycopg.connect(producer.dsn) as conn:
        first = jobctl.enqueue(conn, "note", {"to": SECRET}, key="k", queue="new", limit="l")
        assert jobctl.enqueue(conn, "note", {"to": SECRET}, key="k") == first
        many = jobctl.enqueue_many(
            conn,
            [{"type": "note"}, {"type": "note", "after": [first], "on_dead": "cancel"}],
        )
        later = jobctl.enqueue(conn, "note", delay="1h")
        conn.commit()
        jobctl.enqueue(conn, "never")
        conn.rollback()
        status = jobctl.get(conn, first)
        assert (status.state, status.args) == ("blocked", {})
        assert SECRET not in repr(status)
        assert jobctl.cancel(conn, later) == "cancelled"
        assert jobctl.cancel(conn, many[0], reason="by its user") == "cancelled"
        row = conn.execute("SELECT jobctl.enqueue('note', '{}', key => 'sql')").fetchone()
        assert row is not None
        # The answers of a function hold no arguments either, whatever role it says it is.
        seen = conn.execute("SELECT args, state FROM jobctl.get(%s)", [first]).fetchone()
        assert seen == (None, "blocked")
        conn.commit()
    with psycopg.connect(producer.dsn, autocommit=True) as conn:
        assert jobctl.wait(conn, later, timeout="5s").state == "cancelled"

    async def enqueue() -> int:
        async with await psycopg.AsyncConnection.connect(producer.dsn) as conn:
            return await jobctl.aenqueue(conn, "note", {"to": SECRET})

    assert jobs.job(asyncio.run(enqueue()))["args"] == {"to": SECRET}
    code, said, _ = producer("enqueue", "note", json.dumps({"to": SECRET}))
    assert code == 0
    assert jobs.job(int(said))["state"] == "queued"
    types = jobs.connection.execute("SELECT count(*) AS n FROM jobctl.jobs WHERE type = 'never'")
    assert types.fetchone() == {"n": 0}


def test_a_producer_hears_what_it_is_not(producer: As) -> None:
    """A sentence, the remedy, and the code for a configuration that no trying again mends."""
    for command in (["jobs", "list"], ["dead", "list"], ["queues", "pause", "mail", "--new"]):
        code, _, said = producer(*command)
        assert code == 78, (command, said)
        assert "may not do that" in said
        assert "jobctl grants" in said
    with (
        psycopg.connect(producer.dsn) as conn,
        pytest.raises(SchemaError, match="jobctl grants --operator ROLE --apply"),
    ):
        jobctl.replay(conn, 1)


def test_a_supervisor_works(hosts: Hosts, jobs: Jobs, producer: As, server: LoginServer) -> None:
    """Leads, claims, settles, keeps effects, commits with a job, lends connections, wakes at a
    ring, keeps house, drains and leaves: as an ordinary user, with an owner who is one too."""
    with psycopg.connect(server.owner, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.paid (job bigint, attempt integer)")
        connection.execute("GRANT INSERT ON public.paid TO a_worker")
    # The leader has to drop a day that is over, which only the owner of a table may.
    with psycopg.connect(server.dsn("owner"), autocommit=True) as owner:
        owner.execute("CREATE TABLE jobctl.history_20200101 (LIKE jobctl.history INCLUDING ALL)")
        owner.execute(
            "ALTER TABLE jobctl.history ATTACH PARTITION jobctl.history_20200101"
            " FOR VALUES FROM ('2020-01-01Z') TO ('2020-01-02Z')"
        )
    host = hosts.start("a", "--slots", "2", app="promises").ready()
    with psycopg.connect(producer.dsn, autocommit=True) as conn:
        looked = jobctl.enqueue(conn, "look_at_the_connection", {"soil": True})
        told = jobctl.enqueue(conn, "say_quickly", {"phase": "x"}, limit="few")
        after = jobctl.enqueue(conn, "say_quickly", {"phase": "y"}, after=[looked, told])
        effect = jobctl.enqueue(conn, "have_effect_async", {"name": "e"})
        paid = jobctl.enqueue(conn, "pay_async")
        for job in (looked, told, after, effect, paid):
            assert jobctl.wait(conn, job, timeout="30s").state == "succeeded"
    until(lambda: host.state()["leader"], within=30, what="it to lead")
    until(
        lambda: jobs.connection.execute(
            "SELECT FROM pg_class WHERE relname = 'history_20200101'"
        ).rowcount == 0,
        within=30, what="the old day to be dropped",
    )  # fmt: skip
    with psycopg.connect(hosts.dsn, autocommit=True) as conn:
        assert conn.execute("SELECT jobctl.make_history_partitions(30)").fetchone() != (0,)
    refused = [*host.said("duty_failed"), *host.said("database_refused"), *host.said("part_failed")]
    assert refused == []
    assert host.stop() == 0
    jobs.nothing_is_misplaced()
    assert PASSWORD not in host.log.read_text()


def test_a_worker_is_neither_owner_nor_operator(worker: As) -> None:
    for command in (["queues", "pause", "mail", "--new"], ["limits", "set", "k", "1"]):
        code, _, said = worker(*command)
        assert code == 78, (command, said)
        assert "jobctl grants" in said


def test_an_operator_intervenes(
    hosts: Hosts, jobs: Jobs, operator: As, producer: As, server: LoginServer
) -> None:
    """Every command that changes something, and a line in the audit log for each."""
    with psycopg.connect(server.owner) as owner, psycopg.connect(producer.dsn) as conn:
        made = [jobctl.enqueue(conn, "nobody_knows", {"n": n}) for n in range(4)]
        later = jobctl.enqueue(conn, "add", {"a": 1, "b": 2}, delay="1h")
        conn.commit()
        # As if they had died of something.
        owner.execute("DELETE FROM jobctl.ready WHERE job_id = ANY(%s)", [made[:2]])
        owner.execute("INSERT INTO jobctl.dead (job_id) SELECT unnest(%s::bigint[])", [made[:2]])
    host = hosts.start("a", "--slots", "1", app="work").ready()
    done = [
        ("dead", "replay", made[0], "--reason", "mended", "--yes"),
        ("dead", "discard", made[1], "--reason", "over", "--yes"),
        ("jobs", "retry", later, "--yes"),
        ("jobs", "cancel", made[2], "--yes"),
        ("queues", "pause", "mail", "--new"),
        ("queues", "resume", "mail"),
        ("limits", "set", "partner", 3, "--rate", "5/s"),
        ("limits", "list"),
        ("limits", "remove", "partner"),
        ("cron", "add", "hourly", "0 * * * *", "add", '{"a": 1, "b": 2}'),
        ("cron", "disable", "hourly"),
        ("cron", "enable", "hourly"),
        ("cron", "run", "hourly"),
        ("cron", "list"),
        ("cron", "remove", "hourly", "--yes"),
        ("drain", "--host", "a"),
        ("undrain", "--host", "a"),
        ("enqueue", "add", '{"a": 1, "b": 2}'),
    ]
    for words in done:
        code, _, said = operator(*words)
        assert code == 0, (words, said)
    jobs.wait(later, "succeeded")
    rows = jobs.connection.execute("SELECT DISTINCT action FROM jobctl.audit").fetchall()
    actions = {row["action"] for row in rows}
    assert {"replay", "discard", "retry", "cancel", "queue pause", "queue resume", "set limit",
            "remove limit", "cron add", "cron disable", "drain", "undrain"} <= actions  # fmt: skip
    jobs.nothing_is_misplaced()
    assert host.stop() == 0


READING = (
    ("status",), ("check",), ("hosts",), ("jobs", "list"), ("jobs", "show", "{job}"),
    ("explain", "{job}"), ("dead", "list"), ("dead", "list", "--group"), ("queues", "list"),
    ("limits", "list"), ("cron", "list"), ("doctor",), ("jobs", "list", "--state", "queued"),
)  # fmt: skip


@pytest.mark.parametrize("words", READING, ids=" ".join)
@pytest.mark.parametrize("kind", [Kind.OPERATOR, Kind.READ_ONLY])
def test_whoever_looks_sees(
    server: LoginServer,
    jobs: Jobs,
    capsys: pytest.CaptureFixture[str],
    kind: Kind,
    words: tuple[str, ...],
) -> None:
    """Nothing that only reads is refused, whether what it says is good or bad news."""
    job = jobs.enqueue("nobody_knows", {"to": SECRET})
    code, out, said = As(server, kind, capsys)(*(word.format(job=job) for word in words))
    assert code in (0, 1, 2, 3), said
    assert "may not" not in said
    assert "permission" not in out + said


def test_who_reads_changes_nothing(reader: As, jobs: Jobs) -> None:
    job = jobs.enqueue("nobody_knows")
    for words in (
        ("jobs", "cancel", job, "--yes"),
        ("queues", "pause", "mail", "--new"),
        ("limits", "set", "k", 1),
        ("cron", "add", "h", "0 * * * *", "add"),
        ("drain", "--all"),
        ("enqueue", "add"),
    ):
        code, _, said = reader(*words)
        assert code in (3, 4, 78), (words, said)  # no host: there is nothing to drain
    assert jobs.job(job)["state"] == "queued"


def test_a_user_whom_postgresql_does_not_take(reader: As) -> None:
    """It was reached, and answered: no outage, and trying again does not help."""
    dsn = reader.dsn
    for wrong, advice in (
        (dsn.replace(PASSWORD, "wrong"), "The user or the password in the DSN"),
        (dsn.replace("/jobctl?", "/elsewhere?"), "Name another database"),
    ):
        assert wrong != dsn
        reader.dsn = wrong
        code, _, said = reader("status")
        assert code == 78
        assert "does not let us in" in said
        assert advice in said


def test_doctor_under_another_role_than_the_login(server: LoginServer, operator: As) -> None:
    """SET ROLE, by the DSN or for good: PostgreSQL does not show it the login's own session."""
    role = USUAL_NAMES[Kind.OPERATOR]
    operator.dsn += f"{'&' if '?' in operator.dsn else '?'}options=-c%20role%3D{role}"
    code, out, said = operator("doctor", "--json")
    assert code in (0, 3), said
    found = {one["about"]: one for one in json.loads(out)}
    assert found["user"]["fact"].startswith(role)
    assert found["encryption"]["fine"]


def test_doctor_names_what_a_role_lacks(server: LoginServer, operator: As) -> None:
    worker = USUAL_NAMES[Kind.WORKER]
    with psycopg.connect(server.dsn("owner"), autocommit=True) as owner:
        owner.execute(f"REVOKE INSERT ON jobctl.ready FROM {worker}")
        owner.execute("GRANT EXECUTE ON FUNCTION jobctl.cancel_many TO PUBLIC")
        try:
            code, out, _ = operator("doctor", "--json")
            assert code == 3
            found = {one["about"]: one for one in json.loads(out)}
            assert "lacks INSERT on ready" in found["roles"]["fact"]
            assert "--apply" in found["roles"]["advice"]
            assert "cancel_many" in found["public"]["fact"]
            assert "pg_read_all_stats" in found["statistics"]["advice"]
            assert "operator" in found["user"]["fact"]
            assert found["encryption"]["fine"]
        finally:
            owner.execute("REVOKE EXECUTE ON FUNCTION jobctl.cancel_many FROM PUBLIC")
            assert migrate(server.dsn("owner")) == []
    found = {one["about"]: one for one in json.loads(operator("doctor", "--json")[1])}
    assert found["roles"]["fine"]
    assert found["public"]["fine"]


def test_a_right_is_missing_and_the_supervisor_does_not_begin(
    server: LoginServer, hosts: Hosts
) -> None:
    """Rather than fail in the middle of somebody's job."""
    worker = USUAL_NAMES[Kind.WORKER]
    with psycopg.connect(server.dsn("owner"), autocommit=True) as owner:
        owner.execute(f"REVOKE DELETE ON jobctl.claim FROM {worker}")
        host = hosts.start("a", "--slots", "1")
        assert host.process.wait(timeout=30) == 78
        (refused,) = host.said("configuration_refused")
        assert "a_worker lacks rights" in refused["error"]
        assert "DELETE on claim" in refused["error"]
        assert "jobctl grants --worker ROLE --apply" in refused["error"]
        migrate(server.dsn("owner"))
    hosts.start("b", "--slots", "1").ready()


def test_jobctl_grants_prints_what_it_does(
    server: LoginServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text for those who have another run their SQL, without any database."""
    assert execute(["grants", "--producer", "shop web", "--operator", "ops"]) == 0
    text = capsys.readouterr().out
    with psycopg.connect(server.owner, autocommit=True) as connection:
        connection.execute(text.encode())
        known = dict(grants.grantees(connection, "jobctl"))
        assert known["shop web"] is Kind.PRODUCER
        assert known["ops"] is Kind.OPERATOR
        assert grants.incomplete(connection, "jobctl") == []
    assert execute(["grants", "--producer", "x", "--worker", "x"]) == 2
    assert "make a role for each" in capsys.readouterr().err
    assert execute(["grants", "--producer", "new", "--apply", "--dsn", server.dsn("owner")]) == 0
    assert "new was made and is a producer" in capsys.readouterr().err
