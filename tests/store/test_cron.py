"""Crons in the database: every planned time once, and one definition out of many declarations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any

import pytest

from jobctl.store import operating, reading
from jobctl.store.cron_spec import CronSpec
from jobctl.store.operating import Order
from jobctl.store.reading import Connection
from jobctl.store.statements import sql
from tests.store.standing import put_session

ORDER = Order("test@here", "because")
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
FOR_EVER = {"retire_after": 900.0, "forget_after": 7 * 86_400.0}


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with reading.connect(database, "jobctl") as made:
        yield made


def spec(**words: Any) -> CronSpec:
    given = {"name": "nightly", "type": "report", "schedule": "* * * * * *", **words}
    origin = given.pop("origin", "code")
    return CronSpec.from_words(given, origin)


def declare(connection: Connection, session: int, *specs: CronSpec) -> None:
    crons = json.dumps([one.to_dict() for one in specs])
    connection.execute(sql("declare_crons"), {"session": session, "crons": crons})
    reconcile(connection)


def reconcile(connection: Connection, **limits: float) -> None:
    connection.execute(sql("reconcile_crons"), {**FOR_EVER, **limits})


def entry(connection: Connection, name: str = "nightly") -> dict[str, Any]:
    row = connection.execute("SELECT * FROM cron_entry WHERE name = %s", (name,)).fetchone()
    assert row is not None
    return row


def fire(connection: Connection, moments: list[datetime], name: str = "nightly") -> list[Any]:
    seen = connection.execute(
        "SELECT definition::text AS text FROM cron_entry WHERE name = %s", (name,)
    ).fetchone()
    assert seen is not None
    return connection.execute(
        sql("fire_cron"),
        {
            "name": name, "seen": seen["text"], "as_of": moments[-1], "moments": moments,
            "too_late": None, "missed": 0, "then_at": moments[-1] + timedelta(seconds=1),
        },
    ).fetchall()  # fmt: skip


def on(connection: Connection, **words: Any) -> None:
    """One cron that has been there since long ago."""
    put_session(connection, 1, "alpha")
    declare(connection, 1, spec(**words))
    connection.execute("UPDATE cron_entry SET judged_until = %s", (LONG_AGO,))


def moments(many: int) -> list[datetime]:
    return [LONG_AGO + timedelta(seconds=at + 1) for at in range(many)]


# Firing ----------------------------------------------------------------------------------------


def test_a_planned_time_and_its_job_are_one_thing(connection: Connection) -> None:
    """The job is due when it was planned, and the row names it."""
    on(connection, args={"day": "monday"})
    (row,) = fire(connection, moments(1))
    job = reading.job(connection, row["job_id"])
    assert job is not None
    assert (job["type"], job["args"], job["state"]) == ("report", {"day": "monday"}, "queued")
    assert job["run_at"] == moments(1)[0]
    assert fire(connection, moments(1)) == []
    assert entry(connection)["judged_until"] == moments(1)[0]


def test_a_job_that_is_refused_leaves_no_planned_time_behind(connection: Connection) -> None:
    on(connection, args={"long": "x" * 100})
    with pytest.raises(Exception, match="byte"), connection.transaction():
        connection.execute("SET LOCAL jobctl.max_args_bytes = 10")
        fire(connection, moments(1))
    assert connection.execute("SELECT * FROM cron_fire").fetchall() == []
    assert len(fire(connection, moments(1))) == 1


def test_a_leader_that_was_asleep_does_not_fire_what_was_dealt_with(connection: Connection) -> None:
    """Not even what the policy let go: there is no row to stop it, but the entry knows."""
    on(connection)
    early, late = moments(2)
    assert len(fire(connection, [late])) == 1
    assert fire(connection, [early]) == []


def test_what_was_worked_out_from_another_definition_is_not_fired(connection: Connection) -> None:
    on(connection)
    seen = json.dumps({**entry(connection)["definition"], "type": "other"})
    connection.execute(
        "SELECT * FROM fire_cron('nightly', %s, now(), ARRAY[now()], NULL, 0, NULL)", (seen,)
    )
    assert connection.execute("SELECT * FROM cron_fire").fetchall() == []


def race(dsn: str, many: int, leaders: int) -> dict[str, int]:
    """So many planned times, each by so many leaders in the same moment."""
    barrier = Barrier(leaders)

    def lead(number: int) -> int:
        with reading.connect(dsn, "jobctl") as mine:
            fired = 0
            for moment in moments(many):
                barrier.wait(30)
                fired += len(fire(mine, [moment]))
            return fired

    with ThreadPoolExecutor(leaders) as pool:
        fired = sum(pool.map(lead, range(leaders)))
    with reading.connect(dsn, "jobctl") as mine:
        row = mine.execute(
            "SELECT (SELECT count(*) FROM job) AS jobs, (SELECT count(*) FROM cron_fire) AS rows,"
            " (SELECT count(DISTINCT scheduled_for) FROM cron_fire) AS times"
        ).fetchone()
    assert row is not None
    return {"fired": fired, **row}


def test_any_number_of_leaders_fire_each_planned_time_once(
    connection: Connection, database: str
) -> None:
    on(connection)
    found = race(database, many=40, leaders=4)
    assert found == {"fired": 40, "jobs": 40, "rows": 40, "times": 40}


def test_without_the_key_the_same_race_fires_twice(connection: Connection, database: str) -> None:
    """The control: what the test above sees is the key's doing."""
    on(connection)
    connection.execute("ALTER TABLE cron_fire DROP CONSTRAINT fires_once")
    try:
        found = race(database, many=40, leaders=4)
    finally:
        connection.execute("TRUNCATE cron_fire")
        connection.execute(
            "ALTER TABLE cron_fire ADD CONSTRAINT fires_once PRIMARY KEY (name, scheduled_for)"
        )
    assert found["jobs"] > 40


