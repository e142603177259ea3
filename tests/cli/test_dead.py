"""`jobctl dead`: many at once, but never by accident and never twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest

from jobctl.cli import batches, bulk
from jobctl.store import operating, reading
from jobctl.store.error_group import group_of
from jobctl.store.operating import Order
from jobctl.store.reading import Connection
from tests.cli.conftest import Cli
from tests.store.standing import put, violations


def _states(connection: Connection) -> dict[int, str]:
    rows = reading.find(connection, reading.JobFilter(), 1000)
    return {row["id"]: row["state"] for row in rows}


def test_list_by_death(cli: Cli, connection: Connection) -> None:
    """Who died last comes first; --since is about the death; pages go on with --until."""
    first, second, third = (put(connection, "dead", last_error="boom") for _ in range(3))
    now = datetime.now(UTC)
    for job_id, hours in ((first, 1), (second, 3), (third, 2)):
        connection.execute(
            "UPDATE dead SET dead_since = %s WHERE job_id = %s",
            (now - timedelta(hours=hours), job_id),
        )
    assert cli("dead", "list", "-o", "name").out.split() == [str(first), str(third), str(second)]
    assert cli("dead", "list", "--since", "90m", "-o", "name").out.split() == [str(first)]
    page = cli("dead", "list", "--limit", 2)
    go_on = page.err.split("--until ")[1].strip()
    assert cli("dead", "list", "--until", go_on, "-o", "name").out.split() == [str(second)]
    assert "boom" in page.out


def test_replay_by_id_asks_nothing(cli: Cli, connection: Connection) -> None:
    """Whoever types an id means it. The second one to do so is told that it is done."""
    job_id = put(connection, "dead")
    ran = cli("dead", "replay", job_id)
    assert (ran.code, ran.out, ran.err) == (0, "", "1 job queued again.\n")
    again = cli("dead", "replay", job_id)
    assert again.code == 1
    assert f"#{job_id} is queued, not dead." in again.err
    assert cli("dead", "replay", 10**9).code == 4


def test_replay_by_filter_needs_a_yes(cli: Cli, connection: Connection) -> None:
    """Where nobody can answer, nothing happens without --yes."""
    wanted = [put(connection, "dead", queue="mail", last_error="SMTP 550") for _ in range(2)]
    other = put(connection, "dead", queue="mail", last_error="disk full")
    refused = cli("dead", "replay", "--error", "SMTP*")
    assert (refused.code, refused.out) == (2, "")
    assert "2 jobs" in refused.err
    assert "--yes" in refused.err
    assert set(_states(connection).values()) == {"dead"}
    planned = cli("dead", "replay", "--error", "SMTP*", "--dry-run", "--json")
    assert planned.code == 0
    assert sorted(planned.json["would_be_queued"]) == wanted
    assert planned.json["queued"] == []
    assert set(_states(connection).values()) == {"dead"}
    done = cli("dead", "replay", "--error", "SMTP*", "--yes", "--reason", "provider is back")
    assert (done.code, done.err) == (0, "2 jobs queued again.\n")
    assert _states(connection)[other] == "dead"
    assert violations(connection) == []
    (row,) = connection.execute("SELECT target, reason FROM audit").fetchall()
    assert row["target"]["asked"] == {"state": "dead", "error": "SMTP*"}
    assert row["reason"] == "provider is back"


def test_nothing_matches(cli: Cli) -> None:
    """That is no failure: a script may run it again."""
    ran = cli("dead", "replay", "--all", "--yes")
    assert (ran.code, ran.err) == (0, "No job matches; nothing was changed.\n")


def test_ids_come_through_a_pipe(cli: Cli, connection: Connection) -> None:
    """`jobctl dead list -o name | jobctl dead replay -`."""
    made = [put(connection, "dead") for _ in range(3)]
    names = cli("dead", "list", "-o", "name").out
    ran = cli("dead", "replay", "-", "-o", "name", stdin=names)
    assert ran.code == 0
    assert sorted(map(int, ran.out.split())) == made
    assert cli("dead", "replay", "-", stdin="").code == 2


def test_many_go_in_batches_the_oldest_first(
    cli: Cli, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is a transaction with a line of its own in the audit log."""
    monkeypatch.setattr(batches, "BATCH", 4)
    made = [put(connection, "dead") for _ in range(10)]
    for number, job_id in enumerate(made):
        connection.execute(
            "UPDATE dead SET dead_since = now() + %s * interval '1 s' WHERE job_id = %s",
            (number, job_id),
        )
    ran = cli("dead", "replay", "--all", "--yes", "-o", "name")
    assert ran.out.split() == [str(job_id) for job_id in made]
    counts = connection.execute("SELECT count FROM audit ORDER BY id").fetchall()
    assert [row["count"] for row in counts] == [4, 4, 2]


