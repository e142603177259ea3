"""Effects: what is asked and said, by whom, and who is not allowed to. On real claims."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from jobctl.store.errors import UnstorableValue
from jobctl.workerproc.access import Access
from jobctl.workerproc.connections import Connections
from jobctl.workerproc.context import Context
from jobctl.workerproc.effect import Effect
from jobctl.workerproc.errors import LostClaim, Snooze
from tests.attempting import Ground
from tests.claiming import run
from tests.databases import SCHEMA
from tests.waiting import until

KEY = "invoice-email:1842"


def _asked(effect: Effect) -> tuple[str, bool, Any]:
    return effect.state, effect.todo, effect.value


@pytest.mark.parametrize("mode", ["mark_first", "act_first"])
def test_done_once(ground: Ground, mode: Any) -> None:
    """The first acts and says what came of it; whoever asks later is told, and does not act."""
    first = ground.context(ground.job())
    with first.effect(KEY, mode=mode) as effect:
        assert _asked(effect) == ("new", True, None)
        assert effect.key == KEY
        effect.done({"message": "<1@x>"})
        assert not effect.todo
    assert ground.effect(KEY) == ("done", {"message": "<1@x>"})
    for context in (first, ground.context(ground.job())):
        with context.effect(KEY, mode=mode) as effect:
            assert _asked(effect) == ("done", False, {"message": "<1@x>"})
    assert first._said.effects == {"done": 1, "repeated": 1}


@pytest.mark.parametrize("mode", ["mark_first", "act_first"])
def test_a_block_that_ends_well_has_done_it(ground: Ground, mode: Any) -> None:
    """Nobody has to say so."""
    with ground.context(ground.job()).effect(KEY, mode=mode):
        pass
    assert ground.effect(KEY) == ("done", None)


def test_marked_before_the_act(ground: Ground) -> None:
    """`mark_first` is seen by everybody while it acts; `act_first` is not."""
    with ground.context(ground.job()).effect(KEY):
        assert ground.effect(KEY) == ("marked", None)
    with ground.context(ground.job()).effect("other", mode="act_first"):
        assert ground.effect("other") is None


@pytest.mark.parametrize("mode", ["mark_first", "act_first"])
def test_an_exception_inside(ground: Ground, mode: Any) -> None:
    """It may have come before the act or after it: a mark stays, and nothing else is said."""
    claimed = ground.job()
    context = ground.context(claimed)
    with pytest.raises(OSError), context.effect(KEY, mode=mode):
        raise OSError("timed out")
    assert ground.effect(KEY) == (("marked", None) if mode == "mark_first" else None)
    assert context._said.effects == {"failed": 1}
    with ground.context(ground.lose(claimed)).effect(KEY, mode=mode) as effect:
        if mode == "mark_first":
            assert _asked(effect) == ("ambiguous", False, None)
        else:
            assert _asked(effect) == ("new", True, None)


def test_the_same_attempt_asks_again_after_its_own_exception(ground: Ground) -> None:
    """Its own mark tells it no more than another's."""
    context = ground.context(ground.job())
    with pytest.raises(OSError), context.effect(KEY):
        raise OSError
    with context.effect(KEY) as effect:
        assert effect.state == "ambiguous"


def test_what_was_ambiguous_and_left_alone_stays_so(ground: Ground) -> None:
    """A handler that decides nothing has done nothing."""
    claimed = ground.job()
    ground.context(claimed).effect(KEY).__enter__()
    context = ground.context(ground.lose(claimed))
    with context.effect(KEY) as effect:
        assert not effect.todo
    assert ground.effect(KEY) == ("marked", None)
    assert context._said.effects == {"ambiguous": 1}


def test_what_was_ambiguous_and_is_known_now(ground: Ground) -> None:
    """The handler may say what it has found out, or done once more."""
    claimed = ground.job()
    ground.context(claimed).effect(KEY).__enter__()
    with ground.context(ground.lose(claimed)).effect(KEY) as effect:
        effect.done("found")
    assert ground.effect(KEY) == ("done", "found")


