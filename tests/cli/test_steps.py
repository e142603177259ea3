"""What comes after what, on the command line: enqueued, drawn, listed, explained."""

from __future__ import annotations

from typing import Any

import pytest

from jobctl.cli.graph import ASCII, UNICODE, lines
from jobctl.store.reading import Connection
from tests.cli.conftest import Cli
from tests.store.standing import put


def enqueue(cli: Cli, type: str, *after: int, on_dead: str | None = None) -> int:
    words: list[Any] = [word for one in after for word in ("--after", one)]
    if on_dead is not None:
        words += ["--on-dead", on_dead]
    return int(cli("enqueue", type, *words).out)


def test_a_job_is_shown_with_what_is_around_it(cli: Cli) -> None:
    """What it comes after, and what comes after it; not what else comes after the same jobs."""
    a = enqueue(cli, "render")
    b = enqueue(cli, "send", a)
    c = enqueue(cli, "book", b, on_dead="cancel")
    enqueue(cli, "other", a)
    shown = cli("jobs", "show", b).out
    drawing = shown[shown.index(f"#{a} render") :].splitlines()
    assert drawing == [
        f"#{a} render  queued",
        f"└─ #{b} send  blocked  ◀ this job",
        f"   └─ #{c} book  blocked  cancelled with #{b}",
    ]
    graph = cli("jobs", "show", b, "--json").json["graph"]
    assert [(one["id"], one["after"], one["state"]) for one in graph] == [
        (a, [], "queued"), (b, [a], "blocked"), (c, [b], "blocked"),
    ]  # fmt: skip
    alone = enqueue(cli, "alone")
    assert cli("jobs", "show", alone, "--json").json["graph"] == []
    assert "this job" not in cli("jobs", "show", alone).out


def test_a_join_is_drawn_once() -> None:
    """Below the last that it comes after; its line names the others. In ASCII where that is all."""

    def node(job: int, *after: int, **more: Any) -> dict[str, Any]:
        return {
            "id": job, "type": "t", "state": "queued", "key": None, "failure_class": None,
            "stuck_because": None, "after": list(after), "cancelled_with": [], **more,
        }  # fmt: skip

    nodes = [node(1), node(2, 1), node(3, 1, key="k\n"), node(4, 2, 3, state="blocked"), node(5, 4)]
    assert lines(nodes, 4, ASCII) == [
        "#1 t  queued",
        "|- #2 t  queued",
        "`- #3 t  queued  key k\\n",
        "   `- #4 t  blocked  also after #2  <- this job",
        "      `- #5 t  queued",
    ]
    forgotten = {**node(1), "state": None, "type": None}
    dead = node(2, 1, state="dead", failure_class="timeout")
    assert lines([forgotten, dead], 2, UNICODE) == [
        "#1  forgotten", "└─ #2 t  dead  timeout  ◀ this job",
    ]  # fmt: skip


def test_a_long_chain_is_drawn_in_part(cli: Cli, connection: Connection) -> None:
    """A hundred each way, and where to look for the rest."""
    connection.execute(
        "SELECT count(*) FROM enqueue_many((SELECT jsonb_agg(jsonb_build_object("
        "'type', 't', 'after', CASE WHEN n > 1 THEN"
        " jsonb_build_array(jsonb_build_object('item', n - 1)) END) ORDER BY n)"
        " FROM generate_series(1, 300) AS n))"
    )
    (row,) = connection.execute("SELECT min(id) + 150 AS id FROM job").fetchall()
    shown = cli("jobs", "show", row["id"]).out
    assert shown.count("blocked") >= 150
    assert "and perhaps more: SELECT * FROM jobctl.edges" in shown


def test_jobs_are_listed_by_what_they_come_after(cli: Cli) -> None:
    """With the other filters, and in whatever state."""
    a = enqueue(cli, "render")
    b, c = enqueue(cli, "send", a), enqueue(cli, "book", a)
    enqueue(cli, "then", b)
    assert cli("jobs", "list", "--parent", a, "-o", "name").out == f"{c}\n{b}\n"
    assert cli("jobs", "list", "--parent", a, "--type", "send", "-o", "name").out == f"{b}\n"
    assert cli("jobs", "list", "--parent", a, "--state", "dead", "-o", "name").out == ""


def test_what_is_wrong_with_a_parent_is_said(cli: Cli) -> None:
    """2: it was not enqueued."""
    ran = cli("enqueue", "t", "--after", 999_999)
    assert (ran.code, ran.out) == (2, "")
    assert "there is no such job" in ran.err
    assert cli("enqueue", "t", "--after", "x").code == 2
    assert cli("enqueue", "t", "--on-dead", "drop").code == 2


@pytest.mark.parametrize("state", ["queued", "dead"])
def test_why_it_waits_is_explained(cli: Cli, connection: Connection, state: str) -> None:
    """For so many; or for one that is dead, and what to do."""
    parent = put(connection, state)
    child = enqueue(cli, "t", parent)
    said = cli("jobs", "explain", child, "--json").json
    assert said["cause"] == "blocked"
    if state == "dead":
        assert f"job {parent}, which it comes after, is dead" in said["because"]
        assert "dead replay" in said["advice"]
    else:
        assert "it comes after 1 job that has not succeeded yet" in said["because"]
