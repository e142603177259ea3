"""A queue is paused while jobs of it wait in a host's reserve: they go back."""

from __future__ import annotations

from jobctl.store import queues, reading
from jobctl.store.link import Link
from jobctl.store.operating import Order
from jobctl.supervisor.dispatch import Dispatcher
from tests.store.standing import put
from tests.supervisor.dispatching import Hands, appear, play


def test_what_waits_in_the_host_goes_back_when_its_queue_is_paused(database: str) -> None:
    """At once, by the announcement; jobs of other queues stay."""
    with reading.connect(database, "jobctl") as connection:
        for queue in ("mail", "mail", "reports"):
            put(connection, queue=queue)

    async def story(dispatcher: Dispatcher, hands: Hands, _: Link) -> None:
        await appear(lambda: len(dispatcher) == 3)
        with reading.connect(database, "jobctl") as operator:
            queues.pause(operator, ["mail"], Order("ann@ops"))
        dispatcher.reread()
        await appear(lambda: len(dispatcher) == 1)
        assert [one.queue for one in hands.returned] == ["mail", "mail"]

    play(database, story)