def test_more_than_one_command_takes(
    cli: Cli, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does what it has counted, says so, and can be run again."""
    monkeypatch.setattr(bulk, "LARGEST_COUNT", 2)
    for _ in range(3):
        put(connection, "dead")
    ran = cli("dead", "replay", "--all", "--yes")
    assert ran.code == 5
    assert "run it again" in ran.err
    assert cli("dead", "replay", "--all", "--yes").code == 0
    assert set(_states(connection).values()) == {"queued"}


def test_somebody_else_is_quicker(
    cli: Cli, connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the count and the deed: what is gone is told, the rest is done."""
    mine, theirs = put(connection, "dead"), put(connection, "dead")
    real = bulk._confirm

    def meanwhile(*how: object) -> None:
        operating.replay(connection, [theirs], Order("bob@ops"))
        real(*how)  # type: ignore[arg-type]

    monkeypatch.setattr(bulk, "_confirm", meanwhile)
    ran = cli("dead", "replay", "--all", "--yes", "--json")
    assert ran.code == 5
    assert ran.json["queued"] == [mine]
    assert ran.json["refused"] == [
        {"id": theirs, "because": f"#{theirs} is not dead any more but queued."}
    ]


def test_a_limit_takes_the_oldest_and_says_what_is_left(cli: Cli, connection: Connection) -> None:
    """A few first, to see whether it helps."""
    made = [put(connection, "dead") for _ in range(5)]
    for number, job_id in enumerate(made):
        connection.execute(
            "UPDATE dead SET dead_since = now() + %s * interval '1 s' WHERE job_id = %s",
            (number, job_id),
        )
    planned = cli("dead", "replay", "--all", "--limit", 2, "--dry-run")
    assert "2 jobs of 5 would be affected" in planned.err
    ran = cli("dead", "replay", "--all", "--limit", 2, "--yes", "-o", "name")
    assert ran.code == 0
    assert ran.out.split() == [str(job_id) for job_id in made[:2]]
    assert "3 jobs more match." in ran.err
    assert cli("jobs", "retry", *made, "--limit", 1, "-o", "name").out.split() == [str(made[2])]


def test_a_rate_is_kept(cli: Cli, connection: Connection) -> None:
    """What comes back to life must not fall upon a service that has just recovered."""
    for _ in range(4):
        put(connection, "dead")
    begun = monotonic()
    assert cli("dead", "replay", "--all", "--yes", "--rate", "120/m").code == 0
    assert monotonic() - begun > 0.9  # the last two had to wait for a second
    assert cli("dead", "replay", "--all", "--yes", "--rate", "0").code == 2
    assert cli("dead", "replay", "--all", "--yes", "--rate", "fast").code == 2


# By error -----------------------------------------------------------------------------------------


def _die(connection: Connection, error: str, **columns: str) -> int:
    group = group_of("Refused", None, error, None).id
    job_id = put(connection, "dead", failure_class="Refused", last_error=error, **columns)
    connection.execute("UPDATE dead SET error_group = %s WHERE job_id = %s", (group, job_id))
    return job_id


def test_what_the_dead_are_about(cli: Cli, connection: Connection) -> None:
    """Type, key, arguments up to a point, error, attempts; --wide has subject, link and times."""
    connection.execute(
        "INSERT INTO job_type (name, queue, priority, timeout_seconds, max_attempts, max_crashes,"
        " min_backoff_seconds, max_backoff_seconds, max_doublings, ack, schema_version, link)"
        " VALUES ('send', 'mail', 0, 1, 1, 1, 1, 1, 1, 'late', 1, 'https://a.example/{subject}')"
    )
    job_id = put(
        connection, "dead", key="k:1", subject="invoice:7", args='{"n": "' + "x" * 500 + '"}',
        last_error="boom\x1b[31m", failure_class="E", attempt=5,
    )  # fmt: skip
    plain = cli("dead", "list").out
    assert "k:1" in plain
    assert "E: boom\\x1b[31m" in plain
    assert "x" * 20 in plain
    assert "x" * 60 not in plain
    wide = cli("dead", "list", "--wide").out
    assert "invoice:7  https://a.example/invoice:7" in wide
    assert cli("dead", "list", "--json").json[0]["link"] == "https://a.example/invoice:7"
    assert "link                 https://a.example/invoice:7" in cli("jobs", "show", job_id).out
    connection.execute("UPDATE job_type SET link = 'javascript:{subject}'")
    assert cli("jobs", "show", job_id, "--json").json["link"] is None


def test_by_error(cli: Cli, connection: Connection) -> None:
    """How many, since when, samples; one of the groups is listed, replayed, given up by its id."""
    cards = [_die(connection, f"card {n} refused") for n in range(4)]
    closed = _die(connection, "bank closed")
    table = cli("dead", "list", "--group")
    assert table.err == "Of 5 dead jobs.\n"
    assert "Refused: card # refused" in table.out
    shown = cli("dead", "list", "--group", "--json").json
    assert [(row["jobs"], row["message"]) for row in shown] == [
        (4, "card # refused"), (1, "bank closed"),
    ]  # fmt: skip
    assert (shown[0]["of_jobs"], shown[0]["capped"]) == (5, False)
    assert cli("dead", "list", "--group", "--error", "bank*", "--json").json[0]["jobs"] == 1
    assert "There are more groups" in cli("dead", "list", "--group", "--limit", 1).err
    first, second = cli("dead", "list", "--group", "-o", "name").out.split()
    names = cli("dead", "list", "--error-group", first, "-o", "name").out.split()
    assert names == [str(job_id) for job_id in cards[::-1]]
    replayed = cli("dead", "replay", "--error-group", first, "--yes", "--limit", 3)
    assert (replayed.code, replayed.err) == (0, "3 jobs queued again.\n1 job more matches.\n")
    done = cli("dead", "discard", "--error-group", second, "--yes", "--reason", "bank is gone")
    assert (done.code, done.err) == (0, "1 job discarded.\n")
    assert _states(connection)[closed] == "discarded"
    assert list(_states(connection).values()).count("queued") == 3
    (asked,) = connection.execute("SELECT target FROM audit WHERE action = 'discard'").fetchall()
    assert asked["target"]["asked"] == {"state": "dead", "error_group": second}
    assert cli("dead", "replay", "--error-group", "nosuch", "--yes").err.startswith(
        "No job matches"
    )
    assert cli("dead", "list", "--group", "--error-group", first).code == 2


def test_whose_they_are(cli: Cli, connection: Connection) -> None:
    """A team sees, counts and replays its own, however else they are chosen."""
    for name, owner in (("bill", "billing"), ("grow", "growth")):
        connection.execute(
            "INSERT INTO job_type (name, queue, priority, timeout_seconds, max_attempts,"
            " max_crashes, min_backoff_seconds, max_backoff_seconds, max_doublings, ack,"
            " schema_version, owner) VALUES (%s, 'mail', 0, 1, 1, 1, 1, 1, 1, 'late', 1, %s)",
            (name, owner),
        )
    mine = _die(connection, "card 1 refused", type="bill", subject="s")
    theirs = _die(connection, "card 2 refused", type="grow", subject="s")
    for words in ([], ["--subject", "s"], ["--error", "card*"]):
        ran = cli("dead", "list", "--owner", "billing", *words, "-o", "name")
        assert ran.out.split() == [str(mine)]
    (group,) = cli("dead", "list", "--group", "--owner", "growth", "--json").json
    assert (group["jobs"], group["samples"]) == (1, [theirs])
    chosen = ["--error-group", group["group"], "--owner", "billing"]
    assert cli("dead", "list", *chosen, "-o", "name").out.split() == [str(mine)]
    assert cli("dead", "replay", *chosen, "--yes").code == 0
    assert _states(connection) == {mine: "queued", theirs: "dead"}
    assert cli("jobs", "list", "--owner", "billing").code == 2


# Given up, and with other arguments ---------------------------------------------------------------


def test_discard_needs_a_reason(cli: Cli, connection: Connection) -> None:
    """Nothing is given up in passing."""
    job_id = put(connection, "dead")
    assert cli("dead", "discard", job_id).code == 2
    assert cli("dead", "discard", job_id, "--reason", " ").code == 2
    assert _states(connection) == {job_id: "dead"}
    planned = cli("dead", "discard", "--all", "--dry-run", "--reason", "old", "--json")
    assert planned.json["would_be_discarded"] == [job_id]
    ran = cli("dead", "discard", job_id, "--reason", "old", "--json")
    assert (ran.code, ran.json["discarded"]) == (0, [job_id])
    again = cli("dead", "discard", job_id, "--reason", "old")
    assert (again.code, again.err) == (
        1, f"#{job_id} is discarded, not dead.\n0 jobs discarded.\n",
    )  # fmt: skip


def _args(connection: Connection, job_id: int) -> object:
    (row,) = reading.jobs(connection, [job_id])
    return row["args"]


def test_replay_with_other_arguments(cli: Cli, connection: Connection) -> None:
    """JSON, or text where it is none; several at once; the audit log has what they were."""
    job_id = put(connection, "dead", args='{"invoice_id": 1, "name": "x", "old": 1}')
    ran = cli("dead", "replay", job_id, "--set", "invoice_id=7", "--set", "name=Ann = Zoë",
              "--unset", "old", "--reason", "typo")  # fmt: skip
    assert (ran.code, ran.err) == (0, "1 job queued again.\n")
    assert _args(connection, job_id) == {"invoice_id": 7, "name": "Ann = Zoë"}
    (edit, replay) = connection.execute("SELECT * FROM audit ORDER BY id").fetchall()
    assert edit["target"] == {"job": job_id, "args": {"invoice_id": 1, "name": "x", "old": 1}}
    assert replay["target"]["set"] == {"invoice_id": 7, "name": "Ann = Zoë"}
    whole = put(connection, "dead", args='{"a": 1}')
    assert cli("dead", "replay", whole, "--args", '{"b": [1, "2"]}').code == 0
    assert _args(connection, whole) == {"b": [1, "2"]}
    many = [put(connection, "dead", args=f'{{"n": {n}, "x": 1}}') for n in range(3)]
    assert cli("dead", "replay", "--all", "--yes", "--set", 'x={"y": null}').code == 0
    assert [_args(connection, one) for one in many] == [
        {"n": n, "x": {"y": None}} for n in range(3)
    ]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--set", "invoce_id=7"], 1, "no argument invoce_id; did you mean invoice_id?"),
        (["--set", "zzz=7"], 1, "it has invoice_id. To add one, say --new."),
        (["--unset", "zzz"], 1, "no argument zzz; it has invoice_id. This job"),
        (["--unset", "zzz", "--new"], 1, "no argument zzz"),
        (["--set", "invoice_id"], 2, "write NAME=VALUE"),
        (["--set", "=7"], 2, "write NAME=VALUE"),
        (["--set", "invoice_id=NaN"], 2, "$.invoice_id is nan"),
        (["--set", "invoice_id=" + "9" * 5000], 0, ""),
        (["--args", "{"], 2, "--args is not JSON"),
        (["--args", "[1]"], 2, "must be a JSON object"),
        (["--args", "{}", "--set", "invoice_id=7"], 2, "or --set and --unset"),
        (["--args", '{"x": "' + "y" * 70_000 + '"}'], 2, "more than 65536"),
    ],
)
def test_arguments_that_are_wrong(
    cli: Cli, connection: Connection, words: list[str], code: int, sentence: str
) -> None:
    """Said before anything changes."""
    job_id = put(connection, "dead", args='{"invoice_id": 1}')
    ran = cli("dead", "replay", job_id, *words)
    assert (ran.code, sentence in ran.err) == (code, True), ran.err
    if code:
        assert _states(connection) == {job_id: "dead"}
        assert _args(connection, job_id) == {"invoice_id": 1}


def test_all_arguments_are_those_of_one_job(cli: Cli, connection: Connection) -> None:
    """Nobody gives a thousand jobs the same ones by a slip."""
    made = [put(connection, "dead") for _ in range(2)]
    for chosen in (["--all", "--yes"], made):
        ran = cli("dead", "replay", *chosen, "--args", "{}")
        assert (ran.code, "give its id" in ran.err) == (2, True)
    assert set(_states(connection).values()) == {"dead"}


def test_an_argument_more(cli: Cli, connection: Connection) -> None:
    """A parameter that has come since, and has no default: --new says that it is meant."""
    job_id = put(connection, "dead", args='{"invoice_id": 1}')
    assert cli("dead", "replay", job_id, "--set", "currency=EUR", "--new").code == 0
    assert _args(connection, job_id) == {"invoice_id": 1, "currency": "EUR"}
