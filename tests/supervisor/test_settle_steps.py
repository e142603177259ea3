"""Next steps are written with the success of their job; what is wrong with them is nobody else's.

What a handler has enqueued travels here as text, a stranger's word.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import psycopg
import pytest

from jobctl.store.link import Link
from jobctl.supervisor.next_steps import SWEEP_SECONDS, NextSteps
from jobctl.supervisor.settle import Success
from tests.claiming import claim, connect, enqueue, states, succeed, where
from tests.supervisor.settling import SESSION, Stage, play


def steps(*jobs: dict[str, Any]) -> str:
    return json.dumps([{"type": "next", **job} for job in jobs])


def types(on: Stage) -> list[tuple[str, str]]:
    return sorted(on.see.execute("SELECT type, state FROM jobs").fetchall())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (steps({"after": [999_999]}), "enqueued with ctx.enqueue job 1 .* there is no such job"),
        (steps({"priority": 9}), "its priority must be 0 to 3"),
        (steps({"args": {"text": "x" * 70_000}}), "its args are .* more than 65536"),
        ("[nonsense", "could not store what it had enqueued"),
        ('{"type": "next"}', "jobs must be a JSON array"),
        ("7", "jobs must be a JSON array"),
        (r'[{"type": "next", "args": {"a": "\u0000"}}]', "could not store what it had enqueued"),
    ],
)
def test_a_step_that_is_refused_ends_its_job_and_no_other(
    database: str, text: str, why: str
) -> None:
    """dead, with the class that says why; all the others of the batch succeed, and their steps
    are there."""

    async def story(on: Stage) -> None:
        enqueue(on.see, 7)
        held = claim(on.see, SESSION)
        for number, one in enumerate(held):
            on.settler.settle(Success(one, None, text if number == 3 else steps({})))
        await on.written()
        assert types(on) == [("next", "queued")] * 6 + [("t", "dead")] + [("t", "succeeded")] * 6
        row = on.see.execute("SELECT failure_class, last_error FROM jobs WHERE state = 'dead'")
        ((failure_class, error),) = row.fetchall()
        assert failure_class == "unstorable_step"
        assert pytest.raises(AssertionError, match=why).matches(AssertionError(error)), error

    play(database, story)


def test_a_claim_that_was_lost_enqueues_nothing(database: str) -> None:
    """Somebody else runs it by then, and its steps will come from there."""

    async def story(on: Stage) -> None:
        enqueue(on.see)
        (one,) = claim(on.see, SESSION)
        on.see.execute("UPDATE claim SET token = token + 1000")
        on.settler.settle(Success(one, None, steps({})))
        await on.written()
        assert on.ear.lost == [one.job_id]
        assert types(on) == [("t", "running")]

    play(database, story)


def test_a_repeated_settle_doubles_no_steps(database: str) -> None:
    """The answer of the first was lost: it is found in history."""

    async def story(on: Stage) -> None:
        enqueue(on.see)
        (one,) = claim(on.see, SESSION)
        for _ in range(2):
            on.settler.settle(Success(one, None, steps({})))
            await on.written()
        assert on.ear.settled == [(one.job_id, "succeeded")] * 2
        assert types(on) == [("next", "queued"), ("t", "succeeded")]

    play(database, story)


def test_a_key_in_an_open_transaction_holds_up_one_job(database: str) -> None:
    """Somebody is about to enqueue the same key: this job's end waits for that, and no other's."""

    async def story(on: Stage) -> None:
        enqueue(on.see, 5)
        held = claim(on.see, SESSION)
        with psycopg.connect(database) as somebody:
            somebody.execute("SELECT jobctl.enqueue('next', key => 'k')")
            for number, one in enumerate(held):
                on.settler.settle(
                    Success(one, None, steps({"key": "k" if number == 2 else f"{number}"}))
                )
            await on.until(lambda: len(on.ear.settled) == 4)
            assert len(on.settler) == 1
            assert states(on.see)[held[2].job_id] == "running"
        await on.written()
        assert types(on) == [("next", "queued")] * 5 + [("t", "succeeded")] * 5

    play(database, story)


def test_the_leader_sweeps_what_nobody_let_go(database: str) -> None:
    """A portion at a time, soon again while there is more, calmly when there is not."""

    async def sweep() -> list[float]:
        link = Link("lead", where(database), {})
        await link.connect()
        try:
            duty = NextSteps()
            return [await duty.step(link) for _ in range(3)]
        finally:
            await link.close()

    with connect(database, {}) as see:
        (parent,) = enqueue(see)
        with psycopg.connect(database) as somebody:
            somebody.execute(
                "SELECT jobctl.enqueue('child', after => ARRAY[%s::bigint])", (parent,)
            )
            succeed(see, claim(see, SESSION))
        assert sorted(states(see).values()) == ["blocked", "succeeded"]
        first, *rest = asyncio.run(sweep())
        assert sorted(states(see).values()) == ["queued", "succeeded"]
    assert first == 0.0
    assert all(wait >= SWEEP_SECONDS for wait in rest)
