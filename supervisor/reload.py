"""A reload: newer code takes over seat by seat, or not at all.

A new template imports what is on disk now, and one slot of it has to become ready before anything
old is given up. Then idle slots are relieved first, each by an heir that is ready before it
leaves; busy ones leave when their job has ended. If the first heir does not become ready, the old
generation stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from jobctl.supervisor.listener import Notice, Reason
from jobctl.supervisor.nursery import Nursery
from jobctl.supervisor.seat import Seat
from jobctl.supervisor.slot import Slot, Stage
from jobctl.supervisor.template import Template


class Step(Enum):
    """How far a reload is."""

    LOADING = "loading"  # the new template imports the app
    PROVING = "proving"  # its first slot becomes ready
    RELIEVING = "relieving"  # it was adopted; old slots leave
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the last reload is, for whoever asked for it."""

    asked: int = 0  # reloads that were asked for
    number: int = 0  # of those, the last one that this is about: it may stand for several
    step: Step = Step.OVER
    failed: str | None = None  # why the new code was not taken
    old: int = 0  # slots that still run older code

    @property
    def decided(self) -> bool:
        """Whether it is known of the last one that was asked for if its code is taken."""
        return self.number == self.asked and self.step in (Step.RELIEVING, Step.OVER)


class House(Protocol):
    """What a reload may do: the fleet."""

    @property
    def seats(self) -> list[Seat]:
        """Where slots sit."""

    def launch_heir(self, seat: Seat, template: Template) -> bool:
        """Asks for a slot that will take this seat."""

    def take_seat(self, seat: Seat) -> None:
        """The seat's heir, which is ready, sits down and may be given work."""

    def leave(self, slot: Slot, reason: Reason = Reason.RECYCLE) -> None:
        """Ends a slot without force."""

    def announce(self, generation: int) -> None:
        """Tells of the types of a generation."""

    def launch_missing(self) -> None:
        """Compares want with have."""

    def say(self, notice: Notice, slot: Slot | None, sentence: str) -> None:
        """Something worth logging happened."""


class Reload:
    """One reload, from the new template's start to the last old slot's end."""

    def __init__(self, house: House, nursery: Nursery, number: int) -> None:
        self.number = number
        self.step = Step.LOADING
        self.failed: str | None = None
        self.generation = 0
        self._house = house
        self._nursery = nursery
        if not nursery.start_next():
            self.fail("its template could not be started")

    def template_ready(self, template: Template) -> None:
        """Its app is imported: now prove that a slot of it comes up."""
        self.step = Step.PROVING
        self.generation = template.generation
        seats = sorted(
            (seat for seat in self._house.seats if seat.wanted and seat.slot is not None),
            key=lambda seat: seat.slot is None or seat.slot.stage is not Stage.IDLE,
        )
        if not seats:
            self._adopt()  # nothing old is left that could be kept
        elif seats[0].heir is not None or not self._house.launch_heir(seats[0], template):
            self.fail("its first slot could not be started")

    def heir_ready(self, seat: Seat) -> None:
        """An heir has imported the app."""
        if self.step is Step.PROVING:
            self._adopt()
        self._relieve(seat)
        self._go_on()

    def heir_died(self, seat: Seat) -> None:
        """An heir did not come up. The first one decides; later seats go the ordinary way."""
        if self.step is Step.PROVING:
            self.fail("its first slot did not become ready")
        elif self.step is Step.RELIEVING and seat.slot is not None:
            self._house.leave(seat.slot, Reason.RELOAD)

    def fail(self, why: str) -> None:
        """The old generation stays."""
        self.step, self.failed = Step.OVER, why
        self._nursery.drop_next()
        self._house.say(
            Notice.RELOAD_FAILED,
            None,
            f"the new code was not taken: {why}. The slots go on with the code that they have; "
            "mend it and reload again",
        )

    def look_again(self) -> None:
        """A slot is gone or a template is there: perhaps it was the last old one."""
        if self.step is Step.RELIEVING:
            self._go_on()

    def old(self) -> int:
        """How many seats are still taken by older code."""
        slots = [seat.slot for seat in self._house.seats if seat.slot is not None]
        return sum(slot.generation < self.generation for slot in slots)

    def _adopt(self) -> None:
        self.step = Step.RELIEVING
        self._nursery.adopt_next()
        self._house.announce(self.generation)
        for seat in self._house.seats:
            if seat.slot is not None and seat.slot.stage in (Stage.BUSY, Stage.STARTING):
                self._house.leave(seat.slot, Reason.RELOAD)
        self._house.launch_missing()
        self._go_on()

    def _relieve(self, seat: Seat) -> None:
        old = seat.slot
        if old is None:
            self._house.take_seat(seat)
        elif old.stage is Stage.IDLE:
            self._house.take_seat(seat)
            self._house.leave(old, Reason.RELOAD)
        else:
            self._house.leave(old, Reason.RELOAD)  # the heir waits until the job has ended

    def _go_on(self) -> None:
        """Heirs for idle old slots, a few at a time; over when nothing old sits anywhere."""
        template = self._nursery.current
        old = [
            seat
            for seat in self._house.seats
            if seat.slot is not None and seat.slot.generation < self.generation
        ]
        if not old:
            self.step = Step.OVER
            self._house.say(Notice.RELOADED, None, "every slot runs the new code")
            return
        at_once = max(1, len(self._house.seats) // 4)
        coming = sum(seat.heir is not None for seat in self._house.seats)
        for seat in old:
            slot = seat.slot
            if seat.heir is not None or slot is None:
                continue
            if slot.stage is not Stage.IDLE:
                self._house.leave(slot, Reason.RELOAD)
            elif coming < at_once and template is not None and template.can_spawn():
                coming += self._house.launch_heir(seat, template)