@pytest.mark.parametrize("answer", ["done", "not done", "unknown", "raises"])
def test_reconcile(ground: Ground, answer: str) -> None:
    """Asked once, when there is something to ask about; and what it says counts."""
    asked: list[str] = []

    def ask(effect: Effect) -> None:
        asked.append(effect.key)
        match answer:
            case "done":
                effect.done({"receipt": 7})
            case "not done":
                effect.not_done()
            case "raises":
                raise OSError("the provider is away")

    claimed = ground.job()
    ground.context(claimed).effect(KEY, reconcile=ask).__enter__()
    assert asked == []
    context = ground.context(ground.lose(claimed))
    if answer == "raises":
        with pytest.raises(OSError), context.effect(KEY, reconcile=ask):
            pass
        assert ground.effect(KEY) == ("marked", None)
        return
    with context.effect(KEY, reconcile=ask) as effect:
        assert asked == [KEY]
        assert (
            _asked(effect)
            == {
                "done": ("done", False, {"receipt": 7}),
                "not done": ("new", True, None),
                "unknown": ("ambiguous", False, None),
            }[answer]
        )
    assert (
        ground.effect(KEY)
        == {
            "done": ("done", {"receipt": 7}),
            "not done": ("done", None),
            "unknown": ("marked", None),
        }[answer]
    )
    result = "ambiguous" if answer == "unknown" else "reconciled"
    assert context._said.effects == {result: 1}


@pytest.mark.parametrize("mode", ["mark_first", "act_first"])
def test_surely_not_done(ground: Ground, mode: Any) -> None:
    """The mark is taken back, and the next attempt may act."""
    claimed = ground.job()
    with pytest.raises(OSError), ground.context(claimed).effect(KEY, mode=mode) as effect:
        effect.not_done()
        raise ConnectionRefusedError
    assert ground.effect(KEY) is None
    with ground.context(ground.lose(claimed)).effect(KEY, mode=mode) as effect:
        assert _asked(effect) == ("new", True, None)


# Who may not ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["mark_first", "act_first"])
@pytest.mark.parametrize("own", [True, False])
def test_a_lost_claim_cannot_begin(ground: Ground, mode: Any, own: bool) -> None:
    """It is told before it acts, and nothing is written."""
    claimed = ground.job()
    ground.lose(claimed)
    context = ground.context(claimed)
    with psycopg.connect(ground.dsn) as conn:
        effect = context.effect(KEY, mode=mode, conn=None if own else conn)
        with pytest.raises(LostClaim, match="must not do"), effect:
            raise AssertionError("it must not act")
    assert ground.effect(KEY) is None
    assert context._said.effects == {"lost": 1}


@pytest.mark.parametrize("say", ["done", "not_done", "the end"])
def test_a_claim_that_is_lost_on_the_way(ground: Ground, say: str) -> None:
    """What it says then is not written: the new attempt has the mark, and the word."""
    claimed = ground.job()
    stale = ground.context(claimed).effect(KEY)
    stale.__enter__()
    newer = ground.context(ground.lose(claimed))
    with newer.effect(KEY) as effect:
        assert effect.state == "ambiguous"
        with pytest.raises(LostClaim):
            match say:
                case "done":
                    stale.done("stale")
                case "not_done":
                    stale.not_done()
                case _:
                    stale.__exit__(None, None, None)
        assert ground.effect(KEY) == ("marked", None)
        effect.done("fresh")
    assert ground.effect(KEY) == ("done", "fresh")


def test_without_the_fence_a_stale_attempt_would_be_heard(ground: Ground) -> None:
    """The control: with a function that asks nobody, what must not happen does."""
    ground.see.execute("ALTER FUNCTION claim_holds RENAME TO claim_holds_")
    ground.see.execute(
        "CREATE FUNCTION claim_holds(bigint, bigint, bigint, boolean) RETURNS boolean"
        " LANGUAGE sql RETURN true"
    )
    try:
        claimed = ground.job()
        stale = ground.context(claimed).effect(KEY)
        ground.lose(claimed)
        with stale:
            stale.done("stale")
        assert ground.effect(KEY) == ("done", "stale")
    finally:
        ground.see.execute("DROP FUNCTION claim_holds")
        ground.see.execute("ALTER FUNCTION claim_holds_ RENAME TO claim_holds")


