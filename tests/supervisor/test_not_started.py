"""Claimed and not started: what is cancelled goes back, what is acknowledged early is marked."""

from __future__ import annotations

from jobctl.store import reading
from jobctl.store.link import Link
from jobctl.supervisor.dispatch import Dispatcher
from tests.store.standing import put
from tests.supervisor.dispatching import Hands, appear, play


def test_what_waits_here_is_cancelled(database: str) -> None:
    """It goes back at once; what is cancelled while it is on its way from a claim does too, and the
    others start."""
    with reading.connect(database, "jobctl") as see:
        jobs = [put(see) for _ in range(3)]

    async def story(dispatcher: Dispatcher, hands: Hands, _: Link) -> None:
        await appear(lambda: len(dispatcher) == 3)
        tokens = sorted(token for _, token in dispatcher.reserve_tokens())
        dispatcher.do_not_start({tokens[0], max(tokens) + 1, max(tokens) + 2, max(tokens) + 3})
        assert [one.token for one in hands.returned] == tokens[:1]
        hands.alive = True
        with reading.connect(database, "jobctl") as see:
            late = put(see)
        dispatcher.ring()
        await appear(lambda: len(hands.given) == 2 and len(hands.returned) == 2)
        assert hands.returned[1].job_id == late
        assert {one.job_id for one in hands.given} < set(jobs)

    play(database, story)


def test_nothing_that_is_early_starts_without_its_mark(database: str) -> None:
    """The mark is on disk first, although this connection commits asynchronously otherwise."""
    with reading.connect(database, "jobctl") as see:
        put(see)
        see.execute("""
            CREATE TABLE jobctl.committed (how text);
            CREATE FUNCTION jobctl.note() RETURNS trigger LANGUAGE plpgsql AS
                $$BEGIN INSERT INTO jobctl.committed
                  VALUES (current_setting('synchronous_commit')); RETURN NULL; END$$;
            CREATE TRIGGER note AFTER UPDATE OF marked ON jobctl.claim
                FOR EACH ROW EXECUTE FUNCTION jobctl.note();
        """)

    async def story(dispatcher: Dispatcher, hands: Hands, link: Link) -> None:
        hands.alive = True
        await appear(lambda: hands.given)
        assert hands.given[0].marked
        with reading.connect(database, "jobctl") as see:
            (row,) = see.execute("SELECT c.marked, o.how FROM claim c, committed o").fetchall()
            assert row == {"marked": True, "how": "on"}

    try:
        play(database, story, ack="early", synchronous_commit="off")
    finally:
        with reading.connect(database, "jobctl") as see:
            see.execute("DROP TRIGGER note ON jobctl.claim")
            see.execute("DROP FUNCTION jobctl.note()")
            see.execute("DROP TABLE jobctl.committed")


def test_a_claim_that_is_gone_is_not_marked(database: str) -> None:
    """Somebody has taken the claim meanwhile: there is nothing to mark, and nothing starts."""
    with reading.connect(database, "jobctl") as see:
        put(see)
        see.execute("""
            CREATE FUNCTION jobctl.take() RETURNS trigger LANGUAGE plpgsql AS
                $$BEGIN NEW.session_id := 2; RETURN NEW; END$$;
            CREATE TRIGGER take BEFORE INSERT ON jobctl.claim
                FOR EACH ROW EXECUTE FUNCTION jobctl.take();
        """)

    async def story(dispatcher: Dispatcher, hands: Hands, _: Link) -> None:
        hands.alive = True
        await appear(lambda: hands.returned)
        assert hands.given == []

    try:
        play(database, story, ack="early")
    finally:
        with reading.connect(database, "jobctl") as see:
            see.execute("DROP TRIGGER take ON jobctl.claim")
            see.execute("DROP FUNCTION jobctl.take()")