def test_overlap_skip_waits_for_the_job_before_but_not_for_a_dead_one(
    connection: Connection,
) -> None:
    on(connection, overlap="skip")
    rows = fire(connection, moments(2))
    assert [row["result"] for row in rows] == ["fired", "skipped"]
    assert rows[1]["job_id"] is None
    connection.execute(
        "WITH gone AS (DELETE FROM ready) INSERT INTO dead (job_id) SELECT id FROM job"
    )
    assert [row["result"] for row in fire(connection, [moments(3)[2]])] == ["fired"]
    connection.execute("DELETE FROM job")
    assert [row["result"] for row in fire(connection, [moments(4)[3]])] == ["fired"]


def test_jitter_is_drawn_from_the_planned_time(connection: Connection) -> None:
    """Whoever fires it, however often it is tried, the job is due at the same moment."""
    on(connection, jitter="1h")
    first = [connection.execute(
        "SELECT j.run_at FROM job AS j WHERE id = %s", (row["job_id"],)).fetchone()
        for row in fire(connection, moments(50))]  # fmt: skip
    delays = [
        (row["run_at"] - moment).total_seconds()
        for row, moment in zip(first, moments(50), strict=True)
        if row is not None
    ]
    assert all(0 <= delay < 3600 for delay in delays)
    assert max(delays) - min(delays) > 2400
    connection.execute("TRUNCATE cron_fire, job, ready")
    connection.execute("UPDATE cron_entry SET judged_until = %s", (LONG_AGO,))
    fire(connection, moments(50))
    again = connection.execute("SELECT run_at FROM job ORDER BY id").fetchall()
    assert again == first


# Declarations ------------------------------------------------------------------------------------


def test_a_deploy_changes_an_entry_once_whoever_restarts_meanwhile(connection: Connection) -> None:
    """Old code that is started again in the middle of a deploy brings nothing back."""
    for session in (1, 2, 3):
        put_session(connection, session, f"host{session}")
        declare(connection, session, spec(schedule="0 3 * * *"))
    seen = [entry(connection)["definition"]["schedule"]]

    def step(session: int, *specs: CronSpec) -> None:
        declare(connection, session, *specs)
        seen.append(entry(connection)["definition"]["schedule"])

    step(1, spec(schedule="0 4 * * *"))  # the deploy begins
    connection.execute("DELETE FROM session WHERE id = 2")
    put_session(connection, 4, "host2")
    step(4, spec(schedule="0 3 * * *"))  # host2 crashed and came back with the old code
    step(3, spec(schedule="0 4 * * *"))
    step(4, spec(schedule="0 4 * * *"))
    assert seen == ["0 3 * * *", *["0 4 * * *"] * 4]
    # The way back: again one change, when the last of the newer code is gone.
    seen.clear()
    for session in (1, 3, 4):
        step(session, spec(schedule="0 3 * * *"))
    assert seen == ["0 4 * * *", "0 4 * * *", "0 3 * * *"]


def test_another_schedule_counts_from_the_change(connection: Connection) -> None:
    """What it would have meant earlier today was never planned, so it was not missed."""
    on(connection, schedule="0 3 * * *", args={"n": 1})
    declare(connection, 1, spec(schedule="0 3 * * *", args={"n": 2}))
    assert entry(connection)["judged_until"] == LONG_AGO
    declare(connection, 1, spec(schedule="0 4 * * *", args={"n": 2}))
    assert entry(connection)["judged_until"] > LONG_AGO
    assert entry(connection)["next_at"] is None