def test_another_job_that_is_doing_it_now(ground: Ground) -> None:
    """Not ambiguous: whoever marked it still runs. The second job comes back later, and is told."""
    first = ground.job()
    with ground.context(first).effect(KEY) as effect:
        second = ground.context(ground.job())
        with pytest.raises(Snooze) as snooze, second.effect(KEY):
            raise AssertionError("it must not act")
        assert snooze.value.seconds == 5
        effect.done("by the first")
    with ground.context(ground.job()).effect(KEY) as effect:
        assert _asked(effect) == ("done", False, "by the first")
    assert second._said.effects == {"busy": 1}


def test_two_jobs_find_a_mark_that_nobody_speaks_for(ground: Ground) -> None:
    """One of them takes it over; to the other it is being done."""
    dead = ground.job()
    ground.context(dead).effect(KEY).__enter__()
    assert ground.settle(dead)
    one, two = ground.context(ground.job()), ground.context(ground.job())
    with one.effect(KEY) as effect:
        assert effect.state == "ambiguous"
        with pytest.raises(Snooze), two.effect(KEY):
            pass


# In the caller's transaction ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["mark_first", "act_first"])
@pytest.mark.parametrize("commits", [True, False])
def test_part_of_the_callers_transaction(ground: Ground, mode: Any, commits: bool) -> None:
    """The effect is there with what was written beside it, or neither is; never ambiguous."""
    ground.see.execute("CREATE TABLE public.sold (a int)")
    try:
        claimed = ground.job()
        with psycopg.connect(ground.dsn) as conn:
            with ground.context(claimed).effect(KEY, mode=mode, conn=conn) as effect:
                assert effect.todo
                conn.execute("INSERT INTO public.sold VALUES (1)")
                effect.done("sold")
            assert ground.effect(KEY) is None
            if not commits:
                conn.rollback()
        assert ground.effect(KEY) == (("done", "sold") if commits else None)
        assert ground.value("SELECT count(*) FROM public.sold") == int(commits)
        with (
            psycopg.connect(ground.dsn) as conn,
            ground.context(ground.lose(claimed)).effect(KEY, mode=mode, conn=conn) as effect,
        ):
            assert effect.todo is not commits
    finally:
        ground.see.execute("DROP TABLE public.sold")


@pytest.mark.parametrize("mode", ["mark_first", "act_first"])
@pytest.mark.parametrize("first", ["commits", "rolls back", "has lost its claim"])
def test_two_in_transactions_of_their_own(ground: Ground, mode: Any, first: str) -> None:
    """The second waits for the first, and acts only if that comes to nothing."""
    claimed = ground.job()
    with psycopg.connect(ground.dsn) as conn, psycopg.connect(ground.dsn) as other:
        effect = ground.context(claimed).effect(KEY, mode=mode, conn=conn)
        effect.__enter__()
        lost = first == "has lost its claim"
        newer = ground.context(ground.lose(claimed) if lost else ground.job())
        seen: list[bool] = []

        def begin() -> None:
            with newer.effect(KEY, mode=mode, conn=other) as again:
                seen.append(again.todo)
            other.commit()

        thread = threading.Thread(target=begin)
        thread.start()
        until(lambda: _waits(ground, other), what="the second to wait")
        if lost:
            with pytest.raises(LostClaim):
                effect.__exit__(None, None, None)
            conn.rollback()
        else:
            effect.__exit__(None, None, None)
            conn.commit() if first == "commits" else conn.rollback()
        thread.join()
        assert seen == [first != "commits"]
    assert ground.effect(KEY) == ("done", None)


def _waits(ground: Ground, conn: psycopg.Connection[Any]) -> bool:
    query = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s"
    row = ground.see.execute(query, (conn.info.backend_pid,)).fetchone()
    return row is not None and row[0] == "Lock"


def test_the_claim_is_not_held_by_a_transaction_that_stays_open(ground: Ground) -> None:
    """A frozen process must not keep its job from being taken over."""
    claimed = ground.job()
    with psycopg.connect(ground.dsn) as conn:
        ground.context(claimed).effect(KEY, conn=conn).__enter__()
        assert ground.settle(claimed)
        conn.rollback()


