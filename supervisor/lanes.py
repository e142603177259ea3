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

Which lanes come first is decided here too: higher priorities first, but for every seven jobs of a
priority one from the lanes below it, while they have any, and so on down: nothing starves. Within
a priority the queue that has waited longest comes first, and within a queue the lane.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

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
        # Not above `low`: the marks may have been forgotten while the answer was on its way.
        self.safe = max(self.safe, min(upto, self.low))
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
    let_pass: frozenset[int]  # priorities that let those below them go first


class Below(NamedTuple):
    """One question about what is left below: lanes, and the range of numbers asked about."""

    lanes: tuple[Lane, ...]
    after: tuple[int, ...]
    upto: tuple[int, ...]


class Lanes:
    """The lanes of one dispatcher."""

    def __init__(self) -> None:
        self._marks: dict[Lane, Marks] = {}
        self._levels: dict[int, list[list[Lane]]] = {}  # lanes by queue, by priority
        self._claims = 0
        self._served: dict[Lane, int] = {}  # the last claim that brought something
        # For each priority: how many of its jobs were claimed that those below got nothing for.
        self._owed: Counter[int] = Counter()
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
        self._served = {lane: self._served.get(lane, 0) for lane in self._marks}
        levels: dict[int, dict[str, list[Lane]]] = {priority: {} for priority in PRIORITIES}
        for lane in self._marks:
            levels[lane.priority].setdefault(lane.queue, []).append(lane)
        self._levels = {priority: list(level.values()) for priority, level in levels.items()}

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def unsure(self) -> bool:
        """Whether a safe mark lags behind: something may yet turn up below."""
        return any(marks.low > marks.safe for marks in self._marks.values())

    def plan(self, most: int, look: Look) -> Plan:
        """The next claim, for at most this many jobs."""
        order: list[tuple[Lane, int]] = []
        let_pass = set()
        for priority in reversed(PRIORITIES):
            own = [(lane, most) for lane in self._in_order(priority)]
            owed = self._owed[priority] // (TURN_OF_THE_LOWER - 1)
            if owed > 0 and order:
                let_pass.add(priority)
                order = [(lane, min(limit, owed)) for lane, limit in order] + own
            else:
                order = own + order
        return Plan(
            look,
            most,
            tuple(lane for lane, _ in order),
            tuple(self._marks[lane].start(look) for lane, _ in order),
            tuple(limit for _, limit in order),
            frozenset(let_pass),
        )

    def claimed(self, plan: Plan, taken: Sequence[tuple[Lane, int]]) -> bool:
        """What that claim brought, acknowledged. True when there may be more behind it."""
        self._claims += 1
        for lane, seq in taken:
            if marks := self._marks.get(lane):
                marks.claimed(seq)
                self._served[lane] = self._claims
        counts = Counter(lane for lane, _ in taken)
        limits = dict(zip(plan.lanes, plan.limits, strict=True))
        more = len(taken) >= plan.most or any(n >= limits[lane] for lane, n in counts.items())
        if more:
            self._pay(plan, counts)
        else:
            self._owed.clear()  # everything within reach was taken: nobody waits
        return more

    def _pay(self, plan: Plan, counts: Counter[Lane]) -> None:
        """Each priority owes those below one job for every seven of its own."""
        full = sum(counts.values()) >= plan.most
        below = 0
        for priority in reversed(PRIORITIES):
            own = sum(n for lane, n in counts.items() if lane.priority == priority)
            passed = priority in plan.let_pass
            if below and not passed:
                self._owed[priority] = 0  # it left them room: it owes nothing
            elif passed and not below and (own or not full):
                self._owed[priority] = own  # they went first, and there was nobody
            else:  # whoever got too much at once, from many lanes, pays it back
                self._owed[priority] += own - below * (TURN_OF_THE_LOWER - 1)
            below += own

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

    def _in_order(self, priority: int) -> list[Lane]:
        """Queues, and the lanes of each, by how long they have waited; a queue's front first."""
        queues = self._levels.get(priority, [])
        for lanes in queues:
            lanes.sort(key=lambda lane: (lane.name != FRONT, self._served[lane]))
        queues.sort(key=lambda lanes: max(self._served[lane] for lane in lanes))
        return [lane for lanes in queues for lane in lanes]
