"""No limit is ever exceeded, none leaks, and who waits is let in by whoever leaves."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic, sleep

import psycopg
import pytest
from hypothesis.stateful import run_state_machine_as_test

import jobctl
from jobctl.supervisor.dispatch import NEAREST_MOMENT_SECONDS
from jobctl.supervisor.outcomes import (
    Cause,
    Crashed,
    Failed,
    HandedBack,
    Interrupted,
    Lost,
    Snoozed,
)
from tests import claiming
from tests.claiming import (
    Connection,
    claim,
    enqueue,
    register,
    run,
    states,
    succeed,
    violations,
)
from tests.exploring import explore, find
from tests.store.limit_machine import LimitMachine
from tests.store.limiting import admit, end, held, set_limit, waiting

SESSION = 7


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with claiming.connect(database) as connection:
        register(connection, SESSION)
        yield connection


def test_only_so_many_of_a_key_are_let_in(conn: Connection) -> None:
    """Three places: three may run, the others wait, and say what for."""
    set_limit(conn, "api", 3)
    jobs = enqueue(conn, 5, limit_key="api")
    assert set(states(conn).values()) == {"blocked"}
    assert admit(conn) == 3
    assert [one.job_id for one in claim(conn, SESSION)] == jobs[:3]
    assert [states(conn)[job] for job in jobs[3:]] == ["blocked"] * 2
    assert violations(conn) == []


def test_nobody_looks_again_for_nothing(conn: Connection) -> None:
    """Where no moment is planned, whoever leaves lets in the next: no reason to come back."""
    assert run(conn, "admit") == [(0, None)]
    set_limit(conn, "api", 1)
    enqueue(conn, 3, limit_key="api")
    assert run(conn, "admit") == [(1, None)]
    assert run(conn, "admit") == [(0, None)]


def test_who_leaves_lets_in_the_next(conn: Connection) -> None:
    """In the transaction that frees the place, in their order, without anybody looking."""
    set_limit(conn, "api", 2)
    jobs = enqueue(conn, 5, limit_key="api")
    admit(conn)
    claims = claim(conn, SESSION)
    succeed(conn, claims[:1])
    assert [one.job_id for one in claim(conn, SESSION)] == [jobs[2]]
    end(conn, claims[1:], Failed("E", "why", permanent=True))
    assert [one.job_id for one in claim(conn, SESSION)] == [jobs[3]]
    assert held(conn, "api") == 2
    assert violations(conn) == []


def test_a_retry_waits_in_its_turn(conn: Connection) -> None:
    """It has left its place, and comes in behind those who waited before it."""
    set_limit(conn, "api", 1)
    first, second = enqueue(conn, 2, limit_key="api")
    admit(conn)
    end(conn, claim(conn, SESSION), Failed("E", "why"))
    claims = claim(conn, SESSION)
    assert [one.job_id for one in claims] == [second]
    run(conn, "promote", most=10, within=None)
    assert (states(conn)[first], admit(conn)) == ("blocked", 0)
    succeed(conn, claims)
    assert [one.job_id for one in claim(conn, SESSION)] == [first]
    assert violations(conn) == []


def test_what_is_handed_back_keeps_its_place(conn: Connection) -> None:
    """A drain does not make a job queue up again."""
    set_limit(conn, "api", 1)
    first, _ = enqueue(conn, 2, limit_key="api")
    admit(conn)
    for cause in (HandedBack(), Interrupted("drain"), Lost("its host is gone")):
        end(conn, claim(conn, SESSION), cause)
        assert (states(conn)[first], held(conn, "api")) == ("queued", 1)
    assert [one.job_id for one in claim(conn, SESSION)] == [first]


@pytest.mark.parametrize("cause", [Snoozed(60.0), Failed("E", "why"), Crashed("killed")])
def test_who_does_not_run_for_a_while_leaves_his_place(conn: Connection, cause: Failed) -> None:
    """A backoff of an hour holds up nobody."""
    set_limit(conn, "api", 1)
    _, second = enqueue(conn, 2, limit_key="api")
    admit(conn)
    end(conn, claim(conn, SESSION), cause)
    assert [one.job_id for one in claim(conn, SESSION)] == [second]


def test_higher_priorities_are_let_in_first(conn: Connection) -> None:
    """The order among those who wait is that of the queues."""
    set_limit(conn, "api", 1)
    enqueue(conn, 2, limit_key="api")
    (urgent,) = enqueue(conn, 1, limit_key="api", priority=3)
    admit(conn)
    assert [one.job_id for one in claim(conn, SESSION)] == [urgent]


def test_a_replay_and_a_retry_now_compete_with_the_others(conn: Connection) -> None:
    """Neither passes the limit, whoever asks for them."""
    set_limit(conn, "api", 1)
    dead, other = enqueue(conn, 2, limit_key="api")
    admit(conn)
    end(conn, claim(conn, SESSION), Failed("E", "why", permanent=True))
    claims = claim(conn, SESSION)
    asked = {"actor": "me", "reason": None, "filter": "{}"}
    assert conn.execute("SELECT * FROM replay_many(%s, 'me')", ([dead],)).fetchall() == [(dead,)]
    run(conn, "promote", most=10, within=None)
    assert (admit(conn), states(conn)) == (0, {dead: "blocked", other: "running"})
    end(conn, claims, Failed("E", "why", retry_after=3600.0))
    assert states(conn)[dead] == "queued"
    assert run(conn, "hasten", ids=[other], **asked) == [(other,)]
    run(conn, "promote", most=10, within=None)
    assert (admit(conn), states(conn)[other]) == (0, "blocked")
    assert violations(conn) == []


def test_a_scheduled_job_is_let_in_when_its_time_has_come(conn: Connection) -> None:
    """It holds no place while it waits for it."""
    set_limit(conn, "api", 1)
    (later,) = enqueue(conn, 1, limit_key="api", delay="0.05s")
    (now,) = enqueue(conn, 1, limit_key="api")
    admit(conn)
    assert states(conn) == {later: "scheduled", now: "queued"}
    conn.execute("SELECT pg_sleep(0.1)")
    run(conn, "promote", most=10, within=None)
    assert states(conn)[later] == "blocked"


def test_a_limit_is_changed_while_it_runs(conn: Connection) -> None:
    """More places are given at once, fewer as soon as those who have them leave."""
    set_limit(conn, "api", 1)
    enqueue(conn, 6, limit_key="api")
    admit(conn)
    set_limit(conn, "api", 4)
    admit(conn)
    claims = claim(conn, SESSION)
    assert len(claims) == 4
    set_limit(conn, "api", 2)
    succeed(conn, claims[:2])
    assert (admit(conn), held(conn, "api"), waiting(conn, "api")) == (0, 2, 2)
    succeed(conn, claims[2:3])
    assert held(conn, "api") == 2


def test_a_limit_of_nothing_stops_a_key(conn: Connection) -> None:
    """And its removal lets everybody in."""
    set_limit(conn, "api", 0)
    enqueue(conn, 3, limit_key="api")
    assert admit(conn) == 0
    conn.execute("SELECT remove_limit('api')")
    assert admit(conn) == 3


def test_a_pattern_gives_each_key_places_of_its_own(conn: Connection) -> None:
    """The longest that fits counts, and the key's own rule before all."""
    set_limit(conn, "tenant:*", 1)
    set_limit(conn, "tenant:big*", 2)
    set_limit(conn, "tenant:big1", 3)
    for tenant in ("a", "b", "big1", "big2"):
        enqueue(conn, 5, limit_key=f"tenant:{tenant}")
    admit(conn)
    assert {t: held(conn, f"tenant:{t}") for t in ("a", "b", "big1", "big2")} == {
        "a": 1, "b": 1, "big1": 3, "big2": 2,
    }  # fmt: skip


