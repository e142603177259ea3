"""`jobctl limits`: what is set is said, counts at once, and is on record."""

from __future__ import annotations

from typing import Any

import pytest

from jobctl.store.reading import Connection
from tests.cli.conftest import Cli


def _enqueue(connection: Connection, many: int, key: str) -> list[int]:
    rows = connection.execute(
        "SELECT enqueue('t', limit_key => %s) AS id FROM generate_series(1, %s)", (key, many)
    ).fetchall()
    connection.execute("SELECT admit_arrivals()")
    return [row["id"] for row in rows]


def _audit(connection: Connection) -> list[dict[str, Any]]:
    return connection.execute("SELECT action, target, reason FROM audit ORDER BY id").fetchall()


def test_a_limit_is_set_listed_and_removed(cli: Cli, connection: Connection) -> None:
    """Who holds, who waits; who did it and why."""
    ran = cli(
        "limits", "set", "api", "2", "--rate", "50/s", "--burst", "5", "--reason", "their SLA"
    )
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == (
        "api is limited to 2 at once and 50/s, 5 at once after a pause; 0 of its jobs hold a place"
        " now.\n"
    )
    _enqueue(connection, 5, "api")
    (api,) = cli("limits", "list", "--json").json
    assert (api["limit_key"], api["max_running"], api["held"], api["waiting"]) == ("api", 2, 2, 3)
    assert (api["rate"], api["burst"], api["brake"]) == (50.0, 5, False)
    assert "50/s (burst 5)" in cli("limits", "list", "api").out
    assert cli("limits", "remove", "api").err == "The limit api is removed.\n"
    assert cli("limits", "remove", "api").code == 4
    assert [(row["action"], row["reason"]) for row in _audit(connection)] == [
        ("set limit", "their SLA"), ("remove limit", None),
    ]  # fmt: skip


def test_keys_of_a_pattern_are_listed_under_it(cli: Cli, connection: Connection) -> None:
    """One row a tenant, and a rule that nobody has used yet is one too."""
    cli("limits", "set", "tenant:*", "1")
    assert [row["limit_key"] for row in cli("limits", "list", "--json").json] == ["tenant:*"]
    _enqueue(connection, 2, "tenant:7")
    rows = cli("limits", "list", "tenant:*", "--json").json
    assert [(row["limit_key"], row["rule"], row["waiting"]) for row in rows] == [
        ("tenant:*", "tenant:*", 0), ("tenant:7", "tenant:*", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["api"], "how many may run at once"),
        (["api", "-1"], "-1"),
        (["api", "two"], "two"),
        (["api", "2", "--burst", "3"], "part of a --rate"),
        (["api", "--rate", "fast"], "is no rate"),
        (["api", "--rate", "0/s"], "is no rate"),
        (["api", "--rate", "0.001/d"], "at least one in 365 days"),
        (["api", "--rate", "5/s", "--brake"], "--brake needs N"),
        (["", "2"], "1 to 200 characters"),
        (["a*b", "2"], "only at its end"),
        (["a\n", "2"], "printable"),
        (["x" * 201, "2"], "1 to 200 characters"),
        (["api\udcff", "2"], "UTF-8"),
    ],
)
def test_what_cannot_be_a_limit_is_refused(
    cli: Cli, connection: Connection, arguments: list[str], why: str
) -> None:
    """With the exit code of usage, and nothing changed."""
    ran = cli("limits", "set", *arguments)
    assert ran.code == 2
    assert why in ran.err
    assert _audit(connection) == []


def test_explain_says_that_a_limit_is_0(cli: Cli, connection: Connection) -> None:
    """Nobody holds a place, and to wait for them would be bad advice."""
    cli("limits", "set", "api", "0")
    (job,) = _enqueue(connection, 1, "api")
    told = cli("explain", str(job), "--json").json
    assert told["cause"] == "limit"
    assert told["because"] == ("limit api is 0, so that none of its jobs may start; it is the next")


def test_explain_names_the_limit_and_who_holds_it(cli: Cli, connection: Connection) -> None:
    """Whoever asks why a job waits is told whom it waits for, and what can be done."""
    cli("limits", "set", "api", "1")
    first, _, third = _enqueue(connection, 3, "api")
    told = cli("explain", str(third), "--json").json
    assert told["cause"] == "limit"
    assert told["because"] == (
        f"all 1 places of limit api are held, by #{first}; 1 jobs wait before it"
    )
    assert "jobctl limits set api N" in told["advice"]


def test_a_held_key_says_until_when_and_is_released(cli: Cli, connection: Connection) -> None:
    """A 429 that was laid on all of it is seen, and can be taken off."""
    cli("limits", "set", "api", "5")
    _enqueue(connection, 1, "api")
    connection.execute("SELECT hold_limit('api', now() + interval '1 hour')")
    (waiting,) = _enqueue(connection, 1, "api")
    assert "nobody of it starts before" in cli("explain", str(waiting), "--json").json["because"]
    assert "nobody starts before" in cli("limits", "list").out
    assert cli("limits", "release", "api").code == 0
    connection.execute("SELECT admit_arrivals()")
    assert cli("limits", "list", "--json").json[0]["held"] == 2
    assert cli("limits", "release", "nobody").code == 4


def test_enqueue_takes_a_limit(cli: Cli, connection: Connection) -> None:
    """From the command line as from code."""
    job = cli("enqueue", "t", "--limit", "api").out.strip()
    row = connection.execute("SELECT limit_key FROM job WHERE id = %s", (job,)).fetchone()
    assert row == {"limit_key": "api"}


def test_a_job_says_what_it_waits_for(cli: Cli, connection: Connection) -> None:
    """Its own page names the limit, as explain does."""
    cli("limits", "set", "api", "1")
    _, second = _enqueue(connection, 2, "api")
    assert "limit_key            api\n" in cli("jobs", "show", str(second)).out
    shown = cli("jobs", "show", str(second), "--json").json
    assert (shown["state"], shown["limit_key"]) == ("blocked", "api")
