"""Effects against a model of them; and the model against effects that are not fenced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.claiming import connect
from tests.exploring import explore, find
from tests.workerproc.effect_machine import EffectMachine


def test_effects_do_what_the_model_says(database: str) -> None:
    """Crashes, lost claims and late words in any order: never twice, and nobody stale is heard."""
    machine = type("Machine", (EffectMachine,), {"dsn": database})
    run_state_machine_as_test(machine, settings=explore(25, steps=40))


#: A function of the schema, and what stands for it in a control.
SABOTAGE = {
    "nobody asks for the claim": (
        "claim_holds",
        "CREATE FUNCTION claim_holds(job bigint, session bigint, claim_token bigint, lock boolean)"
        " RETURNS boolean LANGUAGE sql RETURN job > 0",
    ),
    "a mark is no obstacle": (
        "begin_effect",
        "CREATE FUNCTION begin_effect(effect_key text, mark boolean, lock boolean, job bigint,"
        " session bigint, claim_token bigint, OUT state text, OUT value text, OUT marked_by bigint)"
        " LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT CASE"
        " WHEN NOT claim_holds(job, session, claim_token, lock) THEN 'lost'"
        " ELSE coalesce((SELECT 'done' FROM effect AS e WHERE e.key = effect_key"
        " AND e.state = 'done'), 'new') END, NULL::text, NULL::bigint $$",
    ),
}


@pytest.fixture(params=SABOTAGE)
def broken(database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database in which one of them is in place."""
    name, text = SABOTAGE[request.param]
    with connect(database, {}) as connection:
        connection.execute(f"ALTER FUNCTION {name} RENAME TO honest".encode())
        connection.execute(text.encode())
        try:
            yield database
        finally:
            connection.execute(f"DROP FUNCTION {name}".encode())
            connection.execute(f"ALTER FUNCTION honest RENAME TO {name}".encode())


def test_without_its_guards_an_effect_is_caught(broken: str) -> None:
    """A stale attempt is let in, or heard, or a mark is passed by; and the model notices."""
    machine = type("Machine", (EffectMachine,), {"dsn": broken})
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=find(200))