def test_a_key_without_a_rule_is_not_limited(conn: Connection) -> None:
    """Naming one costs nothing until somebody sets it; more than one round lets in are not lost."""
    enqueue(conn, 1500, limit_key="nobody-set-me")
    assert admit(conn) + admit(conn) == 1500


def test_an_enqueue_that_stays_open_holds_up_nobody(conn: Connection, database: str) -> None:
    """Neither its key's lock nor its jobs: what it does is not seen before it commits."""
    set_limit(conn, "api", 2)
    enqueue(conn, 1, limit_key="api")
    admit(conn)
    with claiming.connect(database) as slow, slow.transaction():
        enqueue(slow, 3, limit_key="api")
        succeed(conn, claim(conn, SESSION))
        enqueue(conn, 1, limit_key="api")
        assert admit(conn) == 1
    assert admit(conn) == 1
    assert held(conn, "api") == 2


def test_a_key_in_somebodys_hands_is_not_forgotten(conn: Connection, database: str) -> None:
    """Whoever finds it locked leaves a note, and the place is given once it is free."""
    set_limit(conn, "api", 1)
    enqueue(conn, 2, limit_key="api")
    admit(conn)
    claims = claim(conn, SESSION)
    with claiming.connect(database) as other, other.transaction():
        other.execute("SELECT FROM limit_state FOR UPDATE")
        assert succeed(conn, claims) == {claims[0].job_id}  # and has not waited
        assert (admit(conn), held(conn, "api")) == (0, 0)
        # It is looked at again soon, and nobody is rung for: it may stay locked for long.
        rung = conn.execute("SELECT last_value FROM ring_at").fetchone()
        conn.execute("SELECT pg_sleep(0.05)")
        ((moved, next_in),) = run(conn, "admit")
        assert (moved, next_in) == (0, pytest.approx(0.1))
        assert conn.execute("SELECT last_value FROM ring_at").fetchone() == rung
    assert (admit(conn), held(conn, "api")) == (1, 1)