def test_what_is_said_at_the_end_holds_the_claim_until_the_commit(ground: Ground) -> None:
    """From then on nobody ends the attempt before its transaction does."""
    claimed = ground.job()
    with psycopg.connect(ground.dsn) as conn:
        with ground.context(claimed).effect(KEY, conn=conn):
            pass
        assert ground.settle(claimed) == []
        conn.commit()
        assert ground.settle(claimed)


def test_on_a_connection_with_another_search_path_and_rows(ground: Ground) -> None:
    """It is the application's: with its own names, dictionaries for rows, autocommit."""
    with psycopg.connect(
        ground.dsn, options="-c search_path=public", autocommit=True,
        row_factory=psycopg.rows.dict_row,
    ) as conn:  # fmt: skip
        with ground.context(ground.job()).effect(KEY, conn=conn) as effect:
            effect.done([1])
        with ground.context(ground.job()).effect(KEY, conn=conn) as effect:
            assert effect.value == [1]


# While PostgreSQL is away ------------------------------------------------------------------------


class _Way:
    """A slot's way to PostgreSQL, which can be closed: a link to the folder of its socket."""

    def __init__(self, ground: Ground, link: Path) -> None:
        self._ground, self._link = ground, link
        self._folder = str(conninfo_to_dict(ground.dsn)["host"])
        dsn = make_conninfo(ground.dsn, host=str(link))
        self.connections = Connections(Access(dsn, SCHEMA, "jobctl away:1"))
        self.open()

    def open(self) -> None:
        self._link.symlink_to(self._folder)

    def close(self) -> None:
        self._link.unlink()
        self._ground.see.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'jobctl away:1%'"
        )

    @contextmanager
    def opened_after(self, seconds: float) -> Iterator[None]:
        opener = threading.Timer(seconds, self.open)
        opener.start()
        try:
            yield
        finally:
            opener.join()


@pytest.fixture
def way(ground: Ground, tmp_path: Path) -> Iterator[_Way]:
    """What `ground` goes by in this test."""
    way = _Way(ground, tmp_path / "pg")
    ground.connections, own = way.connections, ground.connections
    yield way
    ground.connections = own
    way.connections.close()


def test_done_while_postgresql_is_away(ground: Ground, way: _Way) -> None:
    """The card is charged and its receipt in hand: a restart of PostgreSQL does not lose it."""
    with ground.context(ground.job()).effect(KEY) as effect:
        way.close()
        with way.opened_after(0.3):
            effect.done("receipt")
        assert ground.effect(KEY) == ("done", "receipt")


def test_surely_not_done_while_postgresql_is_away(ground: Ground, way: _Way) -> None:
    """The mark goes, too: nobody has to be asked about it."""
    with ground.context(ground.job()).effect(KEY) as effect:
        way.close()
        with way.opened_after(0.3):
            effect.not_done()
    assert ground.effect(KEY) is None


def test_done_in_a_coroutine_while_postgresql_is_away(ground: Ground, way: _Way) -> None:
    """The loop turns meanwhile."""

    async def story(context: Context) -> None:
        async with context.effect(KEY) as effect:
            way.close()
            asyncio.get_running_loop().call_later(0.3, way.open)
            await effect.done("receipt")

    asyncio.run(story(ground.context(ground.job())))
    assert ground.effect(KEY) == ("done", "receipt")


def test_a_claim_that_is_lost_while_postgresql_is_away(ground: Ground, way: _Way) -> None:
    """What waited is refused like everything that comes late."""
    claimed = ground.job()
    with pytest.raises(LostClaim), ground.context(claimed).effect(KEY) as effect:
        way.close()
        ground.lose(claimed)
        with way.opened_after(0.3):
            effect.done("receipt")
    assert ground.effect(KEY) == ("marked", None)


def test_postgresql_stays_away_until_the_deadline(ground: Ground, way: _Way) -> None:
    """Nobody waits for longer than the attempt has."""
    context = ground.context(ground.job(), seconds=1.5)
    with pytest.raises(psycopg.OperationalError), context.effect(KEY) as effect:
        way.close()
        effect.done("receipt")
    assert context.remaining() <= 0
    assert ground.effect(KEY) == ("marked", None)


