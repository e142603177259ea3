"""A schema becomes what the code needs, whoever migrates, however often, and whatever dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from jobctl.store import migrate as migrating
from jobctl.store.embedded import EmbeddedPostgres
from jobctl.store.migrate import Applied, SchemaError, acheck, check, migrate, plan, sql_text
from jobctl.store.migration_files import (
    Migration,
    digest,
    in_order,
    load,
    ours,
    parse,
    with_functions,
)
from jobctl.store.schema_check import TWINS
from tests.derived import RELEASED
from tests.waiting import until

ODD_NAMES = [
    "jobctl",
    "Two Words",
    "quote\"s and 'those'",
    "100%s %(schema)s {schema} $1 $$",
    "new\nline\\",
    "Hà Nội ☃",
    "x" * 63,
    "\u1ec7" * 21,
    "select",
    "public",
]

#: A process that migrates by the files of a folder and prints what it applied.
MIGRATOR = """
import sys
from pathlib import Path
from jobctl.store.migrate import migrate
from jobctl.store.migration_files import load
print([one.number for one in migrate(sys.argv[1], files=load(Path(sys.argv[2])))])
"""


def step(number: int, body: str, *, oldest: int = 1, marks: str = "") -> Migration:
    return parse(
        f"{number:04}_step.sql", f"-- Step.\n-- compatible-from: {oldest}\n{marks}\n{body}"
    )


def steps(*bodies: str) -> tuple[Migration, ...]:
    return in_order([step(number, body) for number, body in enumerate(bodies, start=1)])


def folder_of(files: Sequence[Migration], folder: Path) -> Path:
    for file in files:
        (folder / f"{file.label}.sql").write_text(file.text)
    return folder


@contextmanager
def migrator(dsn: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", MIGRATOR, dsn, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(dsn: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(query.encode(), values or None).fetchall()


def is_running(dsn: str, text: str) -> bool:
    query = """
        SELECT FROM pg_stat_activity
        WHERE application_name = 'jobctl migrate' AND state = 'active' AND query LIKE %s
    """
    return bool(ask(dsn, query, f"%{text}%"))


def check_now(dsn: str, files: Sequence[Migration] | None = None, schema: str = "jobctl") -> None:
    with psycopg.connect(dsn) as connection:
        check(connection, schema, files)


# The plain story.


def test_an_empty_database_becomes_ours(fresh_database: str) -> None:
    """All of it, once; afterwards there is nothing to do and nothing to say."""
    assert [one.number for one in plan(fresh_database)] == [one.number for one in ours()]
    assert [one.number for one in migrate(fresh_database)] == [one.number for one in ours()]
    assert plan(fresh_database) == []
    assert migrate(fresh_database) == []
    check_now(fresh_database)


@pytest.mark.parametrize("schema", ODD_NAMES)
def test_any_legal_name_is_a_schema(fresh_database: str, schema: str) -> None:
    """Quotes, spaces, unicode, percent signs, 63 bytes: it is only a name."""
    migrate(fresh_database, schema)
    check_now(fresh_database, schema=schema)
    with psycopg.connect(fresh_database) as connection:
        query = sql.SQL("SELECT enqueue FROM {}.enqueue('t')").format(sql.Identifier(schema))
        assert connection.execute(query).fetchone() == (1,)
        query = sql.SQL("SELECT * FROM {}.placement_violations()").format(sql.Identifier(schema))
        assert connection.execute(query).fetchall() == []


@pytest.mark.parametrize("schema", ["", "x" * 64, "\u1ec7" * 22, "a\0b", "pg_mine", "\ud800"])
def test_other_names_are_refused(fresh_database: str, schema: str) -> None:
    """PostgreSQL would cut them, or keeps them for itself."""
    with pytest.raises(ValueError, match="schema's name"):
        migrate(fresh_database, schema)


def test_schemas_live_side_by_side(fresh_database: str) -> None:
    """Two applications can share a database."""
    migrate(fresh_database, "one")
    migrate(fresh_database, "two")
    ask(fresh_database, "SELECT one.enqueue('t')")
    assert ask(fresh_database, "SELECT count(*) FROM one.jobs") == [(1,)]
    assert ask(fresh_database, "SELECT count(*) FROM two.jobs") == [(0,)]


def test_a_script_does_the_same(fresh_database: str) -> None:
    """What --sql prints makes the same schema, and is recorded as if we had done it."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute(sql_text('by "hand" 100%').encode())
    assert migrate(fresh_database, 'by "hand" 100%') == []
    migrate(fresh_database, "by us")
    names = """
        SELECT c.relname, c.relkind
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = %s
        UNION ALL
        SELECT p.proname, 'function'
        FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = %s
        ORDER BY 1, 2
    """
    ours_, theirs = (ask(fresh_database, names, s, s) for s in ("by us", 'by "hand" 100%'))
    assert ours_ == theirs