def test_places_that_nobody_holds_are_mended(conn: Connection) -> None:
    """Somebody has deleted rows by hand; the leader gives the place to the next."""
    set_limit(conn, "api", 1)
    first, second = enqueue(conn, 2, limit_key="api")
    admit(conn)
    conn.execute("DELETE FROM ready WHERE job_id = %s", (first,))
    conn.execute("DELETE FROM job WHERE id = %s", (first,))
    assert run(conn, "mend_limits") == [(1, 1)]
    assert states(conn) == {second: "queued"}
    assert violations(conn) == []


def test_429_holds_the_whole_key(conn: Connection) -> None:
    """Who was told to come back later speaks for all that call the same partner."""
    set_limit(conn, "api", 2)
    enqueue(conn, 4, limit_key="api")
    admit(conn)
    one, other = claim(conn, SESSION)
    end(conn, [one], Failed("RateLimited", "429", retry_after=3600.0, hold_limit=True))
    succeed(conn, [other])
    assert (admit(conn), held(conn, "api"), waiting(conn, "api")) == (0, 0, 2)
    conn.execute("SELECT release_limit('api')")
    assert admit(conn) == 2


def test_a_rate_plans_moments_ahead(conn: Connection) -> None:
    """A hundred a second, three at once: the starts are 10 ms apart behind the first three, and
    only what is near is planned."""
    set_limit(conn, "api", per_seconds=0.01, burst=3)
    enqueue(conn, 100, limit_key="api")
    assert 21 <= admit(conn) <= 23
    ready = conn.execute("SELECT count(*) FROM ready").fetchone()
    gaps = conn.execute(
        "SELECT extract(epoch FROM run_at - lag(run_at) OVER (ORDER BY run_at))::float8"
        " FROM scheduled"
    ).fetchall()
    assert ready == (3,)
    assert all(gap == pytest.approx(0.01) for (gap,) in gaps[1:])
    ((_, next_in),) = run(conn, "admit")
    assert 0 < next_in <= 1
    assert violations(conn) == []


def test_who_must_wait_does_not_catch_up_with_who_went_at_once(conn: Connection) -> None:
    """A job that is let in at once has still to be claimed. Were the next one planned exactly a
    step after it, a slow claim would make one too many of a second."""
    set_limit(conn, "api", per_seconds=0.05, burst=3)
    enqueue(conn, 3, limit_key="api")
    admit(conn)
    ((at_once,),) = conn.execute("SELECT clock_timestamp()").fetchall()
    enqueue(conn, 1, limit_key="api")
    admit(conn)
    ((waits,),) = conn.execute("SELECT run_at FROM scheduled").fetchall()
    assert (waits - at_once).total_seconds() > 0.05 + 0.05


def test_nobody_is_planned_for_sooner_than_dispatchers_look(conn: Connection) -> None:
    """One of a burst that waits only for who went before: whole `slack`, too. A dispatcher
    that has let somebody in does not look for less."""
    set_limit(conn, "api", per_seconds=0.05, burst=3)
    enqueue(conn, 2, limit_key="api")
    admit(conn)
    ((before,),) = conn.execute("SELECT clock_timestamp()").fetchall()
    enqueue(conn, 1, limit_key="api")
    admit(conn)
    ((waits,),) = conn.execute("SELECT run_at FROM scheduled").fetchall()
    assert (waits - before).total_seconds() > NEAREST_MOMENT_SECONDS


def test_what_nobody_takes_does_not_pile_up(conn: Connection) -> None:
    """All slots are busy, or the queue is paused: what has been let in meanwhile starts in one go
    when that is over, so it must not be all that the rate would have allowed."""
    set_limit(conn, "api", per_seconds=0.02, burst=3)
    enqueue(conn, 500, limit_key="api")
    admit(conn)
    ended = monotonic() + 2
    while monotonic() < ended:
        run(conn, "promote", most=1000, within=None)
        run(conn, "admit")
        sleep(0.02)
    assert held(conn, "api") <= 3 + 0.5 / 0.02  # two seconds would have allowed a hundred
    assert run(conn, "admit")[0][1] is not None  # somebody will look again


