"""A host whose lease is over starts nothing, whoever notices it late."""

from __future__ import annotations

from jobctl.store import reading
from jobctl.store.link import Link
from jobctl.supervisor.dispatch import Dispatcher
from tests.store.standing import put
from tests.supervisor.dispatching import Hands, Slot, appear, play


def test_a_slot_is_not_fed_once_the_lease_is_over(database: str) -> None:
    """As when a frozen host wakes: a slot is idle, its job is there, and both belong to a host that
    others may believe dead already. The job stays unstarted until the lease is known to hold."""
    with reading.connect(database, "jobctl") as connection:
        jobs = [put(connection) for _ in range(3)]
    frozen = Hands()
    frozen.alive = frozen.over = True

    async def story(dispatcher: Dispatcher, hands: Hands, _: Link) -> None:
        await appear(lambda: len(dispatcher) == 3)
        dispatcher.feed(Slot(hands))  # type: ignore[arg-type]  # it is no whole slot
        assert (hands.given, len(dispatcher)) == ([], 3)
        hands.over = False
        dispatcher.feed(Slot(hands))  # type: ignore[arg-type]  # likewise
        assert [one.job_id for one in hands.given] == jobs[:1]

    play(database, story, frozen)
