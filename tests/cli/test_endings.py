"""Exit codes and sentences: what went wrong, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import click
import psycopg
import pytest

from jobctl.cli.app import app
from jobctl.cli.endings import ExitCode, explain
from jobctl.store.migration_files import ours
from jobctl.supervisor.settings import TABLE
from tests.cli.conftest import Cli

#: It is JSON, and too deep for Python to read.
DEEP = f'{{"a": {"[" * 100_000}{"]" * 100_000}}}'

_Path = tuple[tuple[str, ...], click.Command]


def test_help_and_version_are_no_failures(bare_cli: Cli) -> None:
    """-h everywhere, -V; commands in the order of a story."""
    for words in (["-h"], ["--help"], ["jobs", "-h"], ["jobs", "list", "-h"], ["run", "-h"]):
        ran = bare_cli(*words)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("Usage: jobctl")
    assert bare_cli("-V").out.startswith("jobctl ")
    listed = bare_cli("-h").out
    assert listed.index("  run ") < listed.index("  enqueue ") < listed.index("  drain ")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["stauts"], "Did you mean status?"),
        (["jobs", "lst"], "Did you mean list?"),
        (["jobs", "xyzzy"], "there are: list, show, wait, retry"),
        (["jobs", "list", "--quue", "x"], "--queue"),
        (["jobs", "list", "--state", "ded"], "dead"),
        (["jobs", "list", "--since", "yesterday"], "or how long ago"),
        (["jobs", "list", "--since", "2026-11-29T10:00"], "in which zone"),
        (["jobs", "list", "--limit", "0"], "1<=x<=10000"),
        (["jobs", "list", "--state", "dead", "--after", "1"], "--until"),
        (["jobs", "wait"], "ID..."),
        (["dead", "replay"], "Give ids"),
        (["dead", "replay", "1", "--all"], "Give ids, or filters, or --all"),
        (["dead", "replay", "x1"], "x1 is no job's id"),
        (["drain", "--host", "a", "--all"], "not both"),
        (["drain", "--reason", "x"], "--host or --all"),
        (["undrain", "--reason", "x"], "--host or --all"),
        (["drain", "--timeout", "5s"], "--wait"),
        (["drain", "--all", "--exit"], "own host"),
        (["enqueue", "send", "{"], "not JSON"),
        (["enqueue", "send", DEEP], "nested too deeply"),
        (["dead", "replay", "1", "--reason", "x", "--args", DEEP], "nested too deeply"),
        (["dead", "replay", "1", "--reason", "x", "--set", f"a={DEEP}"], "nested too deeply"),
        (["cron", "add", "c", "@daily", "send", DEEP], "nested too deeply"),
        (["enqueue", "send", "[]"], "JSON object"),
        (["enqueue", "send", "--run-at", "5m"], "--delay"),
        (["migrate", "--sql", "--plan"], "leave one of them out"),
        (["jobs", "cancel", "1", "--grace", "3s"], "--grace goes with --force"),
        (["cron", "add", "p", "* * * * *", "send", "{bad"], "the arguments are not JSON"),
        (["enqueue", "send", "--delay", "soon"], "is not a duration"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_exits_with_2(bare_cli: Cli, words: list[str], hint: str) -> None:
    """Before any database is asked."""
    ran = bare_cli(*words)
    assert (ran.code, ran.out) == (ExitCode.USAGE, "")
    assert hint in ran.err


def test_wrong_settings_are_told_together(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 from a command, 78 from the daemon, which must not be restarted for it."""
    monkeypatch.setenv("JOBCTL_LEASE", "never")
    monkeypatch.setenv("JOBCTL_SLOTZ", "3")
    for words, code in ((["status"], ExitCode.USAGE), (["run"], ExitCode.CONFIGURATION)):
        ran = bare_cli(*words)
        assert ran.code == code
        assert "JOBCTL_LEASE=never" in ran.err
        assert "Did you mean JOBCTL_SLOTS?" in ran.err


def test_run_needs_an_app(bare_cli: Cli) -> None:
    """And says the three ways to name one."""
    ran = bare_cli("run")
    assert ran.code == ExitCode.CONFIGURATION
    assert "--app" in ran.err
    assert "JOBCTL_APP" in ran.err