# In coroutines -----------------------------------------------------------------------------------


def test_in_a_coroutine(ground: Ground) -> None:
    """`async with`; `done` is awaited, or written at the end of the block."""

    async def story(context: Context) -> None:
        async with context.effect("a") as effect:
            await effect.done("awaited")
            assert ground.effect("a") == ("done", "awaited")
        async with context.effect("b") as effect:
            effect.done("at the end")
            assert ground.effect("b") == ("marked", None)
        assert ground.effect("b") == ("done", "at the end")
        async with context.effect("c"):
            pass
        assert ground.effect("c") == ("done", None)
        async with await psycopg.AsyncConnection.connect(ground.dsn) as conn:
            async with context.effect("d", conn=conn) as effect:
                effect.done("with the rest")
            await conn.rollback()
        assert ground.effect("d") is None

        async def ask(effect: Effect) -> None:
            await asyncio.sleep(0)
            await effect.done("found")

        with pytest.raises(OSError):
            async with context.effect("e"):
                raise OSError
        async with context.effect("e", reconcile=ask) as effect:
            assert _asked(effect) == ("done", False, "found")

    asyncio.run(story(ground.context(ground.job())))


def test_the_wrong_kind_of_with(ground: Ground) -> None:
    """Said in a sentence, with the right one."""
    context = ground.context(ground.job())

    async def story() -> None:
        async with await psycopg.AsyncConnection.connect(ground.dsn) as conn:
            with pytest.raises(TypeError, match="async with"):
                context.effect("a", conn=conn).__enter__()
        with psycopg.connect(ground.dsn) as plain, pytest.raises(TypeError, match="so: with"):
            await context.effect("a", conn=plain).__aenter__()

    asyncio.run(story())
    with pytest.raises(TypeError, match="your connection"):
        context.effect("a", conn=object()).__enter__()


# What is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "error"),
    [("", ValueError), ("x" * 501, ValueError), ("\0", ValueError), ("\ud800", ValueError),
     ("ü" * 400 + "€" * 100 + "𝄞" * 100, ValueError), (7, TypeError), (None, TypeError)],
)  # fmt: skip
def test_keys_that_cannot_be(ground: Ground, key: Any, error: type[Exception]) -> None:
    """Nothing was asked yet."""
    with pytest.raises(error, match="key"):
        ground.context(ground.job()).effect(key)


def test_a_mode_that_is_none(ground: Ground) -> None:
    """Both are named, with what they cost."""
    with pytest.raises(ValueError, match=r"never twice.*perhaps twice"):
        ground.context(ground.job()).effect(KEY, mode="first_act")  # type: ignore[arg-type]


def test_a_value_that_cannot_be_kept(ground: Ground) -> None:
    """It has been done all the same, and that is kept."""
    with pytest.raises(UnstorableValue), ground.context(ground.job()).effect(KEY) as effect:
        effect.done({"when": float("nan")})
    assert ground.effect(KEY) == ("done", None)


def test_outside_of_its_block(ground: Ground) -> None:
    """Said in a sentence."""
    effect = ground.context(ground.job()).effect(KEY)
    with pytest.raises(RuntimeError, match="inside its block"):
        effect.done()


def test_a_context_that_was_made_by_hand() -> None:
    """It has no way to a database, and says so."""
    with pytest.raises(RuntimeError, match=r"jobctl\.testing"):
        Context(type="t").effect(KEY).__enter__()


# How long it is known -----------------------------------------------------------------------------


def test_forgotten_after_its_time(ground: Ground) -> None:
    """What is old goes, unless the job that wrote last is still to come back."""
    over, open_ = ground.job(), ground.job()
    for claimed, key in ((over, "over"), (over, "fresh"), (open_, "open")):
        with ground.context(claimed).effect(key):
            pass
    assert ground.settle(over)
    ground.see.execute("UPDATE effect SET at = now() - interval '2 d' WHERE key <> 'fresh'")
    assert len(run(ground.see, "sweep_effects", keep=86_400.0, most=10)) == 1
    assert ground.effect("over") is None
    assert ground.effect("fresh") and ground.effect("open")
