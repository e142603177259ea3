"""Jobs that come after others: who waits, who is let go, once, and what becomes of the rest."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import jobctl
from jobctl.store.new_job import new_job
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.outcomes import UNREGISTERED, Cancelled, Cause, Failed, decide
from tests.claiming import Connection, claim, connect, register, run, states, succeed, violations
from tests.waiting import until

SESSION = 7
DEAD = Failed("E", "why", permanent=True)


@pytest.fixture
def store(database: str) -> Iterator[Connection]:
    with connect(database) as connection:
        register(connection, SESSION)
        yield connection
        assert violations(connection) == []


def enqueue(connection: Connection, *jobs: dict[str, Any]) -> list[int]:
    """One call; `type` is `t` if it is not given."""
    written = json.dumps([{"type": "t", **job} for job in jobs])
    rows = connection.execute("SELECT job_id FROM enqueue_many(%s::jsonb) ORDER BY ord", (written,))
    return [row[0] for row in rows]


def end(connection: Connection, held: list[Claimed], cause: Cause) -> None:
    endings = [
        decide(one.job_id, SESSION, one.token, one, UNREGISTERED, cause, 1.0).to_dict()
        for one in held
    ]
    jobs = [one.job_id for one in held]
    run(connection, "settle_ended", jobs=jobs, endings=json.dumps(endings))


def take(connection: Connection, *jobs: int) -> list[Claimed]:
    """Claims everything, and returns these."""
    held = {one.job_id: one for one in claim(connection, SESSION)}
    return [held[job] for job in jobs]


def sweep(connection: Connection) -> tuple[int, int]:
    ((upto, released, cancelled),) = run(connection, "sweep_children", since=0, most=1000)
    assert upto is None
    return released, cancelled


def test_a_chain_goes_step_by_step(store: Connection) -> None:
    """Each waits for the one before, and is due when that has succeeded."""
    a, b, c = enqueue(store, {}, {"after": [{"item": 1}]}, {"after": [{"item": 2}]})
    assert states(store) == {a: "queued", b: "blocked", c: "blocked"}
    succeed(store, take(store, a))
    assert states(store) == {a: "succeeded", b: "queued", c: "blocked"}
    succeed(store, take(store, b))
    succeed(store, take(store, c))
    assert set(states(store).values()) == {"succeeded"}


def test_several_parents_that_finish_in_one_batch_join_once(store: Connection) -> None:
    """One statement, three parents, one child."""
    *parents, child = enqueue(store, {}, {}, {}, {"after": [{"item": 1}, {"item": 2}, {"item": 3}]})
    held = take(store, *parents)
    assert succeed(store, held) == set(parents)
    assert states(store)[child] == "queued"
    assert succeed(store, held) == set()
    assert len(claim(store, SESSION)) == 1


def test_parents_that_finish_on_two_hosts_at_once_join_once(
    database: str, store: Connection
) -> None:
    """The second waits for the first, and sees that it was the last."""
    a, b, child = enqueue(store, {}, {}, {"after": [{"item": 1}, {"item": 2}]})
    one, other = take(store, a, b)
    with connect(database) as second:
        with store.transaction():
            succeed(store, [one])
            late = threading.Thread(target=succeed, args=(second, [other]))
            late.start()
            with connect(database, {}) as observer:
                until(lambda: _waits_for_a_lock(observer), what="the second to wait")
        late.join()
    assert states(store)[child] == "queued"


def _waits_for_a_lock(connection: Connection) -> bool:
    rows = connection.execute(
        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND datname = current_database()"
    ).fetchall()
    return bool(rows)


def test_whoever_holds_a_child_for_long_holds_up_no_settle(
    database: str, store: Connection
) -> None:
    """Its parent is settled all the same, and the sweep lets it go once it can."""
    a, child, other = enqueue(store, {}, {"after": [{"item": 1}]}, {"after": [{"item": 1}]})
    held = take(store, a)
    with psycopg.connect(database) as somebody:
        somebody.execute("SELECT FROM jobctl.blocked WHERE job_id = %s FOR UPDATE", (child,))
        assert succeed(store, held) == {a}
        assert states(store) == {a: "succeeded", child: "blocked", other: "queued"}
        assert sweep(store) == (0, 0)
    assert sweep(store) == (1, 0)
    assert states(store)[child] == "queued"
    assert sweep(store) == (0, 0)


def test_a_child_whose_transaction_was_open_when_its_parent_ended_is_swept(
    database: str, store: Connection
) -> None:
    """Its edge could not be seen then; both for a success and for a death."""
    good, bad = enqueue(store, {}, {})
    with psycopg.connect(database) as somebody:
        somebody.execute("SET search_path TO jobctl")
        (freed,) = _in(somebody, {"after": [good]})
        held_on, cancelled = _in(somebody, {"after": [bad]}, {"after": [bad], "on_dead": "cancel"})
        held = take(store, good, bad)
        succeed(store, held[:1])
        end(store, held[1:], DEAD)
    assert {states(store)[job] for job in (freed, held_on, cancelled)} == {"blocked"}
    assert sweep(store) == (1, 1)
    assert states(store) | {good: "", bad: ""} == {
        good: "", bad: "", freed: "queued", held_on: "blocked", cancelled: "cancelled",
    }  # fmt: skip


def _in(connection: psycopg.Connection[Any], *jobs: dict[str, Any]) -> list[int]:
    return enqueue(connection, *jobs)


def test_a_child_that_is_to_run_later_is_scheduled(store: Connection) -> None:
    """Its own time is respected; one whose time has passed is due from now on."""
    a, later, now = enqueue(
        store, {}, {"after": [{"item": 1}], "delay_seconds": 3600}, {"after": [{"item": 1}]}
    )
    store.execute("UPDATE job SET run_at = now() - interval '1 h' WHERE id = %s", (now,))
    succeed(store, take(store, a))
    assert states(store) == {a: "succeeded", later: "scheduled", now: "queued"}
    row = store.execute(
        "SELECT run_at > now() - interval '1 min' FROM job WHERE id = %s", (now,)
    ).fetchone()
    assert row == (True,)


def test_a_parent_that_has_succeeded_is_satisfied(store: Connection) -> None:
    """In history too: the child goes at once, or waits for the others alone."""
    a, b = enqueue(store, {}, {})
    succeed(store, take(store, a))
    free, waits = enqueue(store, {"after": [a]}, {"after": [a, b]})
    assert states(store)[free] == "queued"
    assert states(store)[waits] == "blocked"
    assert _waits(store, waits) == 1


def _waits(connection: Connection, job: int) -> int | None:
    row = connection.execute("SELECT waits_for FROM jobs WHERE id = %s", (job,)).fetchone()
    assert row is not None
    return None if row[0] is None else int(row[0])


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ([999_999], "there is no such job"),
        ([1.5], "must hold ids"),
        (["1"], "must hold ids"),
        ([{"item": 1}], "must hold ids"),
        ([{"item": 0}], "must hold ids"),
        ([{"items": 1}], "must hold ids"),
        ([None], "must hold ids"),
        (7, "must be an array"),
        (list(range(1, 1002)), "more than 1000"),
    ],
)
def test_what_is_no_parent_is_refused(store: Connection, after: Any, why: str) -> None:
    """With a sentence; and an item cannot come after itself, or after a later one."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"job 1 of this call.*{why}"):
        enqueue(store, {"after": after})
    assert states(store) == {}


