"""`jobctl cron`: what is planned, and an operator's hand on it."""

from __future__ import annotations

import json

import pytest

from jobctl.store.cron_spec import CronSpec
from jobctl.store.reading import Connection
from jobctl.store.statements import sql
from tests.cli.conftest import Cli
from tests.store.standing import put_session


@pytest.fixture
def declared(connection: Connection) -> None:
    """One cron of some host's code."""
    put_session(connection, 1, "alpha")
    spec = CronSpec(name="nightly", type="report", schedule="30 2 * * *", tz="Europe/Berlin")
    crons = json.dumps([spec.to_dict()])
    connection.execute(sql("declare_crons"), {"session": 1, "crons": crons})
    connection.execute(sql("reconcile_crons"), {"retire_after": 900, "forget_after": 900})


def test_an_operators_cron_comes_and_goes(cli: Cli) -> None:
    added = cli("cron", "add", "purge", "@daily", "purge_old", '{"days": 3}', "--tz", "Asia/Tokyo",
                "--misfire", "once", "--jitter", "5m", "--overlap", "skip")  # fmt: skip
    assert added.code == 0
    assert "next at" in added.err
    (row,) = cli("cron", "list", "--json").json
    assert {name: row[name] for name in ("name", "state", "schedule", "tz", "means", "args")} == {
        "name": "purge", "state": "enabled", "schedule": "@daily", "tz": "Asia/Tokyo",
        "means": "At 00:00 every day", "args": {"days": 3},
    }  # fmt: skip
    assert cli("cron", "add", "purge", "@daily", "other").code == 1
    assert cli("cron", "remove", "purge").code == 2  # nobody is there to confirm
    assert cli("cron", "remove", "purge", "--yes").code == 0
    assert cli("cron", "list", "--json").json == []
    assert cli("cron", "remove", "purge", "--yes").code == 4


def test_two_verbs_and_no_toggle(cli: Cli, declared: None) -> None:
    """Said twice it is the same, and it is seen who did it."""
    for verb, state in (("disable", "disabled"), ("enable", "enabled")):
        for _ in range(2):
            assert cli("cron", verb, "nightly", "--reason", "quiet").code == 0
        (row,) = cli("cron", "list", "--json").json
        assert row["state"] == state
    assert cli("cron", "disable", "nightli").code == 4


def test_run_now_prints_the_job(cli: Cli, declared: None) -> None:
    job = cli("cron", "run", "nightly")
    assert job.code == 0
    shown = cli("jobs", "show", job.out.strip(), "--json").json
    assert (shown["type"], shown["state"]) == ("report", "queued")
    missing = cli("cron", "run", "nightli")
    assert missing.code == 4
    assert "nightly" in missing.err


def test_what_hosts_declare_is_not_removed_here(cli: Cli, declared: None) -> None:
    ended = cli("cron", "remove", "nightly", "--yes")
    assert ended.code == 1
    assert "jobctl cron disable nightly" in ended.err


def test_a_preview_is_in_the_zone_of_the_cron(cli: Cli, declared: None) -> None:
    """The night of a change shows what will happen in it."""
    rows = cli("cron", "preview", "nightly", "--count", 2, "--after", "2026-10-24T12:00Z",
               "--json").json  # fmt: skip
    assert [row["local"] for row in rows] == [
        "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00",
    ]  # fmt: skip
    rows = cli("cron", "preview", "*/30 * * * *", "--tz", "Asia/Tokyo", "--count", 3, "--json").json
    assert len(rows) == 3
    assert cli("cron", "preview", "nightli").code == 4
    assert cli("cron", "preview", "61 * * * *").code == 2
    assert cli("cron", "preview", "@daily", "--tz", "Mars/Olympus").code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("61 * * * *", "t"),
        ("@reboot", "t"),
        ("@daily", "t", "[1]"),
        ("@daily", "t", "{"),
        ("@daily", "t", "--tz", "Nowhere/At"),
        ("@daily", "t", "--misfire", "often"),
        ("@daily", "t", "--misfire-limit", "0"),
        ("@daily", "t", "--jitter", "soon"),
    ],
)
def test_what_cannot_be_is_a_usage_error(cli: Cli, words: tuple[str, ...]) -> None:
    ended = cli("cron", "add", "bad", *words)
    assert ended.code == 2
    assert cli("cron", "list", "--json").json == []
