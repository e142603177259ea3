"""Lanes and their marks: where to look for work next. Pure arithmetic: no SQL, no clock.

A lane is (queue, priority, name) and its jobs are numbered by one sequence. A dispatcher claims
above the highest number that it has claimed (`low`), so that it never walks over the dead rows of
what is gone. That alone would strand jobs: a transaction can take a number early and commit it
late, a claim of somebody else's can be rolled back, a row can have been locked when we passed. So
every lane has a second mark below the first (`safe`), and from time to time a claim starts there
(`Look.BELOW`). `safe` rises to an old value of `low` only when

* every transaction that had an id when that value was noted has ended (`xmin >= xmax` then): since
  writers have their id before they take a number, nobody can still commit a number below it; and
* a plain SELECT, taken after that, finds nothing between: nothing locked, nothing left behind.

After a reconnect, a reload and once a minute a claim starts from 0 (`Look.WHOLE`), because what a
database has forgotten in a crash can come back below any mark.

Which lanes come first is decided here too: higher priorities, queues in turn, and one claimed job
in eight from the lanes below while they have any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import groupby
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")

#: One claimed job in this many comes from the lanes below, while they have any.
TURN_OF_THE_LOWER = 8

#: Handed-back work waits here; it goes before the other lanes of its queue and priority.
FRONT = "front"
PRIORITIES = (3, 2, 1, 0)


class Lane(NamedTuple):
    """`name` is '' for the queue's own lane."""

    queue: str
    priority: int
    name: str


class Look(Enum):
    """Where a claim starts in each lane."""

    ABOVE = auto()  # above the highest number claimed
    BELOW = auto()  # above the safe mark: finds what was committed late or let go
    WHOLE = auto()  # from 0


class Checkpoint(NamedTuple):
    """`low` as it was when no transaction id had reached `xmax` yet."""

    low: int
    xmax: int


@dataclass(slots=True)
class Marks:
    """The marks of one lane; `safe <= low`."""

    low: int = 0
    safe: int = 0
    checkpoints: deque[Checkpoint] = field(default_factory=deque)

    def start(self, look: Look) -> int:
        """Claims of this look take numbers above this."""
        match look:
            case Look.ABOVE:
                return self.low
            case Look.BELOW:
                return self.safe
            case Look.WHOLE:
                return 0

    def claimed(self, seq: int) -> None:
        """This number was claimed, and PostgreSQL has said so."""
        self.low = max(self.low, seq)

    def candidate(self, xmin: int) -> int:
        """How far `safe` may rise if nothing is left below: all older transactions have ended."""
        reach = self.safe
        for checkpoint in self.checkpoints:
            if checkpoint.xmax > xmin:
                break
            reach = max(reach, checkpoint.low)
        return reach

    def nothing_below(self, upto: int) -> None:
        """A plain SELECT found nothing in (`safe`, `upto`], with `upto` a candidate before it."""
        self.safe = max(self.safe, upto)
        while self.checkpoints and self.checkpoints[0].low <= self.safe:
            self.checkpoints.popleft()

    def note(self, xmax: int) -> None:
        """Remembers `low` for later, with the first transaction id not yet given out."""
        if self.low > self.safe and (not self.checkpoints or self.checkpoints[-1].low < self.low):
            self.checkpoints.append(Checkpoint(self.low, xmax))

    def forget(self) -> None:
        """The connection was lost: nothing that rests on what it said holds any more."""
        self.low = self.safe = 0
        self.checkpoints.clear()


class Plan(NamedTuple):
    """One claim: lanes in the order of preference, with where each starts and how many it gives."""

    look: Look
    most: int
    lanes: tuple[Lane, ...]
    marks: tuple[int, ...]
    limits: tuple[int, ...]
    lower: frozenset[Lane]  # those whose turn was ahead of their betters'


class Below(NamedTuple):
    """One question about what is left below: lanes, and the range of numbers asked about."""

    lanes: tuple[Lane, ...]
    after: tuple[int, ...]
    upto: tuple[int, ...]