def test_a_guessed_id_of_the_same_call_is_refused(store: Connection) -> None:
    """What a job comes after was there before it: no circle can be made."""
    (before,) = enqueue(store, {})
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no such job"):
        enqueue(store, {"after": [before + 2]}, {"after": [before + 1]})


def test_a_parent_that_was_cancelled(store: Connection) -> None:
    """Who would wait for it for ever is refused; who is to be cancelled with it is, at once, with
    all that comes after it in the same call."""
    (a,) = enqueue(store, {})
    end(store, take(store, a), Cancelled())
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="was cancelled and will never"):
        enqueue(store, {"after": [a]})
    with_it, then, held = enqueue(
        store,
        {"after": [a], "on_dead": "cancel", "key": "k"},
        {"after": [{"item": 1}], "on_dead": "cancel"},
        {"after": [{"item": 1}]},
    )
    found = states(store)
    assert (found[with_it], found[then], found[held]) == ("cancelled", "cancelled", "blocked")
    row = store.execute(
        "SELECT failure_class, last_error FROM jobs WHERE id = %s", (with_it,)
    ).fetchone()
    assert row == ("dependency", f"job {a}, which it comes after, did not succeed")
    assert _key_is_over(store, "k")


def _key_is_over(connection: Connection, key: str) -> bool:
    row = connection.execute("SELECT until IS NOT NULL FROM job_key WHERE key = %s", (key,))
    return row.fetchall() == [(True,)]