def test_a_rate_far_below_one_a_second_sleeps_till_then(conn: Connection) -> None:
    """Two an hour: nobody looks again for half an hour, less what is planned ahead."""
    set_limit(conn, "api", per_seconds=1800.0)
    enqueue(conn, 2, limit_key="api")
    assert admit(conn) == 1
    ((moved, next_in),) = run(conn, "admit")
    assert moved == 0
    assert 1700 < next_in < 1800


def test_two_hosts_do_not_double_a_rate(conn: Connection, database: str) -> None:
    """Whoever asks, and however often: the plan is one."""
    set_limit(conn, "api", per_seconds=0.01)
    enqueue(conn, 200, limit_key="api")
    began = monotonic()
    with claiming.connect(database) as other:
        moved = [admit(connection) for connection in (conn, other) * 5]
    assert sum(moved) <= 1 + (0.2 + monotonic() - began) / 0.01


def test_a_brake_takes_places_and_gives_them_back(conn: Connection) -> None:
    """Half after a run of failures, never the last; all are back when it works."""
    set_limit(conn, "api", 8, brake=True)
    enqueue(conn, 400, limit_key="api")
    admit(conn)
    end(conn, claim(conn, SESSION), Failed("E", "why", retry_after=3600.0))
    ((braked,),) = conn.execute("SELECT braked_to FROM limits").fetchall()
    assert (braked, held(conn, "api")) == (4, 4)
    conn.execute("UPDATE limit_state SET judged_at = judged_at - interval '5 min'")
    for _ in range(40):
        succeed(conn, claim(conn, SESSION))
    ((braked,),) = conn.execute("SELECT braked_to FROM limits").fetchall()
    assert (braked, held(conn, "api")) == (None, 8)


def test_without_a_brake_failures_change_nothing(conn: Connection) -> None:
    """It is off by default."""
    set_limit(conn, "api", 8)
    enqueue(conn, 20, limit_key="api")
    admit(conn)
    end(conn, claim(conn, SESSION), Failed("E", "why", retry_after=3600.0))
    assert held(conn, "api") == 8


@pytest.mark.parametrize("key", ["tenant:*", "a*b", "a\n", ""])
def test_a_pattern_is_no_key(conn: Connection, key: str) -> None:
    """A job that names one by mistake would have places of its own that nobody meant."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="its limit must be"):
        enqueue(conn, 1, limit_key=key)
    with pytest.raises(jobctl.InvalidJob, match="its limit"):
        jobctl.enqueue(conn, "t", limit=key)


# Many at once -------------------------------------------------------------------------------------

PLACES, JOBS, HOSTS = 3, 240, 4


class Watch(threading.Thread):
    """Looks at one snapshot after another: how many places were held at most."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.most = 0
        self._dsn = dsn
        self.over = threading.Event()

    def run(self) -> None:
        with claiming.connect(self._dsn) as connection:
            while not self.over.is_set():
                row = connection.execute(
                    "SELECT count(*)"
                    " FROM (SELECT job_id FROM claim UNION ALL SELECT job_id FROM ready) p"
                ).fetchone()
                assert row is not None
                self.most = max(self.most, row[0])


def _work(dsn: str, session: int, done: threading.Event, seed: int) -> None:
    """One host: it claims, ends what it has in every way, and loses its connection now and then."""
    dice = random.Random(seed)
    causes: list[Cause] = [
        Failed("E", "why"),
        HandedBack(),
        Crashed("killed"),
        Interrupted("drain"),
        Snoozed(0.0),
    ]
    with ExitStack() as stack:
        connection = stack.enter_context(claiming.connect(dsn))
        while not done.is_set():
            try:
                run(connection, "promote", most=100, within=None)
                admit(connection)
                for one in claim(connection, session, most=dice.randint(1, 4)):
                    if dice.random() < 0.7:
                        succeed(connection, [one])
                    else:
                        end(connection, [one], dice.choice(causes))
            except psycopg.OperationalError:
                connection = stack.enter_context(claiming.connect(dsn))


def _storm(database: str, running: int | None = PLACES) -> int:
    with claiming.connect(database) as conn:
        set_limit(conn, "api", running)
        for number in range(HOSTS):
            register(conn, SESSION + number, host=str(number))
        enqueue(conn, JOBS, limit_key="api", max_attempts=1_000_000)
        done = threading.Event()
        watch = Watch(database)
        hosts = [
            threading.Thread(target=_work, args=(database, SESSION + n, done, n))
            for n in range(HOSTS)
        ]
        for thread in (watch, *hosts):
            thread.start()
        try:
            _wait_till_all_have_ended(conn)
        finally:
            done.set()
            for host in hosts:
                host.join()
            watch.over.set()
            watch.join()
        assert violations(conn) == []
        assert held(conn, "api") == 0
        return watch.most


