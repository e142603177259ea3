"""The seating: how many slots there should be, and how soon an empty seat may be taken again.

Want is compared with have, and nothing else starts a slot. Two brakes: a seat whose slots keep
dying waits longer and longer, and all replacements of slots that died by themselves share one
budget, whatever the seats do. Kills of ours pass both: they are as rare as the deadlines allow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import Final

from jobctl.supervisor.backoff import TokenBucket
from jobctl.supervisor.listener import Notice, Reason
from jobctl.supervisor.seat import Seat
from jobctl.supervisor.slot import Slot, Stage
from jobctl.supervisor.template import Template

#: Deaths that nobody here decided.
_UNDECIDED: Final = frozenset({Reason.CRASH, Reason.BOOT})
#: A slot that dies with a job is the job's doing, and the job's budget of crashes bounds it: one
#: bad job must not cost a host more than seconds. One that dies without is the app's doing.
_LONGEST_DELAY_AFTER_JOB: Final = 3.0
#: When a slot could not be asked for: no descriptor was left, or the template was dying.
_RETRY_SECONDS: Final = 1.0
#: A delay worth a line in the log.
_LONG_DELAY: Final = 1.0

Launch = Callable[[Seat, Template], Slot | None]
Say = Callable[[Notice, Slot | None, str], None]


class Seating:
    """All seats of a fleet. `launch` starts a slot for one of them, or fails with None."""

    def __init__(
        self,
        pools: Mapping[str, int],
        healthy_after: float,
        loop: asyncio.AbstractEventLoop,
        launch: Launch,
        say: Say,
    ) -> None:
        self.seats: list[Seat] = []
        self._healthy_ns = int(healthy_after * 1e9)
        self._loop = loop
        self._launch = launch
        self._say = say
        self._streak = 0  # slots that died before they had done anything, in a row
        self._timer: asyncio.TimerHandle | None = None
        for pool, count in pools.items():
            self.add(pool, count)
        total = len(self.seats)
        self._bucket = TokenBucket(max(2.0, total / 2), 2.0 * total + 4, loop.time())

    @property
    def wanted(self) -> int:
        """How many slots there should be."""
        return sum(seat.wanted for seat in self.seats)

    def idle_slots(self, pool: str | None = None) -> list[Slot]:
        """Those that can be given a job now, of this pool or of all."""
        return [
            seat.slot
            for seat in self.seats
            if seat.slot is not None
            and seat.slot.stage is Stage.IDLE
            and (pool is None or seat.pool == pool)
        ]

    def fill(self, template: Template) -> None:
        """Asks for a slot for every seat that is empty and may be filled now."""
        now = self._loop.time()
        empty = [seat for seat in self.seats if seat.slot is None and seat.wanted]
        later = [seat.not_before for seat in empty if seat.not_before > now]
        for seat in empty:
            if seat.not_before > now:
                continue
            if not template.can_spawn():
                break  # whoever called comes back when it can
            if seat.charged and not self._bucket.take(now):
                later.append(now + self._bucket.seconds_until_next(now))
                break
            seat.slot = self._launch(seat, template)
            if seat.slot is None:
                later.append(now + _RETRY_SECONDS)
                break
            seat.charged = False
        self.rest()
        if later:
            self._timer = self._loop.call_at(min(later), self.fill, template)

    def rest(self) -> None:
        """Nothing is filled until `fill` is called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def vacate(self, seat: Seat, slot: Slot, reason: Reason, *, with_job: bool) -> None:
        """The slot of this seat is gone; how soon another follows depends on why."""
        seat.slot = None
        if slot.finished:
            self._streak = 0
            if self._is_well(slot):
                seat.backoff.reset()
        elif reason is Reason.BOOT or (reason is Reason.CRASH and not with_job):
            self._streak += 1
        seat.charged = reason in _UNDECIDED
        if not seat.charged:
            return
        delay = seat.backoff.next_delay(_LONGEST_DELAY_AFTER_JOB if with_job else None)
        seat.not_before = self._loop.time() + delay
        if delay > _LONG_DELAY:
            sentence = f"slot {slot.number} keeps dying; the next one starts in {delay:.1f} s"
            self._say(Notice.SLOT_DELAYED, slot, sentence)

    def remove_unwanted(self) -> None:
        """Takes away the seats that nobody wants and nobody sits in."""
        self.seats = [seat for seat in self.seats if seat.wanted or seat.slots()]

    def add(self, pool: str, count: int) -> None:
        """More seats, with numbers that none has."""
        first = max((seat.number for seat in self.seats), default=0) + 1
        self.seats += [Seat(number, pool) for number in range(first, first + max(count, 0))]

    def resize(self, pool: str, count: int) -> list[Slot]:
        """Wants that many slots in a pool; the slots that are too many."""
        seats = [seat for seat in self.seats if seat.pool == pool]
        for number, seat in enumerate(seats):
            seat.wanted = number < count
        self.add(pool, count - len(seats))
        return [slot for seat in seats[count:] for slot in seat.slots()]

    @property
    def patience(self) -> int:
        """So many failures in a row are no accident any more."""
        return max(3, len(self.seats))

    def is_hopeless(self) -> bool:
        """Whether slots die before they have done anything, again and again."""
        if self._streak < self.patience:
            return False
        slots = [slot for seat in self.seats for slot in seat.slots()]
        if any(slot.finished or self._is_well(slot) for slot in slots):
            self._streak = 0
        return self._streak >= self.patience

    def _is_well(self, slot: Slot) -> bool:
        return bool(slot.ready_ns) and monotonic_ns() - slot.ready_ns >= self._healthy_ns
