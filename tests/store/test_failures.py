"""Dead jobs by their errors: counted where they died last, and said of how many."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from jobctl.store import failures, operating, reading
from jobctl.store.error_group import group_of
from jobctl.store.errors import InvalidJob
from jobctl.store.failures import SAMPLES
from jobctl.store.operating import Edit, Order
from jobctl.store.reading import Connection, JobFilter
from jobctl.store.states import State
from tests.store.standing import put

STACK = 'Traceback (most recent call last):\n  File "/srv/shop/bank.py", line 5, in pay\n'
DEAD = JobFilter(state=State.DEAD)


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """As the command line's."""
    with reading.connect(database, "jobctl") as made:
        yield made


def die(
    connection: Connection, error: str, *, ago: float = 0, grouped: bool = True, **job: str
) -> int:
    """A job that died of it so many minutes ago."""
    job_id = put(connection, "dead", failure_class="Refused", last_error=error, **job)
    connection.execute(
        "INSERT INTO attempt (job_id, attempt, outcome, error, stack) VALUES"
        " (%(id)s, 1, 'failed', 'an earlier one', 'x'),"
        " (%(id)s, 2, 'failed', %(error)s, %(stack)s)",
        {"id": job_id, "error": error, "stack": STACK},
    )
    group = group_of("Refused", None, error, STACK).id if grouped else None
    connection.execute(
        "UPDATE dead SET error_group = %s, dead_since = %s WHERE job_id = %s",
        (group, datetime.now(UTC) - timedelta(minutes=ago), job_id),
    )
    return job_id


def test_two_thousand_failures_that_are_two(connection: Connection) -> None:
    """The largest first, with what they are about, since when, and some of them."""
    cards = [die(connection, f"card {n} refused", ago=20 - n, type="charge") for n in range(7)]
    other = die(connection, "bank closed", ago=90)
    found, window = failures.groups(connection, DEAD, 10)
    assert (window.jobs, window.capped) == (8, False)
    first, second = found
    assert (first["jobs"], first["types"], second["jobs"]) == (7, ["charge"], 1)
    assert first["samples"] == cards[::-1][:SAMPLES]
    assert (first["error_class"], first["message"]) == ("Refused", "card # refused")
    assert first["frame"] == "shop/bank.py in pay"
    minutes = (first["last_seen"] - first["first_seen"]).total_seconds() / 60
    assert 5.9 < minutes < 6.1
    assert window.back_to == second["first_seen"] == second["last_seen"]
    # The id is what chooses them.
    wanted = JobFilter(state=State.DEAD, error_group=first["group"])
    assert reading.ids(connection, wanted, 100) == cards[::-1]
    assert reading.ids(connection, wanted, 2) == cards[::-1][:2]
    assert group_of("Refused", None, "card 1842 refused", STACK).id == first["group"]
    assert [row["samples"] for row in failures.groups(connection, DEAD, 1)[0]] == [first["samples"]]
    assert second["samples"] == [other]


def test_the_window_is_said(connection: Connection) -> None:
    """What is beyond it is not counted, and nobody is told that it does not exist."""
    for n in range(6):
        die(connection, f"card {n} refused", ago=n)
    (found,), window = failures.groups(connection, DEAD, 10, window=4)
    assert (found["jobs"], window.jobs, window.capped) == (4, 4, True)
    assert window.back_to == found["first_seen"]
    # It also counts where nothing matches: there is none among those.
    nothing, window = failures.groups(connection, JobFilter(type="x"), 10, window=4)
    assert (nothing, window.jobs, window.capped) == ([], 4, True)
    assert failures.groups(connection, DEAD, 10, window=6)[1].capped is False


@pytest.mark.parametrize(
    "wanted",
    [
        JobFilter(queue="slow"),
        JobFilter(type="charge"),
        JobFilter(subject="card:1"),
        JobFilter(key="k"),
        JobFilter(error="*card*"),
        JobFilter(since=datetime.now(UTC) - timedelta(hours=1)),
    ],
    # Not what they say: a moment in a name makes another test of it in every process that collects.
    ids=["queue", "type", "subject", "key", "error", "since"],
)
def test_filters_choose_what_is_counted(connection: Connection, wanted: JobFilter) -> None:
    """The same words as everywhere, of groups and within one."""
    mine = die(connection, "card 1 refused", queue="slow", type="charge", subject="card:1", key="k")
    die(connection, "bank closed", ago=600)
    (found,), _ = failures.groups(connection, wanted, 10)
    assert found["samples"] == [mine]
    within = JobFilter(**{**wanted.__dict__, "state": State.DEAD, "error_group": found["group"]})
    assert reading.ids(connection, within, 10) == [mine]
    elsewhere = JobFilter(**{**within.__dict__, "type": "other"})
    assert reading.ids(connection, elsewhere, 10) == []