class Lanes:
    """The lanes of one dispatcher."""

    def __init__(self) -> None:
        self._marks: dict[Lane, Marks] = {}
        self._turn = 0
        self._credit = 0.0  # how many jobs the lanes below are owed
        self._floor = 0  # lanes below this priority may be starving
        self._known_xmin = 0

    def serve(self, queues: Iterable[str], of_types: Iterable[Lane]) -> None:
        """These queues and lanes of types, and no others, are served from now on."""
        wanted = {
            Lane(queue, priority, name)
            for queue in queues
            for priority in PRIORITIES
            for name in (FRONT, "")
        }
        wanted.update(of_types)
        self._marks = {lane: self._marks.get(lane) or Marks() for lane in sorted(wanted)}

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def unsure(self) -> bool:
        """Whether a safe mark lags behind: something may yet turn up below."""
        return any(marks.low > marks.safe for marks in self._marks.values())

    def plan(self, most: int, look: Look) -> Plan:
        """The next claim, for at most this many jobs."""
        self._turn += 1
        ahead: list[Lane] = []
        if self._credit >= 1:
            ahead = [lane for lane in self._in_order() if lane.priority < self._floor]
        chosen = set(ahead)
        behind = [lane for lane in self._in_order() if lane not in chosen]
        owed = min(most, int(self._credit))
        lanes = (*ahead, *behind)
        return Plan(
            look,
            most,
            lanes,
            tuple(self._marks[lane].start(look) for lane in lanes),
            (owed,) * len(ahead) + (most,) * len(behind),
            frozenset(chosen),
        )

    def claimed(self, plan: Plan, taken: Sequence[tuple[Lane, int]]) -> bool:
        """What that claim brought, acknowledged. True when there may be more behind it."""
        for lane, seq in taken:
            if marks := self._marks.get(lane):
                marks.claimed(seq)
        counts: dict[Lane, int] = {}
        for lane, _ in taken:
            counts[lane] = counts.get(lane, 0) + 1
        self._pay(plan, counts)
        limits = dict(zip(plan.lanes, plan.limits, strict=True))
        return any(count >= limits.get(lane, 1) for lane, count in counts.items()) or (
            len(taken) >= plan.most
        )

    def _pay(self, plan: Plan, counts: dict[Lane, int]) -> None:
        """Fairness: after a full claim, what stands below its lowest row is owed its share."""
        from_lower = sum(count for lane, count in counts.items() if lane in plan.lower)
        ordinary = {lane: count for lane, count in counts.items() if lane not in plan.lower}
        full = from_lower + sum(ordinary.values()) >= plan.most
        if plan.lower:
            # Those who have nothing are owed nothing; those who got too much at once pay it back.
            self._credit = self._credit - from_lower if from_lower else 0.0
        if full and ordinary:
            self._floor = min(lane.priority for lane in ordinary)
            self._credit += sum(ordinary.values()) / (TURN_OF_THE_LOWER - 1)
        elif not full and not plan.lower:
            self._credit = 0.0  # everything within reach was taken: nobody waits

    def question(self) -> Below:
        """What to ask after a look below, for the safe marks to rise."""
        asked = [
            (lane, marks.safe, reach)
            for lane, marks in self._marks.items()
            if (reach := marks.candidate(self._known_xmin)) > marks.safe
        ]
        return Below(
            tuple(lane for lane, _, _ in asked),
            tuple(after for _, after, _ in asked),
            tuple(upto for _, _, upto in asked),
        )

    def answer(self, asked: Below, occupied: Sequence[bool], xmin: int, xmax: int) -> None:
        """The answer, and the transactions that its snapshot saw running."""
        for lane, upto, left in zip(asked.lanes, asked.upto, occupied, strict=True):
            if not left and (marks := self._marks.get(lane)):
                marks.nothing_below(upto)
        self._known_xmin = max(self._known_xmin, xmin)
        for marks in self._marks.values():
            marks.note(xmax)

    def forget(self) -> None:
        """After a reconnect: every lane starts from 0 again."""
        self._known_xmin = 0
        for marks in self._marks.values():
            marks.forget()

    def _in_order(self) -> list[Lane]:
        """Higher priorities first; queues, and the lanes of a queue, in turn; the front first."""
        order: list[Lane] = []
        by_priority = sorted(self._marks, key=lambda lane: -lane.priority)
        for _, level in groupby(by_priority, key=lambda lane: lane.priority):
            queues = [list(group) for _, group in groupby(level, key=lambda lane: lane.queue)]
            for group in _turned(queues, self._turn):
                order += [lane for lane in group if lane.name == FRONT]
                order += _turned([lane for lane in group if lane.name != FRONT], self._turn)
        return order


def _turned(items: list[_T], turn: int) -> list[_T]:
    if not items:
        return items
    start = turn % len(items)
    return items[start:] + items[:start]
