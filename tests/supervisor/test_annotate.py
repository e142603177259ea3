"""What is written about attempts while they run: fenced, in passing, and never in anybody's way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from jobctl.supervisor.outcomes import UNREGISTERED, Cancelled, Failed, decide
from tests.attempting import SESSION, Ground, ground_on
from tests.claiming import run

SAID = '{"phase": "x", "done": 1, "ago": 5.0}'


@pytest.fixture
def ground(database: str) -> Iterator[Ground]:
    """Claims without a supervisor."""
    with ground_on(database) as ground:
        yield ground


def _note(ground: Ground, job: int, token: int, session: int = SESSION, said: str = SAID) -> None:
    run(ground.see, "note_progress", session=session, jobs=[job], tokens=[token], said=[said])


def _progress(ground: Ground) -> Any:
    return ground.value("SELECT progress FROM jobs")


def test_progress_is_dated_by_the_database(ground: Ground) -> None:
    """Five seconds ago, by its clock; how long ago is not kept."""
    claimed = ground.job()
    _note(ground, claimed.job_id, claimed.token)
    said = _progress(ground)
    assert said.keys() == {"phase", "done", "updated_at"}
    age = "SELECT extract(epoch FROM now() - (progress ->> 'updated_at')::timestamptz) FROM jobs"
    assert 4 < float(str(ground.value(age))) < 60


def test_of_a_claim_that_is_another_now(ground: Ground) -> None:
    """Neither an older token nor another session's is heard."""
    claimed = ground.job()
    newer = ground.lose(claimed)
    _note(ground, claimed.job_id, claimed.token)
    _note(ground, newer.job_id, newer.token, session=SESSION + 1)
    assert _progress(ground) is None
    _note(ground, newer.job_id, newer.token)
    assert _progress(ground)["phase"] == "x"


@pytest.mark.parametrize("lock", ["claim", "job"])
def test_what_somebody_has_locked_is_left_out(ground: Ground, lock: str) -> None:
    """The connection that keeps the lease writes this: it must wait for nobody."""
    one, two = ground.job(), ground.job()
    ground.see.execute("SET lock_timeout = '5s'")
    with psycopg.connect(ground.dsn) as locker:
        column = "job_id" if lock == "claim" else "id"
        query = f"SELECT FROM jobctl.{lock} WHERE {column} = %s FOR UPDATE"
        locker.execute(query.encode(), (one.job_id,))
        run(
            ground.see, "note_progress", session=SESSION, jobs=[one.job_id, two.job_id],
            tokens=[one.token, two.token], said=[SAID, SAID],
        )  # fmt: skip
        if lock == "claim":
            run(
                ground.see, "annotate_claims", session=SESSION, jobs=[one.job_id, two.job_id],
                tokens=[one.token, two.token], slots=[1, 2], pids=[11, 12],
                started_ago=[1.0, 1.0], remains=[9.0, 9.0],
            )  # fmt: skip
    rows = ground.see.execute(
        "SELECT j.progress IS NOT NULL, c.slot FROM job AS j JOIN claim AS c ON c.job_id = j.id"
        " ORDER BY j.id"
    ).fetchall()
    assert rows == [(False, None), (True, 2 if lock == "claim" else None)]


def test_a_handler_that_holds_its_claim_is_annotated(ground: Ground) -> None:
    """An effect in a transaction that stays open locks only who may end it."""
    claimed = ground.job()
    ground.see.execute("SET lock_timeout = '5s'")
    with psycopg.connect(ground.dsn) as conn:
        with ground.context(claimed).effect("k", conn=conn):
            pass
        run(
            ground.see, "annotate_claims", session=SESSION, jobs=[claimed.job_id],
            tokens=[claimed.token], slots=[3], pids=[11], started_ago=[1.0], remains=[9.0],
        )  # fmt: skip
        assert ground.value("SELECT slot FROM claim") == 3


@pytest.mark.parametrize(
    "cause", [Failed("E", "no"), Failed("E", "no", permanent=True), Cancelled()]
)
def test_with_the_end_of_the_attempt(ground: Ground, cause: Any) -> None:
    """What was said last goes into the attempt's row and the job's, in the same statement."""
    claimed = ground.job()
    ending = decide(
        claimed.job_id, SESSION, claimed.token, claimed, UNREGISTERED, cause, 1.0
    )  # fmt: skip
    ending.said = json.loads(SAID)
    run(ground.see, "settle_ended", jobs=[claimed.job_id], endings=json.dumps([ending.to_dict()]))
    for table in ("jobs", "attempts"):
        query = f"SELECT progress - 'updated_at' FROM {table}"  # noqa: S608 - one of two words
        assert ground.value(query) == {"phase": "x", "done": 1}


def test_an_attempt_that_said_nothing_takes_nothing_away(ground: Ground) -> None:
    """Progress is kept over retries until the next attempt says something."""
    claimed = ground.job()
    _note(ground, claimed.job_id, claimed.token)
    before = _progress(ground)
    newer = ground.lose(claimed)
    assert ground.settle(newer)
    assert _progress(ground) == before
