"""jobctl with one of its guards taken out: `python sabotage.py GUARD run ...`.

A story that passes without its guard proves nothing. Here each guard can be taken out, on the
supervisor's side by this program and in the slots by whatever app calls `take_out`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any


def _hygiene() -> None:
    from jobctl.workerproc.hygiene import Hygiene

    Hygiene.check = lambda self, took_ns: None  # type: ignore[method-assign]


def _aim() -> None:
    from jobctl.workerproc.attempt import Attempts
    from jobctl.workerproc.errors import SoftTimeout

    def on_signal(self: Any, signum: int, frame: Any) -> None:
        if self._inside:
            raise SoftTimeout("aimed at nobody")

    Attempts.on_signal = on_signal  # type: ignore[method-assign]


def _hard_deadline() -> None:
    from jobctl.supervisor.deadlines import Deadlines

    honest = Deadlines._enforce

    def enforce(self: Deadlines, slot: Any, running: Any, now_ns: int) -> None:
        running.hard_seconds = 1e6
        honest(self, slot, running, now_ns)

    Deadlines._enforce = enforce  # type: ignore[method-assign]


def _ceilings() -> None:
    from jobctl.supervisor.ceilings import Ceilings

    Ceilings.enforce = lambda self, now_ns: None  # type: ignore[method-assign]


def _crash_budget() -> None:
    from jobctl.supervisor import attempts, outcomes, reclaim

    def decide(*given: Any, **named: Any) -> Any:
        job, session, token, spent, policy, *rest = given
        policy = replace(policy, max_crashes=1000, max_attempts=1000)
        return outcomes.decide(job, session, token, spent, policy, *rest, **named)

    for module in (attempts, reclaim):
        vars(module)["decide"] = decide


def _give_up_on_unkillable() -> None:
    from jobctl.supervisor.fleet import Fleet

    Fleet._give_up = lambda self, slot: None  # type: ignore[method-assign]


def _poison_row() -> None:
    from jobctl.supervisor import dispatch

    def ungivable(claimed: Any, error: Exception) -> Any:
        raise error

    dispatch._ungivable = ungivable


def _settle_apart() -> None:
    from jobctl.supervisor.settle import Settler

    async def write_together(self: Any, batch: Any, write: Any) -> None:
        if batch:
            await write(batch)

    Settler._write_apart = write_together  # type: ignore[method-assign]


def _patience() -> None:
    from jobctl.supervisor.stopping import Stop

    begin = Stop.begin

    def patiently(self: Stop, because: str, now: float, patience: float) -> bool:
        return begin(self, because, now, 1e6)

    Stop.begin = patiently  # type: ignore[method-assign]


def _groups() -> None:
    from jobctl.supervisor.groups import Groups

    Groups.make = lambda self, number, life: None  # type: ignore[method-assign]


def _leftovers() -> None:
    from jobctl.supervisor.leftovers import Leftovers

    Leftovers.outliving = lambda self, own, slots: []  # type: ignore[method-assign]


def _recycle_large() -> None:
    from jobctl.supervisor.ceilings import Ceilings

    Ceilings._recycle_large = lambda self, most: None  # type: ignore[method-assign]


def _stand_aside() -> None:
    from jobctl.workerproc import slot

    slot._stand_aside = lambda share: None


def _cancel_aim() -> None:
    from jobctl.workerproc.attempt import Attempts
    from jobctl.workerproc.cancellation import Cancellation

    def meant_for_anybody(self: Any) -> bool:
        return bool(self._page.cancel_aim())

    def check(self: Any) -> None:
        if meant_for_anybody(self):
            raise RuntimeError("hit by what was meant for another")

    def on_signal(self: Any, signum: int, frame: Any) -> None:
        if self._inside and self._page.cancel_aim():
            self._coroutines.cancel()

    Cancellation.check = check  # type: ignore[method-assign]
    Attempts.on_signal = on_signal  # type: ignore[method-assign]


def _cancel_channel() -> None:
    from jobctl.supervisor.leases import Lease

    hear = Lease._on_notification

    def deaf(self: Any, payload: str) -> None:
        if not payload.startswith("cancel "):
            hear(self, payload)

    Lease._on_notification = deaf  # type: ignore[method-assign]


def _cancel_ear() -> None:
    from jobctl.supervisor.cancels import Cancels

    Cancels.learn = lambda self, session, rows: None  # type: ignore[method-assign]


def _commit_point() -> None:
    from jobctl.supervisor.slot import Slot

    Slot.past_commit_point = lambda self: False  # type: ignore[method-assign]


def _early_mark() -> None:
    from jobctl.supervisor.dispatch import Dispatcher

    async def forget(self: Any) -> None:
        for pool in self._pools.values():
            for one in pool.unmarked:
                one.marked = True
            pool.reserve.extend(pool.unmarked)
            pool.unmarked = []
            self._feed_idle(pool)

    Dispatcher._mark = forget  # type: ignore[method-assign]


GUARDS: dict[str, Callable[[], None]] = {
    "hygiene": _hygiene,
    "aim": _aim,
    "hard deadline": _hard_deadline,
    "ceilings": _ceilings,
    "crash budget": _crash_budget,
    "give up on unkillable": _give_up_on_unkillable,
    "poison row": _poison_row,
    "settle apart": _settle_apart,
    "patience": _patience,
    "cancel aim": _cancel_aim,
    "cancel channel": _cancel_channel,
    "cancel ear": _cancel_ear,
    "commit point": _commit_point,
    "early mark": _early_mark,
    "groups": _groups,
    "leftovers": _leftovers,
    "recycle large": _recycle_large,
    "stand aside": _stand_aside,
}


def take_out(guard: str) -> None:
    """Of this process; nothing if there is no name."""
    if guard:
        GUARDS[guard]()


if __name__ == "__main__":
    take_out(sys.argv.pop(1))
    from jobctl.cli import main

    sys.argv[0] = "jobctl"
    main()
