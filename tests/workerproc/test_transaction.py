"""`ctx.transaction()` from near: what is in the commit, and what stops it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from jobctl.store.errors import UnstorableValue
from jobctl.workerproc.access import Access
from jobctl.workerproc.cancellation import Cancellation
from jobctl.workerproc.connections import Connections
from jobctl.workerproc.errors import LostClaim, SoftTimeout
from jobctl.workerproc.script import Ask
from jobctl.workerproc.transaction import JobTransaction
from tests.attempting import SESSION, Ground
from tests.claiming import run, violations
from tests.databases import SCHEMA
from tests.proxy import Proxy, Wire
from tests.waiting import until


@pytest.fixture(autouse=True)
def _sold(ground: Ground) -> Iterator[None]:
    """A table of the application's."""
    ground.see.execute("CREATE TABLE public.sold (a int)")
    try:
        yield
    finally:
        ground.see.execute("DROP TABLE public.sold CASCADE")


def _sold_rows(ground: Ground) -> object:
    return ground.value("SELECT count(*) FROM public.sold")


def test_all_of_it_is_there_at_once(ground: Ground) -> None:
    """The row, the state, the result, the progress, the key's time, and what comes next."""
    claimed = ground.job(key="sale:1")
    context = ground.context(claimed)
    with context.transaction() as conn:
        conn.execute("INSERT INTO sold VALUES (1)")  # by the application's own search_path
        context.result = {"sold": 1}
        context.progress("selling", done=1, total=2)
        context.enqueue("next", {"a": 1})
        assert _sold_rows(ground) == 0
        assert ground.value("SELECT state FROM jobs") == "running"
    assert _sold_rows(ground) == 1
    row = ground.see.execute(
        "SELECT state, result, progress - 'updated_at', attempt FROM jobs WHERE type = 't'"
    ).fetchone()
    assert row == (
        "succeeded", {"sold": 1}, {"phase": "selling", "done": 1, "total": 2}, 1,
    )  # fmt: skip
    assert ground.value("SELECT state FROM jobs WHERE type = 'next'") == "queued"
    assert ground.value("SELECT until IS NOT NULL FROM job_key") is True
    assert violations(ground.see) == []


def test_the_claim_was_lost(ground: Ground) -> None:
    """Before the commit it raises, and nothing stays: no row, no success, no next step."""
    claimed = ground.job()
    context = ground.context(claimed)
    newer = ground.lose(claimed)
    with pytest.raises(LostClaim, match="Nothing"), context.transaction() as conn:
        conn.execute("INSERT INTO sold VALUES (1)")
        context.enqueue("next", {})
    assert _sold_rows(ground) == 0
    assert ground.value("SELECT state FROM jobs") == "running"
    assert ground.settle(newer)