@pytest.mark.parametrize("cause", [DEAD, Cancelled()], ids=["dead", "cancelled"])
def test_a_parent_that_fails_for_good(store: Connection, cause: Cause) -> None:
    """hold: the child waits, and is stuck; cancel: it is cancelled, and what comes after it, and
    their keys are those of jobs that have ended."""
    a, holds, goes, too = enqueue(
        store,
        {},
        {"after": [{"item": 1}]},
        {"after": [{"item": 1}], "on_dead": "cancel", "key": "k"},
        {"after": [{"item": 3}], "on_dead": "cancel"},
    )
    end(store, take(store, a), cause)
    found = states(store)
    assert (found[holds], found[goes], found[too]) == ("blocked", "cancelled", "cancelled")
    word = "is dead" if cause is DEAD else "was cancelled"
    row = store.execute("SELECT stuck, stuck_because FROM jobs WHERE id = %s", (holds,)).fetchone()
    assert row == (True, f"job {a}, which it comes after, {word}")
    assert _key_is_over(store, "k")


def test_a_replayed_parent_lets_its_child_go_on(store: Connection) -> None:
    """It was held, not lost."""
    a, child = enqueue(store, {}, {"after": [{"item": 1}]})
    end(store, take(store, a), DEAD)
    store.execute("SELECT replay(%s)", (a,))
    row = store.execute("SELECT stuck FROM jobs WHERE id = %s", (child,)).fetchone()
    assert row == (False,)
    succeed(store, take(store, a))
    assert states(store)[child] == "queued"


def test_a_key_that_is_held_is_a_parent_like_any(store: Connection) -> None:
    """The first of a chain exists already: what comes after it waits for that one. A child that
    exists stays as it was."""
    (a,) = enqueue(store, {"key": "a"})
    again, child = enqueue(store, {"key": "a"}, {"key": "b", "after": [{"item": 1}]})
    assert again == a
    assert enqueue(store, {"key": "b", "after": [999_999]}) == [child]
    assert store.execute("SELECT parent, child FROM edges").fetchall() == [(a, child)]
    succeed(store, take(store, a))
    assert states(store)[child] == "queued"


def test_many_children_go_in_portions(store: Connection) -> None:
    """A settle lets a thousand go and leaves the rest to the sweep: no other ending waits long."""
    (a, *_) = enqueue(store, {}, *({"after": [{"item": 1}]} for _ in range(2500)))
    succeed(store, take(store, a))
    assert list(states(store).values()).count("queued") == 1000
    # A step looks at so many of those that are blocked; the leader makes one after the other.
    ((upto, released, _),) = run(store, "sweep_children", since=0, most=1000)
    assert released == 1000
    assert upto is not None
    assert sweep(store) == (500, 0)


def test_steps_are_enqueued_with_the_success_alone(store: Connection) -> None:
    """Fenced by the token: nothing if the claim was lost; and an edge says where they come from."""
    (a,) = enqueue(store, {})
    (held,) = take(store, a)
    steps = json.dumps([{"type": "next"}, {"type": "then", "after": [{"item": 1}]}])
    store.execute("UPDATE claim SET token = token + 1")
    assert succeed(store, [held], [steps]) == set()
    assert list(states(store).values()) == ["running"]
    store.execute("UPDATE claim SET token = token - 1")
    assert succeed(store, [held], [steps]) == {a}
    assert sorted(states(store).values()) == ["blocked", "queued", "succeeded"]
    rows = store.execute("SELECT parent FROM edges ORDER BY 1").fetchall()
    assert [row[0] for row in rows] == [a, a, a + 1]