def test_what_died_before_there_were_groups(connection: Connection) -> None:
    """They are one, none, and can be chosen like one; also of a job whose attempts are gone."""
    old = [die(connection, "card 1 refused", grouped=False) for _ in range(2)]
    new = die(connection, "card 1 refused", ago=1)
    bare = put(connection, "dead", subject="s")
    found, _ = failures.groups(connection, DEAD, 10)
    assert {row["group"] for row in found} == {
        "none",
        group_of("Refused", None, "card 1 refused", STACK).id,
    }
    none = JobFilter(state=State.DEAD, error_group=reading.UNGROUPED)
    assert sorted(reading.ids(connection, none, 10)) == [*old, bare]
    assert reading.ids(connection, JobFilter(**{**none.__dict__, "subject": "s"}), 10) == [bare]
    operating.discard(connection, old, Order("ann", "old"))
    (row,) = (row for row in failures.groups(connection, DEAD, 10)[0] if row["group"] == "none")
    assert (row["error_class"], row["message"], row["frame"]) == ("unknown", "", None)
    assert new


# Replayed with other arguments --------------------------------------------------------------------

ORDER = Order("ann@ops", "the id was wrong", {"ids": [1]})


def args_of(connection: Connection, job_id: int) -> object:
    (row,) = reading.jobs(connection, [job_id])
    return row["args"]


@pytest.mark.parametrize(
    ("edit", "args"),
    [
        (Edit(set={"invoice_id": 7}), {"invoice_id": 7, "name": "x", "old": None}),
        (Edit(set={"invoice_id": {"a": [1, None]}}, unset=["old", "absent"]),
         {"invoice_id": {"a": [1, None]}, "name": "x"}),
        (Edit(args={"other": "Hà Nội"}), {"other": "Hà Nội"}),
        (Edit(args={}), {}),
        (Edit(), {"invoice_id": 1842, "name": "x", "old": None}),
    ],
)  # fmt: skip
def test_replayed_with_other_arguments(
    connection: Connection, edit: Edit, args: dict[str, object]
) -> None:
    """They are what was typed; what they were is kept, with who changed them and why."""
    before = {"invoice_id": 1842, "name": "x", "old": None}
    job_id = put(connection, "dead", args=json.dumps(before), attempt=5)
    assert operating.replay(connection, [job_id], ORDER, edit) == [job_id]
    assert args_of(connection, job_id) == args
    rows = connection.execute(
        "SELECT action, actor, target, count, reason FROM audit ORDER BY id"
    ).fetchall()
    changed = args != before
    assert [row["action"] for row in rows] == [*(["edit"] if changed else []), "replay"]
    assert {(row["actor"], row["reason"], row["count"]) for row in rows} == {
        ("ann@ops", "the id was wrong", 1)
    }
    if changed:
        assert rows[0]["target"] == {"job": job_id, "args": before}
    assert rows[-1]["target"]["jobs"] == [job_id]


def test_arguments_that_would_be_too_large(connection: Connection) -> None:
    """None of the batch is changed or queued; and what was large may stay so."""
    small = put(connection, "dead", args='{"x": 1}')
    large = put(connection, "dead", args=json.dumps({"x": "y" * 60_000}))
    edit = Edit(set={"z": "z" * 10_000})
    with pytest.raises(InvalidJob, match=rf"of #{large} would be \d+ bytes, more than"):
        operating.replay(connection, [small, large], ORDER, edit)
    assert args_of(connection, small) == {"x": 1}
    assert connection.execute("SELECT count(*) AS n FROM audit").fetchone() == {"n": 0}
    assert operating.replay(connection, [large], ORDER, Edit(set={"x": "y" * 60_000})) == [large]
    with pytest.raises(InvalidJob, match="NUL"):
        operating.replay(connection, [small], ORDER, Edit(set={"x": "\0"}))


# Given up -----------------------------------------------------------------------------------------