def test_a_database_that_is_not_there(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """75, the place without its password, and where to look."""
    monkeypatch.setenv("JOBCTL_DSN", "postgresql://ann:hunter2@127.0.0.1:1/shop")
    for words in (["status"], ["migrate"], ["enqueue", "send"]):
        ran = bare_cli(*words)
        assert (ran.code, ran.out) == (ExitCode.DATABASE_UNREACHABLE, "")
        assert "postgresql://ann:***@127.0.0.1:1/shop cannot be reached" in ran.err
        assert "hunter2" not in ran.err
        assert "config show --origin" in ran.err


def test_no_database_is_set_and_the_embedded_one_does_not_run(bare_cli: Cli) -> None:
    """A question starts no server."""
    ran = bare_cli("status")
    assert ran.code == ExitCode.DATABASE_UNREACHABLE
    assert "jobctl db start" in ran.err
    assert "JOBCTL_DSN" in ran.err


def test_a_dsn_that_cannot_be_read_is_not_shown(
    bare_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pieces may be pieces of a password."""
    monkeypatch.setenv("JOBCTL_DSN", "postgresql://ann:hunter2@x:notaport/")
    ran = bare_cli("status")
    assert ran.code == ExitCode.USAGE
    assert "hunter2" not in ran.err
    assert bare_cli("run", "--app", "shop.jobs").code == ExitCode.CONFIGURATION


def test_a_database_without_the_schema(
    bare_cli: Cli, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """78, and the command that helps; after which it works."""
    monkeypatch.setenv("JOBCTL_DSN", fresh_database)
    ran = bare_cli("status")
    assert ran.code == ExitCode.CONFIGURATION
    assert "run jobctl migrate" in ran.err
    planned = bare_cli("migrate", "--plan", "-o", "name")
    assert (planned.code, planned.out.split()) == (0, [each.name for each in ours()])
    assert bare_cli("status").code == ExitCode.CONFIGURATION, "a plan changes nothing"
    applied = bare_cli("migrate", "--json")
    assert [each["number"] for each in applied.json] == [each.number for each in ours()]
    assert bare_cli("migrate", "--json").json == []
    assert bare_cli("status").code == 0


def test_the_schema_as_sql_needs_no_database(bare_cli: Cli) -> None:
    """For those whose database only a DBA may change."""
    ran = bare_cli("migrate", "--sql", "--schema", "My Jobs")
    assert ran.code == 0
    assert 'CREATE SCHEMA IF NOT EXISTS "My Jobs"' in ran.out


def test_what_postgresql_refuses_is_a_sentence() -> None:
    """Each kind has its code; what nobody foresaw keeps its traceback."""
    for error, code, words in (
        (psycopg.errors.QueryCanceled("x"), ExitCode.FAILED, "Narrow"),
        (psycopg.errors.LockNotAvailable("x"), ExitCode.FAILED, "try again"),
        (psycopg.errors.InsufficientPrivilege("x"), ExitCode.CONFIGURATION, "grant"),
        (psycopg.errors.DiskFull("disk is full"), ExitCode.DATABASE_UNREACHABLE, "disk is full"),
        (psycopg.errors.UndefinedColumn("no column"), ExitCode.FAILED, "42703"),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, ""),
    ):
        failure = explain(error)
        assert failure is not None
        assert failure.code == code
        assert words in str(failure)
    assert explain(ZeroDivisionError()) is None


def test_numbers_of_the_contract() -> None:
    """Scripts rely on them."""
    assert {code.name: code.value for code in ExitCode} == {
        "DONE": 0, "FAILED": 1, "USAGE": 2, "NOT_HEALTHY": 3, "NO_SUCH_THING": 4,
        "PARTLY_DONE": 5, "DATABASE_UNREACHABLE": 75, "CONFIGURATION": 78, "TIMED_OUT": 124,
        "INTERRUPTED": 130,
    }  # fmt: skip


def test_what_is_not_utf8_is_refused_wherever_text_is_taken(bare_cli: Cli) -> None:
    """A name in Latin-1, pasted: PostgreSQL is never asked about it. Settings are checked as such,
    ids as ids, what is enqueued as everywhere."""
    checked_elsewhere = {*TABLE, "config", "job_ids"}
    loose = [
        f"{' '.join(words)} {taken.name}"
        for words, command in _commands(app, ())
        for taken in command.params
        if taken.type is click.STRING
        and words[0] not in ("run", "enqueue", "config")
        and (taken.name not in checked_elsewhere or (words[-1], taken.name) == ("drain", "host"))
    ]
    assert loose == []
    for words in (["cron", "run", "caf\udce9"], ["drain", "--host", "caf\udce9"]):
        ran = bare_cli(*words)
        assert ran.code == 2
        assert "not UTF-8" in ran.err


def _commands(group: click.Group, before: tuple[str, ...]) -> Iterator[_Path]:
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, (*before, word))
        else:
            yield (*before, word), command