def _wait_till_all_have_ended(conn: Connection) -> None:
    """And now and then somebody's connection is cut, and claims stay with nobody."""
    for turn in range(6000):
        left = conn.execute(
            "SELECT count(*) FROM job AS j WHERE NOT EXISTS "
            "(SELECT FROM dead AS d WHERE d.job_id = j.id)"
        ).fetchone()
        if left == (0,):
            return
        conn.execute("SELECT pg_sleep(0.02)")
        if turn % 10 == 9:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database()"
                " AND application_name = 'jobctl test' AND pid <> pg_backend_pid()"
                " AND query LIKE '%admit_arrivals%' LIMIT 1"
            )
            _reclaim(conn)
    raise AssertionError("they do not end")


def _reclaim(conn: Connection) -> None:
    """A claim whose answer was lost: its host hands it back after a reconnect."""
    rows = conn.execute(
        "SELECT job_id, session_id, token FROM claim WHERE claimed_at < now() - interval '1 s'"
    ).fetchall()
    for job, session, token in rows:
        ending = {
            "job_id": job,
            "session_id": session,
            "token": token,
            "place": "front",
            "spent": 0,
            "crashed": 0,
            "failed": False,
        }
        run(conn, "settle_ended", jobs=[job], endings=json.dumps([ending]))


@contextmanager
def _admit_altered(database: str, *changes: tuple[str, str]) -> Iterator[None]:
    """The function with other words in it, until the end of the block."""
    with claiming.connect(database) as conn:
        ((text,),) = conn.execute("SELECT pg_get_functiondef('admit'::regproc)").fetchall()
        altered = text
        for old, new in changes:
            assert old in altered
            altered = altered.replace(old, new)
        conn.execute(altered.encode())
        try:
            yield
        finally:
            conn.execute(text.encode())


NO_LOCK = ("        FOR UPDATE SKIP LOCKED\n    ) AS l;", "    ) AS l;")


def _two_let_in_at_once(database: str) -> int:
    """One has let in and not committed when the other looks; how many hold a place afterwards."""
    with claiming.connect(database) as one, claiming.connect(database) as other:
        set_limit(one, "api", 0)
        enqueue(one, 3, limit_key="api")
        admit(one)  # the key is known from now on
        # By hand: nothing but the lock is to hold up the second.
        one.execute("UPDATE limit_state SET max_running = 1, admit_at = NULL")
        with one.transaction():
            one.execute("SELECT admit('{api}')")
            other.execute("SELECT admit('{api}')")
        return held(one, "api")


def test_two_that_let_in_at_once_count_the_same_free_place_once(database: str) -> None:
    """The second finds the key locked, and leaves it to whoever looks next."""
    assert _two_let_in_at_once(database) == 1


def test_a_missing_lock_of_the_key_is_noticed(database: str) -> None:
    """A control of the test above."""
    with _admit_altered(database, NO_LOCK):
        assert _two_let_in_at_once(database) == 2


def test_hosts_that_let_in_at_once_never_exceed_a_limit(database: str) -> None:
    """Retries, crashes, snoozes, hand-backs, cut connections: never more than there are places, and
    all of them come back."""
    assert _storm(database) == PLACES


# Whatever happens --------------------------------------------------------------------------------


def _machine(database: str) -> type[LimitMachine]:
    return type("Machine", (LimitMachine,), {"dsn": database})


def test_limits_hold_under_crashes_reaps_cancels_replays_and_changes(database: str) -> None:
    """Never exceeded, nobody forgotten, and every place comes back."""
    run_state_machine_as_test(_machine(database), settings=explore(25, steps=30))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("floor(s.braked_to)::integer) - held.n", "floor(s.braked_to)::integer) + 1 - held.n"),
        ("n.job_id, n.limit_key FROM next AS n", "n.job_id, n.limit_key FROM next AS n LIMIT 1"),
    ],
    ids=["one place too many", "places that are not taken"],
)  # fmt: skip
def test_the_machine_notices_what_it_is_there_for(database: str, old: str, new: str) -> None:
    """Controls of the test above."""
    with _admit_altered(database, (old, new)), pytest.raises(AssertionError):
        run_state_machine_as_test(_machine(database), settings=find(100, steps=30))
