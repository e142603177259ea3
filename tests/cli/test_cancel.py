"""jobctl jobs cancel: what is confirmed is what is cancelled, and it says what that means."""

from __future__ import annotations

from jobctl.store.reading import Connection
from tests.cli.conftest import Cli
from tests.store.standing import put, violations


def states(cli: Cli) -> dict[int, str]:
    return {row["id"]: row["state"] for row in cli("jobs", "list", "--json").json}


def test_by_number(cli: Cli, connection: Connection) -> None:
    """Whatever waits is cancelled, what runs is asked, what is over is refused with a reason."""
    waiting, running = put(connection, "scheduled"), put(connection, "running")
    done = put(connection, "succeeded")
    ran = cli("jobs", "cancel", waiting, running, done, "--json", "--reason", "ordered twice")
    assert ran.code == 5
    assert sorted(ran.json["cancelled"]) == [waiting, running]
    assert [one["id"] for one in ran.json["refused"]] == [done]
    assert "1 had begun: each ends at its next safe point." in ran.err
    assert states(cli) == {waiting: "cancelled", running: "running", done: "succeeded"}
    (noted,) = {
        (row["action"], row["reason"])
        for row in connection.execute("SELECT action, reason FROM audit").fetchall()
    }
    assert noted == ("cancel", "ordered twice")
    assert violations(connection) == []
    assert "cancel_requested_at" in cli("jobs", "show", running).out
    assert cli("jobs", "cancel", 404).code == 4


def test_by_force(cli: Cli, connection: Connection) -> None:
    """The grace is in the row: whoever runs it keeps it, whatever becomes of this command."""
    running = put(connection, "running")
    ran = cli("jobs", "cancel", running, "--force", "--grace", "90s")
    assert ran.code == 0
    assert "or is killed in 1m30s" in ran.err
    row = connection.execute(
        "SELECT cancel_force_at > now() + interval '80 s' AS later FROM job"
    ).fetchone()
    assert row == {"later": True}


def test_many(cli: Cli, connection: Connection) -> None:
    """By a filter: counted, and only with --yes where nobody can answer."""
    chosen = [put(connection, "queued", type="send") for _ in range(3)]
    chosen.append(put(connection, "retrying", type="send"))
    other = put(connection, "queued", type="draw")
    ran = cli("jobs", "cancel", "--type", "send", "--dry-run")
    assert ran.code == 0 and "4 jobs would be affected" in ran.err
    assert cli("jobs", "cancel", "--type", "send").code == 2
    assert set(states(cli).values()) == {"queued", "retrying"}
    ran = cli("jobs", "cancel", "--type", "send", "--yes")
    assert ran.code == 0
    assert "4 jobs cancelled or asked to end." in ran.err
    assert states(cli) == {**dict.fromkeys(chosen, "cancelled"), other: "queued"}
    assert cli("jobs", "cancel", "--state", "dead", "--yes").code == 2
