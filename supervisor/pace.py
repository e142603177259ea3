"""Pace: how many jobs to claim beyond the idle slots.

While jobs are short, a claim takes longer than a job, and slots would idle between claims; so a
reserve of about 20 ms of work is kept. A long job in the reserve would be stranded behind other
long ones, so slots that run a type that is long, or that nobody has measured yet, add nothing.
"""

from __future__ import annotations

#: How much work the reserve holds for each slot.
RESERVE_SECONDS = 0.020
#: A type is measured after so many attempts.
MEASURED = 5
#: The weight of the newest attempt in a type's average.
WEIGHT = 0.1
#: Averages are not believed below this: the round trip to a slot costs as much.
SHORTEST_SECONDS = 0.0005
#: After a job was stranded in the reserve, nothing is kept there for so long: short and long jobs
#: come mixed, and what the slots run now says little about what comes next.
CAUTIOUS_SECONDS = 1.0


class Pace:
    """Averages by type, and what each slot was given last."""

    def __init__(self, most: int) -> None:
        self.low_water = 0  # at this many waiting jobs, the next claim is due
        self._most = most
        self._average: dict[str, float] = {}
        self._count: dict[str, int] = {}
        self._slots: dict[int, tuple[str, int]] = {}
        self._cautious_until_ns = 0

    def given(self, slot: int, type_: str, now_ns: int) -> None:
        """This slot runs a job of this type from now on."""
        self._slots[slot] = type_, now_ns

    def ran(self, type_: str, seconds: float) -> None:
        """An attempt of this type took so long. A sudden long one is believed at once."""
        count = self._count.get(type_, 0)
        if count == 0 or seconds > RESERVE_SECONDS:
            self._average[type_] = seconds
        else:
            old = self._average[type_]
            self._average[type_] = old + (seconds - old) * WEIGHT
        self._count[type_] = count + 1

    def stranded(self, now_ns: int) -> None:
        """A job of the reserve found no slot within its moment, and went back."""
        self._cautious_until_ns = now_ns + int(CAUTIOUS_SECONDS * 1e9)

    def reserve(self, now_ns: int) -> int:
        """How many jobs beyond the idle slots to hold now."""
        if now_ns < self._cautious_until_ns:
            self.low_water = 0
            return 0
        total = 0.0
        for type_, since_ns in self._slots.values():
            if now_ns - since_ns < RESERVE_SECONDS * 1e9 and self._count.get(type_, 0) >= MEASURED:
                average = max(self._average[type_], SHORTEST_SECONDS)
                if average < RESERVE_SECONDS:
                    total += RESERVE_SECONDS / average
        reserve = min(self._most, int(total))
        self.low_water = reserve // 2
        return reserve