def test_a_step_may_come_after_what_succeeds_in_the_same_batch(store: Connection) -> None:
    """History is written before steps are enqueued."""
    a, b = enqueue(store, {}, {})
    steps = json.dumps([{"type": "next", "after": [b]}])
    assert succeed(store, take(store, a, b), [steps, None]) == {a, b}
    assert sorted(states(store).values()) == ["queued", "succeeded", "succeeded"]


def test_edges_are_kept_as_long_as_history(store: Connection) -> None:
    """And no longer; those of an open job as long as it is."""
    a, child = enqueue(store, {}, {"after": [{"item": 1}]})
    assert run(store, "sweep_edges", keep=0.0, most=10) == []
    succeed(store, take(store, a))
    succeed(store, take(store, child))
    assert run(store, "sweep_edges", keep=0.0, most=10) == []
    store.execute("DELETE FROM history")
    assert run(store, "sweep_edges", keep=3600.0, most=10) == []
    assert run(store, "sweep_edges", keep=0.0, most=10) == [(1,)]


def test_a_child_with_a_limit_is_let_in_by_it(store: Connection) -> None:
    """What it came after lets it go, and its limit lets it in: two things to wait for, one after
    the other."""
    store.execute("SELECT set_limit('bank', max_running => 1)")
    a, one, two = enqueue(
        store,
        {},
        {"after": [{"item": 1}], "limit_key": "bank"},
        {"after": [{"item": 1}], "limit_key": "bank"},
    )
    succeed(store, take(store, a))
    assert [states(store)[job] for job in (one, two)] == ["blocked", "blocked"]
    assert [_waits(store, job) for job in (one, two)] == [0, 0]
    run(store, "admit")
    assert [states(store)[job] for job in (one, two)] == ["queued", "blocked"]
    succeed(store, take(store, one))
    run(store, "admit")
    assert states(store)[two] == "queued"


def test_a_chain_on_an_async_connection(database: str, store: Connection) -> None:
    """The same, awaited."""

    async def story() -> list[int]:
        where = psycopg.conninfo.make_conninfo(database)
        async with await psycopg.AsyncConnection.connect(where) as conn:
            return await jobctl.chain(conn, new_job("a"), new_job("b"), on_dead="cancel")

    a, b = asyncio.run(story())
    assert states(store) == {a: "queued", b: "blocked"}
    end(store, take(store, a), DEAD)
    assert states(store)[b] == "cancelled"


def test_keys_that_run_out_while_one_waits_for_them_are_parents(
    database: str, store: Connection
) -> None:
    """Somebody was quicker to take the keys, and they were over at once: it is our turn after all,
    for those items alone, and everything still comes after what it was to come after."""
    made: list[int] = []
    with psycopg.connect(database) as somebody, connect(database) as other:
        somebody.execute(
            "INSERT INTO jobctl.job_key (type, key, job_id, until)"
            " SELECT 't', k, 999999, now() - interval '1 h' FROM unnest(ARRAY['k', 'l']) AS k"
        )
        jobs: list[dict[str, Any]] = [
            {"type": "plain"},
            {"key": "k"},
            {"key": "l", "after": [{"item": 2}]},
            {"after": [{"item": 1}, {"item": 2}, {"item": 3}]},
        ]
        late = threading.Thread(target=lambda: made.extend(enqueue(other, *jobs)))
        late.start()
        with connect(database, {}) as observer:
            until(lambda: _waits_for_a_lock(observer), what="the enqueue to wait")
        somebody.commit()
        late.join()
    plain, k, el, last = made
    assert states(store) == {plain: "queued", k: "queued", el: "blocked", last: "blocked"}
    edges = store.execute("SELECT parent, child FROM edges ORDER BY child, parent").fetchall()
    assert edges == sorted(
        [(k, el), (plain, last), (k, last), (el, last)], key=lambda e: (e[1], e[0])
    )
