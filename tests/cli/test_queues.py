"""`jobctl queues`: a pause is an operator's word, on record, and never a slip of the finger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from jobctl.store.reading import Connection
from tests.cli.conftest import Cli
from tests.store.standing import put, put_session


def _audit(connection: Connection) -> list[dict[str, Any]]:
    return connection.execute("SELECT action, target, reason FROM audit ORDER BY id").fetchall()


def test_list(cli: Cli, connection: Connection) -> None:
    """Age before depth; who serves it; a queue that nobody serves says so."""
    put_session(connection, 1, "alpha", queues=["mail"])
    put_session(connection, 2, "beta", queues=["mail"], expires_at=datetime.now(UTC))
    put(connection, queue="mail", run_at=datetime.now(UTC) - timedelta(minutes=5))
    put(connection, "dead", queue="mail")
    put(connection, queue="reports")
    mail, reports = cli("queues", "list", "--json").json
    assert (mail["queue"], mail["state"], mail["hosts"]) == ("mail", "open", ["alpha"])
    assert (mail["queued"], mail["dead"], mail["at_least"]) == (1, 1, [])
    assert 299 < mail["age_seconds"] < 400
    assert (reports["state"], reports["hosts"]) == ("unserved", [])
    titles = cli("queues", "list").out.splitlines()[0].split()
    assert titles.index("OLDEST") < titles.index("QUEUED")


def test_pause_and_resume_are_on_record(cli: Cli, connection: Connection) -> None:
    """Who, when and why, where people look; the second one changes nothing."""
    put(connection, queue="mail")
    ran = cli("queues", "pause", "mail", "--reason", "provider is down")
    assert (ran.code, ran.err) == (0, "mail is paused.\n")
    assert cli("queues", "pause", "mail", "--reason", "me too").err == "mail was paused already.\n"
    (mail,) = cli("queues", "list", "--json").json
    assert (mail["state"], mail["paused_reason"]) == ("paused", "provider is down")
    assert "@" in mail["paused_by"]
    assert "provider is down" in cli("queues", "list").out
    assert cli("queues", "resume", "mail").err == "mail is open again.\n"
    assert cli("queues", "resume", "mail").err == "mail was not paused.\n"
    pause, resume = _audit(connection)
    assert (pause["action"], pause["target"]) == ("queue pause", {"queues": ["mail"]})
    assert resume["target"]["queues"][0]["paused_reason"] == "provider is down"


def test_a_misspelt_queue_is_not_paused(cli: Cli, connection: Connection) -> None:
    """Else somebody would believe that it is; and nothing is changed of the others named."""
    put(connection, queue="mail")
    ran = cli("queues", "pause", "mail", "mial")
    assert ran.code == 4
    assert "Did you mean mail?" in ran.err
    assert "--new" in ran.err
    assert _audit(connection) == []
    assert cli("queues", "resume", "mial").code == 4
    assert cli("queues", "pause", "tomorrow", "--new").code == 0
    assert [row["queue"] for row in cli("queues", "list", "--json").json] == ["mail", "tomorrow"]
    assert cli("queues", "pause", "x" * 101, "--new").code == 2


def test_what_still_runs_is_said(cli: Cli, connection: Connection) -> None:
    """A pause stops nothing that has begun."""
    put(connection, "running", queue="mail")
    assert cli("queues", "pause", "mail").err == "mail is paused; 1 of its jobs still runs.\n"
