"""A PostgreSQL small enough to explore: one table, and what makes looking for work in it hard.

It has transaction ids, numbers from a sequence, snapshots, rows that are not committed yet, rows
that somebody else has locked, commits that a crash forgets. It is a model of PostgreSQL's rules
for the tests of `lanes.py`, and of nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from jobctl.supervisor.lanes import Lane, Plan


class Fate(Enum):
    RUNNING = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(eq=False)
class Transaction:
    """`waits_for_disk`: synchronous_commit. It has no id before it writes."""

    waits_for_disk: bool
    xid: int | None = None
    fate: Fate = Fate.RUNNING


@dataclass(eq=False)
class Row:
    """Of table `ready`. `taken_by` has locked and deleted it."""

    lane: Lane
    seq: int
    job: int
    inserted_by: Transaction
    taken_by: Transaction | None = None

    @property
    def visible(self) -> bool:
        """To a snapshot that is taken now."""
        here = self.inserted_by.fate is Fate.COMMITTED
        return here and (self.taken_by is None or self.taken_by.fate is not Fate.COMMITTED)

    @property
    def may_be_visible(self) -> bool:
        """Now, or once the transactions that run have ended in one way or the other."""
        here = self.inserted_by.fate is not Fate.ABORTED
        return here and (self.taken_by is None or self.taken_by.fate is not Fate.COMMITTED)


@dataclass
class SmallPostgres:
    """Statements are instantaneous; transactions last as long as the test likes."""

    rows: list[Row] = field(default_factory=list)
    _running: list[Transaction] = field(default_factory=list)
    _next_xid: int = 100
    _latest_completed: int = 99
    _next_number: int = 1
    _log: list[Transaction] = field(default_factory=list)  # commits, in their order
    _on_disk: int = 0  # so many of them survive a crash

    def begin(self, *, waits_for_disk: bool) -> Transaction:
        transaction = Transaction(waits_for_disk)
        self._running.append(transaction)
        return transaction

    def assign_id(self, transaction: Transaction) -> None:
        """What the first write of a transaction does, or pg_current_xact_id()."""
        if transaction.xid is None:
            transaction.xid = self._next_xid
            self._next_xid += 1

    def nextval(self) -> int:
        number, self._next_number = self._next_number, self._next_number + 1
        return number

    def insert(self, transaction: Transaction, lane: Lane, number: int, job: int) -> None:
        self.assign_id(transaction)
        self.rows.append(Row(lane, number, job, transaction))

    def claim(self, transaction: Transaction, plan: Plan) -> list[Row]:
        """As claim.sql: the plan's lanes in their order, SKIP LOCKED inside the limits."""
        taken: list[Row] = []
        for lane, mark, limit in zip(plan.lanes, plan.marks, plan.limits, strict=True):
            found = [row for row in self._of(lane) if row.seq > mark and row.taken_by is None]
            taken += found[: min(limit, plan.most - len(taken))]
        for row in taken:
            self.assign_id(transaction)
            row.taken_by = transaction
        return taken

    def is_occupied(self, lane: Lane, after: int, upto: int, *, skip_locked: bool = False) -> bool:
        """As look_below.sql; `skip_locked` is the mistake that it does not make."""
        return any(
            after < row.seq <= upto and not (skip_locked and row.taken_by is not None)
            for row in self._of(lane)
        )

    def snapshot(self) -> tuple[int, int]:
        """xmin and xmax of pg_current_snapshot(). xmax is the first id after the last one that has
        *ended*: a transaction that runs may have a higher one."""
        xmax = self._latest_completed + 1
        running = [one.xid for one in self._running if one.xid is not None and one.xid < xmax]
        return min([*running, xmax]), xmax

    def commit(self, transaction: Transaction) -> None:
        self._end(transaction, Fate.COMMITTED)
        if transaction.xid is not None:
            self._log.append(transaction)
        if transaction.waits_for_disk:
            self.flush()

    def rollback(self, transaction: Transaction) -> None:
        self._end(transaction, Fate.ABORTED)
        for row in self.rows:
            if row.taken_by is transaction:
                row.taken_by = None

    def flush(self) -> None:
        """What the WAL writer does when it comes round."""
        self._on_disk = len(self._log)

    def crash(self, numbers_lost: int) -> list[Transaction]:
        """Immediate stop and restart. Returns the commits that were forgotten.

        Ids are given out again from the last one on disk, and so may numbers be: a sequence is
        logged some values ahead, if that record reached the disk.
        """
        for transaction in list(self._running):
            self.rollback(transaction)
        forgotten = self._log[self._on_disk :]
        del self._log[self._on_disk :]
        for transaction in forgotten:
            transaction.fate = Fate.ABORTED
            for row in self.rows:
                if row.taken_by is transaction:
                    row.taken_by = None
        self.rows = [row for row in self.rows if row.inserted_by.fate is Fate.COMMITTED]
        self._next_xid = max((one.xid or 0 for one in self._log), default=99) + 1
        self._latest_completed = self._next_xid - 1
        highest = max((row.seq for row in self.rows), default=0)
        self._next_number = max(highest + 1, self._next_number - numbers_lost)
        return forgotten

    def _of(self, lane: Lane) -> Iterator[Row]:
        ordered = sorted(self.rows, key=lambda row: row.seq)
        return (row for row in ordered if row.lane == lane and row.visible)

    def _end(self, transaction: Transaction, fate: Fate) -> None:
        transaction.fate = fate
        self._running.remove(transaction)
        if transaction.xid is not None:
            self._latest_completed = max(self._latest_completed, transaction.xid)