def test_without_the_fence_a_lost_claim_would_commit(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: rows are there of an attempt that does not count, and the job twice done."""

    def careless(self: JobTransaction) -> Any:
        yield Ask("set_search_path", {"path": "public"})

    monkeypatch.setattr(JobTransaction, "_succeed", careless)
    claimed = ground.job()
    context = ground.context(claimed)
    ground.lose(claimed)
    with context.transaction() as conn:
        conn.execute("INSERT INTO sold VALUES (1)")
    assert _sold_rows(ground) == 1


def test_who_ends_it_meanwhile_waits_or_comes_back(ground: Ground) -> None:
    """The claim is locked last: until then others may end the attempt, and then nobody."""
    claimed = ground.job()
    context = ground.context(claimed)
    transaction = context.transaction()
    with psycopg.connect(ground.dsn) as locker:
        conn = transaction.__enter__()
        conn.execute("INSERT INTO sold VALUES (1)")
        assert ground.value("SELECT count(*) FROM pg_locks WHERE relation = 'claim'::regclass") == 0
        locker.execute("SELECT FROM jobctl.claim FOR UPDATE")
        locker.rollback()
        transaction.__exit__(None, None, None)
    assert _sold_rows(ground) == 1
    assert ground.settle(claimed) == []


@pytest.mark.parametrize("error", [ValueError, SoftTimeout, psycopg.Rollback])
def test_what_is_raised_inside(ground: Ground, error: type[BaseException]) -> None:
    """Rolled back; the job goes on, and may succeed with another transaction."""
    context = ground.context(ground.job())
    try:
        with context.transaction() as conn:
            conn.execute("INSERT INTO sold VALUES (1)")
            raise error
    except (ValueError, SoftTimeout):
        pass
    assert _sold_rows(ground) == 0
    assert not context._said.committed
    with context.transaction() as conn:
        conn.execute("INSERT INTO sold VALUES (2)")
    assert ground.value("SELECT a FROM public.sold") == 2
    assert ground.value("SELECT state FROM jobs") == "succeeded"


def test_what_is_refused_at_the_commit(ground: Ground) -> None:
    """A constraint that waits for the commit: nothing stays, the job has not succeeded."""
    ground.see.execute(
        "ALTER TABLE public.sold ADD CONSTRAINT once UNIQUE (a) DEFERRABLE INITIALLY DEFERRED"
    )
    claimed = ground.job()
    context = ground.context(claimed)
    with pytest.raises(psycopg.errors.UniqueViolation), context.transaction() as conn:
        conn.execute("INSERT INTO sold VALUES (1), (1)")
    assert not context._said.committed
    assert _sold_rows(ground) == 0
    assert ground.settle(claimed)


def test_a_trigger_that_waits_for_the_commit_has_its_own_names(ground: Ground) -> None:
    """Our search_path is gone by then."""
    ground.see.execute(
        "CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO sold SELECT 9 WHERE NEW.a = 1; RETURN NULL; END'"
    )
    ground.see.execute(
        "CREATE CONSTRAINT TRIGGER later AFTER INSERT ON public.sold"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note()"
    )
    try:
        with ground.context(ground.job()).transaction() as conn:
            conn.execute("INSERT INTO sold VALUES (1)")
        assert _sold_rows(ground) == 2
    finally:
        ground.see.execute("DROP FUNCTION public.note CASCADE")


def test_the_connection_is_the_handlers(ground: Ground) -> None:
    """Rows of another kind, savepoints: what a handler does with it does not disturb the end."""
    with ground.context(ground.job()).transaction() as conn:
        conn.row_factory = dict_row
        with conn.transaction(force_rollback=True):
            conn.execute("INSERT INTO sold VALUES (1)")
        conn.execute("SET LOCAL enable_indexscan = off")
        with pytest.raises(psycopg.ProgrammingError, match="forbidden"):
            conn.commit()
    assert _sold_rows(ground) == 0
    assert ground.value("SELECT state FROM jobs") == "succeeded"


def test_once(ground: Ground) -> None:
    """Not inside of itself, not again; and what comes too late is told."""
    context = ground.context(ground.job())
    with context.transaction(), pytest.raises(RuntimeError, match="open already"):
        context.transaction().__enter__()
    with pytest.raises(RuntimeError, match="succeeded already"):
        context.transaction().__enter__()
    with pytest.raises(RuntimeError, match="before the commit"):
        context.result = 1
    with pytest.raises(RuntimeError, match="committed already"):
        context.enqueue("late", {})
    with pytest.raises(LostClaim):
        context.effect("late").__enter__()


def test_with_an_effect_in_it(ground: Ground) -> None:
    """One commit for the row, the effect and the success; or none of them."""
    claimed = ground.job()
    for attempt in (1, 2):
        context = ground.context(claimed)
        try:
            with context.transaction() as conn, context.effect("sale", conn=conn) as effect:
                assert effect.todo
                conn.execute("INSERT INTO sold VALUES (1)")
                if attempt == 1:
                    raise ValueError
        except ValueError:
            claimed = ground.lose(claimed)
    assert _sold_rows(ground) == 1
    assert ground.effect("sale") == ("done", None)


def test_a_mark_of_its_own_inside(ground: Ground) -> None:
    """Without conn= the effect is committed apart, on a second connection."""
    context = ground.context(ground.job())
    with pytest.raises(ValueError), context.transaction():
        with context.effect("apart"):
            pass
        raise ValueError
    assert ground.effect("apart") == ("done", None)
    assert len(ground.connections) == 2


def test_in_a_coroutine(ground: Ground) -> None:
    """The same, and it is fenced the same way."""

    async def story() -> None:
        claimed = ground.job()
        context = ground.context(claimed)
        newer = ground.lose(claimed)
        with pytest.raises(LostClaim):
            async with context.transaction() as conn:
                await conn.execute("INSERT INTO sold VALUES (1)")
        assert _sold_rows(ground) == 0
        context = ground.context(newer)
        async with context.transaction() as conn:
            await conn.execute("INSERT INTO sold VALUES (1)")
            context.result = "async"
        assert _sold_rows(ground) == 1

    asyncio.run(story())
    assert ground.value("SELECT result FROM jobs") == "async"


def test_a_result_that_cannot_be_kept(ground: Ground) -> None:
    """Refused where it is set."""
    context = ground.context(ground.job())
    with pytest.raises(UnstorableValue, match="nan"):
        context.result = {"a": float("nan")}
    assert context.result is None


def test_cancelled_while_it_is_open(ground: Ground) -> None:
    """A wish that comes before the commit is too late for a handler that does not ask; one that
    comes while the claim is locked waits, and learns what has become of the job."""
    claimed = ground.job()
    context = ground.context(claimed)
    answers: list[str] = []

    def ask() -> None:
        with psycopg.connect(ground.dsn) as conn:
            row = conn.execute("SELECT jobctl.cancel(%s)", (claimed.job_id,)).fetchone()
            assert row is not None
            answers.append(row[0])

    ask()
    with context.transaction() as conn:
        conn.execute("INSERT INTO sold VALUES (1)")
        # As the commit does, a moment before it.
        conn.execute("SELECT FROM jobctl.claim FOR UPDATE")
        asking = threading.Thread(target=ask)
        asking.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        until(lambda: ground.value(waiting) == 1, what="the second wish to wait")
    asking.join()
    ask()
    assert answers == ["cancel_requested", "already_succeeded", "already_succeeded"]
    assert ground.value("SELECT state FROM jobs") == "succeeded"
    assert _sold_rows(ground) == 1


def test_not_in_a_hook_of_a_cancelled_job(ground: Ground) -> None:
    """What is cancelled cannot succeed any more."""
    claimed = ground.job()
    context = ground.context(claimed)
    context.cancellation = Cancellation(
        ground.page, claimed.token, has_commit_point=False, requested_before=True
    )
    with pytest.raises(RuntimeError, match="on_cancel"):
        context.transaction().__enter__()


@pytest.mark.parametrize("wire", [Wire.DEAF, Wire.BLACK_HOLE])
def test_nobody_hears_what_came_of_the_commit(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, wire: Wire
) -> None:
    """The handler gets an error, and cannot know. The database does, and it is asked: either all of
    it is there, and the job has succeeded, or none, and the job is still to be ended."""
    succeed = JobTransaction._succeed
    claimed = ground.job()
    fate = {"jobs": [claimed.job_id], "sessions": [SESSION], "tokens": [claimed.token]}
    with Proxy.to(ground.dsn) as proxy:

        def and_then_silence(self: JobTransaction) -> Any:
            yield from succeed(self)
            proxy.wire = wire

        def cut_later() -> None:
            if wire is Wire.DEAF:
                until(lambda: _sold_rows(ground) == 1, what="the commit to have arrived")
            else:
                time.sleep(0.2)
            proxy.cut()

        monkeypatch.setattr(JobTransaction, "_succeed", and_then_silence)
        ground.connections = Connections(Access(proxy.dsn, SCHEMA, "jobctl test:1"))
        context = ground.context(claimed)
        cutting = threading.Thread(target=cut_later)
        with pytest.raises(psycopg.OperationalError), context.transaction() as conn:
            conn.execute("INSERT INTO sold VALUES (1)")
            cutting.start()
        cutting.join()
        ground.connections.tidy()
        ground.connections.close()
    assert not context._said.committed
    until(
        lambda: (
            ground.value("SELECT count(*) FROM pg_locks WHERE relation = 'claim'::regclass") == 0
        ),
        what="the server to notice",
    )
    ((_, _, locked, outcome, state),) = run(ground.see, "settle_missing", **fate)
    if wire is Wire.DEAF:
        assert (locked, outcome, state) == (False, None, "succeeded")
        assert _sold_rows(ground) == 1
        assert ground.settle(claimed) == []
    else:
        assert (locked, outcome, state) == (True, None, None)
        assert _sold_rows(ground) == 0
        assert ground.settle(claimed)
