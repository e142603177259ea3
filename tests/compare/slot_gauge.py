"""Watches a culprit, and measures when the slot that it had is back."""

from __future__ import annotations

from time import monotonic

from tests.compare.diary import Diary
from tests.compare.ground import Ground
from tests.system.host import alive

MOST_GAUGES = 24
GAUGE_EVERY = 0.1
QUICK_FIRST = 0.5  # the quick jobs are to come before the gauges
LOOK_EVERY = 0.5


class Watcher:
    """Ask it for a turn until it says that there is nothing more to be seen.

    A gauge keeps a slot. As long as fewer jobs run than there are slots, not counting the
    culprit's own runs, there is always one more gauge in the queue: so the moment at which as many
    run as there are slots is the moment at which none is lost any more.
    """

    def __init__(self, ground: Ground, culprit: str, bystanders: list[str]) -> None:
        self._ground = ground
        self._culprit = culprit
        self._bystanders = bystanders
        self._gauges = 0
        self._next_gauge = monotonic() + QUICK_FIRST
        self._next_look = 0.0
        self._over = False
        self.slot_back: float | None = None
        self.most_at_once = 0

    def turn(self) -> bool:
        """Looks around; True when there is nothing more to be seen."""
        diary = self._ground.diary()
        running = diary.running(lambda pid: bool(alive([pid])))
        self.most_at_once = max(self.most_at_once, running.get("culprit", 0))
        others = sum(count for name, count in running.items() if name != "culprit")
        if self.slot_back is None:
            self._measure(diary, others)
        settled = all(diary.times(name, "end") or diary.runs(name) > 1 for name in self._bystanders)
        return self.slot_back is not None and settled and self._is_over(diary)

    def _measure(self, diary: Diary, others: int) -> None:
        if self._gauges and others >= self._ground.terms.slots:
            begun = diary.first("culprit", "dies") or diary.first("culprit")
            last = max(line.at for line in diary.lines if line.what == "start")
            self.slot_back = max(0.0, last - (begun or 0.0))
            self._ground.go("gauges")
        elif monotonic() >= self._next_gauge and self._gauges < MOST_GAUGES:
            if self._gauges == 0 or diary.runs(f"gauge-{self._gauges}"):
                self._gauges += 1
                self._ground.enqueue(f"gauge-{self._gauges}", "gauge")
            self._next_gauge = monotonic() + GAUGE_EVERY

    def _is_over(self, diary: Diary) -> bool:
        if diary.runs("culprit") >= self._ground.terms.tries + 3:
            return True  # nobody counts
        if not self._over and monotonic() >= self._next_look:
            self._over = self._ground.look(self._culprit).over
            self._next_look = monotonic() + LOOK_EVERY
        return self._over