def test_what_nobody_declares_is_retired_after_a_while(connection: Connection) -> None:
    """Not at once: a deploy stops and starts hosts. It comes back as it was."""
    on(connection)
    connection.execute("DELETE FROM session")
    reconcile(connection)
    assert entry(connection)["retired_at"] is None
    connection.execute("UPDATE cron_declaration SET gone_at = gone_at - interval '16 min'")
    reconcile(connection)
    assert entry(connection)["retired_at"] is not None
    (row,) = reading.crons(connection)
    assert (row["state"], row["next_at"]) == ("retired", None)
    put_session(connection, 2, "alpha")
    declare(connection, 2, spec())
    assert entry(connection)["retired_at"] is None
    assert entry(connection)["judged_until"] == LONG_AGO


def test_what_an_operator_disabled_stays_so_whatever_is_deployed(connection: Connection) -> None:
    on(connection)
    assert operating.switch_cron(connection, "nightly", ORDER, enable=False)
    assert not operating.switch_cron(connection, "nightly", ORDER, enable=False)
    declare(connection, 1, spec(schedule="0 5 * * *"))
    connection.execute("DELETE FROM session")
    reconcile(connection)
    connection.execute("UPDATE cron_declaration SET gone_at = gone_at - interval '1 year'")
    reconcile(connection)
    connection.execute("UPDATE cron_entry SET retired_at = retired_at - interval '1 year'")
    reconcile(connection)
    put_session(connection, 2, "alpha")
    declare(connection, 2, spec(schedule="0 6 * * *"))
    (row,) = reading.crons(connection)
    assert (row["state"], row["schedule"]) == ("disabled", "0 6 * * *")
    assert row["disabled_by"] == "test@here"
    assert row["disabled_reason"] == "because"


def test_an_enabled_cron_counts_from_now_on(connection: Connection) -> None:
    on(connection)
    operating.switch_cron(connection, "nightly", ORDER, enable=False)
    assert operating.switch_cron(connection, "nightly", ORDER, enable=True)
    assert entry(connection)["judged_until"] > LONG_AGO + timedelta(days=1)
    audit = connection.execute("SELECT action FROM audit ORDER BY id").fetchall()
    assert [row["action"] for row in audit] == ["cron disable", "cron enable"]


def test_an_operators_own_cron_is_nobody_elses(connection: Connection) -> None:
    """No host's declaration changes it or retires it; only it can be removed by hand."""
    mine = spec(schedule="0 1 * * *", origin="database")
    assert operating.add_cron(connection, mine, ORDER)
    assert not operating.add_cron(connection, mine, ORDER)
    put_session(connection, 1, "alpha")
    declare(connection, 1, spec(schedule="0 2 * * *"), spec(name="theirs"))
    reconcile(connection, retire_after=0, forget_after=0)
    assert entry(connection)["definition"]["schedule"] == "0 1 * * *"
    assert not operating.remove_cron(connection, "theirs", ORDER)
    assert operating.remove_cron(connection, "nightly", ORDER)


def test_run_now_is_one_more_firing_and_is_written_down(connection: Connection) -> None:
    on(connection, jitter="1h")
    operating.switch_cron(connection, "nightly", ORDER, enable=False)
    job_id = operating.run_cron(connection, "nightly", ORDER)
    assert job_id is not None
    job = reading.job(connection, job_id)
    assert job is not None
    assert job["state"] == "queued"
    row = connection.execute("SELECT result, job_id FROM cron_fire").fetchone()
    assert row == {"result": "run_now", "job_id": job_id}
    audit = connection.execute(
        "SELECT actor, action, target, reason FROM audit OFFSET 1"
    ).fetchone()
    assert audit == {
        "actor": "test@here", "action": "cron run", "reason": "because",
        "target": {"cron": "nightly", "job": job_id},
    }  # fmt: skip
    assert operating.run_cron(connection, "unknown", ORDER) is None


def test_old_firings_are_swept_but_for_the_last_of_each(connection: Connection) -> None:
    on(connection)
    fire(connection, moments(5))
    connection.execute("UPDATE cron_fire SET fired_at = fired_at - interval '30 d'")
    connection.execute(sql("sweep_cron_fires"), {"keep": 86_400.0, "most": 3})
    connection.execute(sql("sweep_cron_fires"), {"keep": 86_400.0, "most": 3})
    rows = connection.execute("SELECT scheduled_for FROM cron_fire").fetchall()
    assert [row["scheduled_for"] for row in rows] == [moments(5)[-1]]