def test_a_discarded_job_is_history(connection: Connection) -> None:
    """With what it died of; its key is free at once; somebody said why."""
    job_id = put(connection, "dead", key="k", subject="s", last_error="boom", failure_class="E")
    assert operating.discard(connection, [job_id, 10**9], ORDER) == [job_id]
    assert operating.discard(connection, [job_id], ORDER) == []
    shown = reading.job(connection, job_id)
    assert shown is not None
    assert (shown["state"], shown["last_error"], shown["failure_class"]) == (
        "discarded", "boom", "E",
    )  # fmt: skip
    assert shown["finished_at"] is not None
    assert connection.execute("SELECT count(*) AS n FROM placement_violations()").fetchone() == {
        "n": 0
    }
    again = put(connection, key="k")
    assert again != job_id
    (row,) = connection.execute("SELECT action, target, reason FROM audit").fetchall()
    assert (row["action"], row["reason"]) == ("discard", ORDER.reason)
    assert row["target"] == {"asked": {"ids": [1]}, "jobs": [job_id]}


def test_what_comes_after_a_discarded_job(connection: Connection) -> None:
    """Is cancelled with it if that was said, and else says that nothing can let it go."""
    parent = put(connection, "dead")
    made = connection.execute(
        "SELECT job_id FROM enqueue_many(%s::jsonb)",
        (
            json.dumps(
                [{"type": "t", "after": [parent], "on_dead": on} for on in ("cancel", "hold")]
            ),
        ),
    ).fetchall()
    cancel, hold = (row["job_id"] for row in made)
    connection.execute("SELECT cancel_children(%s)", ([10**9],))  # nobody's
    assert operating.discard(connection, [parent], ORDER) == [parent]
    (first, second) = reading.jobs(connection, [cancel, hold])
    assert (first["state"], first["failure_class"]) == ("cancelled", "dependency")
    assert (second["state"], second["stuck"]) == ("blocked", True)


def test_a_replay_keeps_its_limit(connection: Connection) -> None:
    """A job with a limit key is let in like any other, by promotion."""
    job_id = put(connection, "dead", limit_key="bank")
    assert operating.replay(connection, [job_id], ORDER) == [job_id]
    assert connection.execute("SELECT count(*) AS n FROM ready").fetchone() == {"n": 0}
    assert connection.execute("SELECT job_id FROM scheduled").fetchall() == [{"job_id": job_id}]


def test_two_people_press_different_buttons(connection: Connection, database: str) -> None:
    """One replays what the other gives up, in any order and overlap: each job is moved once, by
    the one who was told so, and the audit log adds up."""
    made = [put(connection, "dead", key=str(n)) for n in range(40)]
    told: dict[str, list[int]] = {"replay": [], "discard": []}
    failed: list[BaseException] = []

    def press(button: str, seed: int) -> None:
        chance = random.Random(seed)
        try:
            with reading.connect(database, "jobctl") as other:
                for _ in range(12):
                    batch = chance.sample(made, 7)
                    verb = operating.replay if button == "replay" else operating.discard
                    told[button] += verb(other, batch, ORDER)
        except BaseException as error:
            failed.append(error)

    threads = [
        threading.Thread(target=press, args=(("replay", "discard")[n % 2], n)) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    moved = told["replay"] + told["discard"]
    assert len(moved) == len(set(moved))
    states = {row["id"]: row["state"] for row in reading.jobs(connection, made)}
    assert {job_id for job_id, state in states.items() if state == "queued"} == set(told["replay"])
    assert {job_id for job_id, state in states.items() if state == "discarded"} == set(
        told["discard"]
    )
    rows = connection.execute(
        "SELECT action, sum(count) AS jobs FROM audit GROUP BY action"
    ).fetchall()
    assert {row["action"]: row["jobs"] for row in rows} == {
        button: len(ids) for button, ids in told.items() if ids
    }
    assert connection.execute("SELECT * FROM placement_violations()").fetchall() == []


def test_nobody_is_given_up_without_a_reason(connection: Connection) -> None:
    """Whatever language asks."""
    job_id = put(connection, "dead")
    for reason in (None, "", "  "):
        with pytest.raises(InvalidJob, match="for a reason"):
            operating.discard(connection, [job_id], Order("ann", reason))
    assert reading.ids(connection, DEAD, 10) == [job_id]


def test_no_leader_has_made_the_day(connection: Connection) -> None:
    """A laptop that was asleep for a month has no partition for today."""
    job_id = put(connection, "dead")
    day = datetime.now(UTC).strftime("%Y%m%d")
    connection.execute(f"DROP TABLE history_{day}".encode())
    assert operating.discard(connection, [job_id], ORDER) == [job_id]