def test_a_script_of_what_is_missing(fresh_database: str) -> None:
    """`after` leaves out what is there."""
    files = steps("CREATE TABLE a ()", "CREATE TABLE b ()")
    migrate(fresh_database, files=files[:1])
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute(sql_text(after=1, files=files).encode())
    check_now(fresh_database, files)


# Several at once.


def test_several_hosts_migrate_at_once(fresh_database: str, tmp_path: Path) -> None:
    """Real processes: each step is applied by exactly one, and all come back content."""
    folder = folder_of(steps(*(f"CREATE TABLE t{n} (id int)" for n in range(1, 6))), tmp_path)
    begun = [
        subprocess.Popen(
            [sys.executable, "-c", MIGRATOR, fresh_database, str(folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    answers = [process.communicate(timeout=60)[0] for process in begun]
    assert [process.returncode for process in begun] == [0] * 4
    applied = sorted(number for answer in answers for number in eval(answer))  # noqa: S307 - ours
    assert applied == [1, 2, 3, 4, 5]
    check_now(fresh_database, load(folder))


def test_those_who_wait_do_not_stop_an_index(fresh_database: str) -> None:
    """CREATE INDEX CONCURRENTLY waits for every snapshot; who waits for a turn must hold none."""
    files = in_order(
        [
            step(1, "CREATE TABLE t AS SELECT generate_series(1, 1000) AS id"),
            step(
                2,
                "-- Again from the start, wherever it died.\n"
                "DROP INDEX CONCURRENTLY IF EXISTS t_id;\n"
                "CREATE INDEX CONCURRENTLY t_id ON t (id);\n",
                marks="-- no-transaction\n",
            ),
        ]
    )
    applied: list[Applied] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            applied.extend(migrate(fresh_database, files=files))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert sorted(one.number for one in applied) == [1, 2]
    assert ask(
        fresh_database, "SELECT indisvalid FROM pg_index WHERE indrelid='jobctl.t'::regclass"
    )


def test_even_without_the_lock_nothing_is_applied_twice(
    fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler may give the advisory lock to somebody else; the row of each step still holds."""
    monkeypatch.setattr(migrating, "_take_turn", lambda *_: None)
    migrate(fresh_database, files=steps("SELECT 1"))
    files = steps("SELECT 1", "CREATE TABLE t (); SELECT pg_sleep(0.3)")
    applied: list[Applied] = []
    threads = [
        threading.Thread(target=lambda: applied.extend(migrate(fresh_database, files=files)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [one.number for one in applied] == [2]


def test_patience_ends(fresh_database: str) -> None:
    """Somebody who never finishes is named instead of waited for."""
    files = steps("SELECT 1")
    slow = steps("SELECT pg_sleep(30)")

    def run() -> None:
        with pytest.raises(SchemaError):
            migrate(fresh_database, files=slow)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: is_running(fresh_database, "pg_sleep(30)"), what="the slow migration")
    with pytest.raises(SchemaError, match="somebody else has been migrating"):
        migrate(fresh_database, files=files, patience=0.1)
    ask(
        fresh_database,
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'jobctl migrate'",
    )
    thread.join(30)
    assert not thread.is_alive()


# Killed, refused, locked out.


def test_killed_half_way_it_never_was(fresh_database: str, tmp_path: Path) -> None:
    """kill -9 in the middle of a step: nothing of it stays, and the next one does all of it."""
    files = steps("CREATE TABLE a ()", "CREATE TABLE b (); SELECT pg_sleep(60); CREATE TABLE c ()")
    with migrator(fresh_database, folder_of(files, tmp_path)) as process:
        until(lambda: is_running(fresh_database, "pg_sleep(60)"), what="the second step")
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        # The server notices within seconds although its statement runs on.
        until(lambda: not is_running(fresh_database, ""), what="the end of its session")
    assert ask(fresh_database, "SELECT number FROM jobctl.migration") == [(1,)]
    assert ask(fresh_database, "SELECT to_regclass('jobctl.b')") == [(None,)]
    quick = steps("CREATE TABLE a ()", "CREATE TABLE b ()")
    assert [one.number for one in migrate(fresh_database, files=quick)] == [2]


def test_a_step_without_transaction_begins_again(fresh_database: str) -> None:
    """It died between its statements; run again, it starts from its first."""
    good = "DROP TABLE IF EXISTS t;\nCREATE TABLE t ();\n"
    mark = "-- no-transaction\n"
    with pytest.raises(SchemaError, match="running it again"):
        migrate(fresh_database, files=[step(1, f"{good}SELECT 1/0;\n", marks=mark)])
    assert ask(fresh_database, "SELECT to_regclass('jobctl.t') IS NULL") == [(False,)]
    assert [one.number for one in migrate(fresh_database, files=[step(1, good, marks=mark)])] == [1]


def test_a_step_that_fails_says_so(fresh_database: str) -> None:
    """The steps before it stay, nothing of it does, and the sentence names it."""
    files = steps("CREATE TABLE a ()", "CREATE TABLE b (); SELECT 1/0")
    with pytest.raises(SchemaError, match=r"0002_step .* division by zero. Nothing of it stayed"):
        migrate(fresh_database, files=files)
    assert ask(fresh_database, "SELECT to_regclass('jobctl.b')") == [(None,)]
    assert [one.number for one in plan(fresh_database, files=files)] == [2]


def test_it_waits_for_a_lock_in_small_bites(
    fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes after a waiting ALTER TABLE waits too; so it gives up its place and comes back."""
    monkeypatch.setattr(migrating, "LOCK_TIMEOUT", "100ms")
    migrate(fresh_database, files=steps("CREATE TABLE t ()"))
    files = steps("CREATE TABLE t ()", "ALTER TABLE t ADD c int")
    waits: list[str] = []
    with psycopg.connect(fresh_database) as holder:
        holder.execute("LOCK jobctl.t IN ACCESS SHARE MODE")

        def count(*arguments: object) -> None:
            waits.append(str(arguments[0]))
            if len(waits) == 2:
                holder.rollback()

        monkeypatch.setattr(migrating._log, "warning", count)
        assert [one.number for one in migrate(fresh_database, files=files)] == [2]
    assert len(waits) == 2


def test_a_lock_that_never_comes(fresh_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, and nothing has changed."""
    monkeypatch.setattr(migrating, "LOCK_TIMEOUT", "50ms")
    monkeypatch.setattr(migrating, "LOCK_TRIES", 1)
    migrate(fresh_database, files=steps("CREATE TABLE t ()"))
    files = steps("CREATE TABLE t ()", "ALTER TABLE t ADD c int")
    with psycopg.connect(fresh_database) as holder:
        holder.execute("LOCK jobctl.t IN ACCESS SHARE MODE")
        with pytest.raises(SchemaError, match="long transactions"):
            migrate(fresh_database, files=files)


def test_a_user_without_rights(fresh_database: str, postgres: EmbeddedPostgres) -> None:
    """Neither making nor reading the schema fails with a riddle."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute("CREATE ROLE stranger LOGIN")
        try:
            migrate(fresh_database)
            # The embedded server lets its owner in only, so the stranger is a SET ROLE.
            connection.execute("SET ROLE stranger")
            with pytest.raises(SchemaError, match="may not read"):
                check(connection)
            connection.execute("RESET ROLE")
            as_stranger = psycopg.conninfo.make_conninfo(fresh_database, options="-c role=stranger")
            with pytest.raises(SchemaError, match="may not create"):
                migrate(as_stranger, "theirs")
        finally:
            connection.execute("RESET ROLE")
            connection.execute("DROP ROLE stranger")


def test_an_owner_who_may_not_create_schemas(fresh_database: str) -> None:
    """A schema that the administrator made is enough."""
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        connection.execute("CREATE ROLE tenant LOGIN")
        connection.execute("CREATE SCHEMA theirs AUTHORIZATION tenant")
        as_tenant = psycopg.conninfo.make_conninfo(fresh_database, options="-c role=tenant")
        try:
            assert migrate(as_tenant, "theirs")
        finally:
            connection.execute("DROP SCHEMA theirs CASCADE")
            connection.execute("DROP ROLE tenant")


def test_a_database_that_cannot_hold_every_text(postgres: EmbeddedPostgres) -> None:
    """Latin 1 would fail at the first Vietnamese name, in the middle of somebody's transaction."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            with pytest.raises(SchemaError, match="UTF8"):
                migrate(postgres.dsn("latin"))
        finally:
            connection.execute("DROP DATABASE latin")


# What this code can work with.


def test_nothing_there(fresh_database: str) -> None:
    """The sentence says what to type, and the caller's transaction lives."""
    with psycopg.connect(fresh_database) as connection:
        with pytest.raises(SchemaError, match="run jobctl migrate"):
            check(connection)
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_an_older_schema_is_refused(fresh_database: str) -> None:
    """It has to be migrated first."""
    files = steps("SELECT 1", "SELECT 2")
    migrate(fresh_database, files=files[:1])
    with pytest.raises(SchemaError, match="is at 1, this code needs 2: run jobctl migrate"):
        check_now(fresh_database, files)


def test_a_newer_schema_within_its_range_is_fine(fresh_database: str) -> None:
    """A deploy has migrated ahead of this host: the host works on, and its migrate does nothing."""
    old = steps("SELECT 1")
    migrate(fresh_database, files=[*old, step(2, "SELECT 2", oldest=1)])
    check_now(fresh_database, old)
    assert plan(fresh_database, files=old) == []
    assert migrate(fresh_database, files=old) == []


def test_a_newer_schema_outside_its_range_is_refused(fresh_database: str) -> None:
    """Also if a later step, by mistake, declares more than an earlier one had allowed."""
    old = steps("SELECT 1")
    newer = [step(2, "SELECT 2", oldest=2), step(3, "SELECT 3", oldest=1)]
    migrate(fresh_database, files=[*old, *newer])
    for refused in (check_now, lambda dsn, files: migrate(dsn, files=files)):
        with pytest.raises(SchemaError, match="newer release"):
            refused(fresh_database, old)


def test_a_step_that_was_changed_is_refused(fresh_database: str) -> None:
    """Same number, another text: two releases that must not share a schema."""
    migrate(fresh_database, files=steps("SELECT 1"))
    with pytest.raises(SchemaError, match="must never be edited"):
        check_now(fresh_database, steps("SELECT 2"))
    with pytest.raises(SchemaError, match="must never be edited"):
        migrate(fresh_database, files=steps("SELECT 2", "SELECT 3"))


def test_a_gap_is_refused(fresh_database: str) -> None:
    """A row that somebody deleted is not applied again behind his back."""
    files = steps("SELECT 1", "SELECT 2", "SELECT 3")
    migrate(fresh_database, files=files)
    with psycopg.connect(fresh_database) as connection:
        connection.execute("DELETE FROM jobctl.migration WHERE number = 2")
    with pytest.raises(SchemaError, match="gap"):
        check_now(fresh_database, files)
    with pytest.raises(SchemaError, match="gap"):
        migrate(fresh_database, files=files)


def test_the_async_check_says_the_same(fresh_database: str) -> None:
    """For the supervisor."""

    async def ask_twice() -> None:
        async with await psycopg.AsyncConnection.connect(fresh_database) as connection:
            with pytest.raises(SchemaError, match="run jobctl migrate"):
                await acheck(connection)
            migrate(fresh_database)
            await acheck(connection)

    asyncio.run(ask_twice())


# The files.


def test_our_files_keep_the_rules() -> None:
    """Numbered from 1, each with its range; this very call checks it."""
    assert [file.number for file in ours()] == list(range(1, len(ours()) + 1))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("1_first.sql", "-- compatible-from: 1\nSELECT 1"),
        ("0001_First.sql", "-- compatible-from: 1\nSELECT 1"),
        ("0001_first.sql", "SELECT 1"),
        ("0001_first.sql", "SELECT 1\n-- compatible-from: 1\n"),
        ("0001_first.sql", "-- compatible-from: 2\nSELECT 1"),
        ("0001_first.sql", "-- compatible-from: 0\nSELECT 1"),
    ],
)
def test_a_file_that_breaks_the_rules(name: str, text: str) -> None:
    """Found by whoever writes it, not by whoever migrates."""
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        parse(name, text)


def test_numbers_have_no_gap(tmp_path: Path) -> None:
    """Two branches that both added a step are found at once."""
    with pytest.raises(ValueError, match="gap"):
        in_order([step(1, "SELECT 1"), step(3, "SELECT 1")])
    with pytest.raises(ValueError, match="gap"):
        in_order([step(1, "SELECT 1"), step(1, "SELECT 2")])
    with pytest.raises(ValueError, match="gap"):
        load(tmp_path)


def test_a_checkout_on_windows_is_the_same_file() -> None:
    """Line ends do not change the checksum."""
    text = "-- compatible-from: 1\nSELECT 1;\n"
    there = parse("0001_first.sql", text.replace("\n", "\r\n"))
    assert there.sha256 == parse("0001_first.sql", text).sha256


# Functions ------------------------------------------------------------------------------------


def test_released_migrations_are_what_they_were() -> None:
    """Who was migrated by them must not be told that it was another text."""
    released = {one.label: one.sha256[:12] for one in ours() if one.number <= RELEASED}
    assert released == {
        "0001_first": "f2f33f689e00",
        "0002_cron": "afed7552532d",
        "0003_ceilings": "66e458a452e0",
        "0004_functions": "5b34b67a1000",
        "0005_enqueue_mark": "869301ae49b0",
        "0006_cancel": "c097909ddaac",
        "0007_limits": "c31ae950d298",
        "0008_steps": "b59e63012bfb",
        "0009_error_groups": "5783b86de59b",
        "0010_effects": "b6f210794809",
        "0011_trace": "c0a115f1b73c",
        "0012_roles": "472d5d75799e",
    }


def test_a_migration_that_went_out_twice_is_known(fresh_database: str) -> None:
    """Who was migrated by its twin goes on; by any other text is refused."""
    before = [one for one in ours() if one.number < 12]
    migrate(fresh_database, files=before)
    twin = TWINS[before[-1].sha256]
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        change = "UPDATE jobctl.migration SET sha256 = %s WHERE number = %s"
        connection.execute(change, (twin, 11))
        assert [one.number for one in migrate(fresh_database)] == [12]
        assert plan(fresh_database) == []
        connection.execute(change, (twin, 10))
        with pytest.raises(SchemaError, match="another text of migration 0010"):
            plan(fresh_database)


def bringing(number: int, functions: str) -> Migration:
    return step(number, "SELECT 1;", marks=f"-- functions: {digest(functions)}\n")


def test_functions_are_as_the_newest_migration_brings_them(fresh_database: str) -> None:
    """One definition of each; a database that was migrated before gets the newer one too."""
    old = "CREATE OR REPLACE FUNCTION f() RETURNS integer LANGUAGE sql RETURN 1;\n"
    new = "CREATE OR REPLACE FUNCTION f() RETURNS integer LANGUAGE sql RETURN 2;\n"
    first = with_functions([bringing(1, old)], old)
    migrate(fresh_database, files=first)
    second = with_functions([bringing(1, old), bringing(2, new)], new)
    assert [one.number for one in plan(fresh_database, files=second)] == [2]
    migrate(fresh_database, files=second)
    with psycopg.connect(fresh_database) as connection:
        row = connection.execute("SELECT jobctl.f()").fetchone()
    assert row == (2,)


def test_a_migration_whose_functions_fail_leaves_nothing(fresh_database: str) -> None:
    """They are in its transaction."""
    broken = "CREATE OR REPLACE FUNCTION f() RETURNS integer LANGUAGE sql RETURN nowhere();\n"
    begun = [step(1, "CREATE TABLE a ();", marks=f"-- functions: {digest(broken)}\n")]
    files = with_functions(begun, broken)
    with pytest.raises(SchemaError, match="Nothing of it stayed"):
        migrate(fresh_database, files=files)
    assert [one.number for one in plan(fresh_database, files=files)] == [1]


def test_changed_functions_ask_for_a_migration() -> None:
    """Hosts could not tell whether a schema has them."""
    with pytest.raises(ValueError, match="add a migration"):
        with_functions([bringing(1, "-- old\n")], "-- new\n")
    with pytest.raises(ValueError, match="no migration brings"):
        with_functions(steps("SELECT 1;"), "-- new\n")
    with pytest.raises(ValueError, match="needs a transaction"):
        step(1, "SELECT 1;", marks=f"-- no-transaction\n-- functions: {digest('')}\n")
