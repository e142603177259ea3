"""Several dispatchers with real `Lanes` over a small PostgreSQL, explored step by step.

Whatever producers, other dispatchers, crashes and cut connections do: nothing is claimed twice,
no safe mark passes a row that is there or may yet appear, and once every transaction has ended a
few looks below find everything that was committed, for whichever dispatcher is the only one left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jobctl.supervisor.lanes import FRONT, Below, Lane, Lanes, Look, Plan
from tests.supervisor.small_postgres import Row, SmallPostgres, Transaction

QUEUE = "q"
TYPED = Lane(QUEUE, 0, "type:t@2")
OWN = Lane(QUEUE, 0, "")
HOSTS = 2


def _one_of(names: str) -> st.SearchStrategy[Any]:
    """One of what the machine has under this name."""
    return st.runner().flatmap(lambda machine: st.sampled_from(getattr(machine, names)))


which = st.integers(0, 1_000)  # picks one of however many there are
a_room, a_lane, a_look, a_stage = map(_one_of, ("rooms", "lanes", "looks", "stages"))
an_end, a_disturbance = map(_one_of, ("ends", "disturbances"))


@dataclass
class Claim:
    plan: Plan
    transaction: Transaction
    rows: list[Row]


@dataclass(eq=False)
class Host:
    """One dispatcher, and where its one task stands."""

    lanes: Lanes
    claiming: Claim | None = None
    must_ask: bool = False  # it has looked below, and is to ask what is left there
    asking: tuple[Below, list[bool], int, int] | None = None  # the answer is on its way
    held: list[int] = field(default_factory=list)  # jobs of acknowledged claims

    @property
    def is_free(self) -> bool:
        return self.claiming is None and not self.must_ask and self.asking is None


class LaneMachine(RuleBasedStateMachine):
    """The rules as they are; a negative control is a subclass in which one of them is broken."""

    number_before_id = False  # a writer takes its number before it has a transaction id
    select_skips_locked = False  # look_below.sql with SKIP LOCKED
    # What is drawn more often is there more often; a control leaves out what it does not need.
    lanes: tuple[Lane, ...] = (OWN, OWN, TYPED)
    inserts: tuple[bool, ...] = (True, False)  # right when it begins, or later
    rooms: tuple[int, ...] = (1, 2, 3)
    looks: tuple[Look, ...] = (Look.ABOVE, Look.BELOW, Look.BELOW, Look.BELOW, Look.WHOLE)
    ends: tuple[str, ...] = ("finish", "hand back", "begin to hand back")
    stages: tuple[str, ...] = ("done", "done", "done", "begun", "acknowledged", "asked", "asked")
    disturbances: tuple[str, ...] = (
        "reload", "reload", "pause", "resume", "cut", "cut late", "flush", "crash",
    )  # fmt: skip

    def new_lanes(self) -> Lanes:
        return Lanes()

    def __init__(self) -> None:
        super().__init__()
        self.database = SmallPostgres()
        self.hosts: list[Host] = []
        self.writers: list[tuple[Transaction, list[int]]] = []  # with numbers taken too early
        self.returns: list[tuple[Transaction, Host, int]] = []  # hand-backs: of whom, which job
        self.claims: dict[int, Host] = {}  # table claim: by job
        self.next_job = 0
        self.broken = False

    @initialize()
    def start(self) -> None:
        for _ in range(HOSTS):
            host = Host(self.new_lanes())
            host.lanes.serve([QUEUE], [TYPED])
            self.hosts.append(host)

    # Producers ----------------------------------------------------------------------------------

    @rule(lane=a_lane)
    def enqueue(self, lane: Lane) -> None:
        """The plain case: begun, inserted and committed at once."""
        self.begin(lane, True)
        self.end(-1, True)

    @precondition(lambda self: len(self.writers) < 3)
    @rule(lane=a_lane, insert=_one_of("inserts"))
    def begin(self, lane: Lane, insert: bool) -> None:
        transaction = self.database.begin(waits_for_disk=True)
        early = []
        if self.number_before_id:
            early.append(self.database.nextval())
        else:
            self.database.assign_id(transaction)
        self.writers.append((transaction, early))
        if insert:
            self.insert(-1, lane)

    @precondition(lambda self: self.writers)
    @rule(writer=which, lane=a_lane)
    def insert(self, writer: int, lane: Lane) -> None:
        transaction, early = self.writers[writer % len(self.writers)]
        number = early.pop() if early else self.database.nextval()
        self.next_job += 1
        self.database.insert(transaction, lane, number, self.next_job)

    @precondition(lambda self: self.writers)
    @rule(writer=which, commit=st.booleans())
    def end(self, writer: int, commit: bool) -> None:
        transaction, _ = self.writers.pop(writer % len(self.writers))
        if commit:
            self.database.commit(transaction)
        else:
            self.database.rollback(transaction)

    # Dispatchers --------------------------------------------------------------------------------

    @precondition(lambda self: any(one.is_free for one in self.hosts))
    @rule(host=which, room=a_room, look=a_look, stage=a_stage)
    def claim(self, host: int, room: int, look: Look, stage: str) -> None:
        """Most often to the end: claimed, acknowledged, and what is below asked about."""
        one = _pick(host, [one for one in self.hosts if one.is_free])
        self._begin_claim(one, room, look)
        if stage != "begun":
            self._acknowledge(one)
        if stage in ("asked", "done"):
            self._ask(one)
        if stage == "done":
            self._answer(one)

    @precondition(lambda self: all(one.is_free for one in self.hosts))
    @rule(host=which, room=a_room, look=a_look, times=st.integers(1, 3), refused=st.booleans())
    def pass_by(self, host: int, room: int, look: Look, times: int, refused: bool) -> None:
        """One looks, several times perhaps, while another's claim holds its rows locked."""
        one = _pick(host, self.hosts)
        other = _pick(host + 1, self.hosts)
        self._begin_claim(one, room, look)
        for _ in range(times):
            self._claim_at_once(other, room, Look.BELOW)
        if refused:
            self._refuse(one)
        self._acknowledge(one)

    @precondition(lambda self: any(not one.is_free for one in self.hosts))
    @rule(host=which, refused=st.booleans())
    def go_on(self, host: int, refused: bool) -> None:
        """One step on; or the claim is refused, by a time-out say, with the connection alive."""
        one = _pick(host, [one for one in self.hosts if not one.is_free])
        if one.claiming is not None and refused:
            self._refuse(one)
        elif one.claiming is not None:
            self._acknowledge(one)
        elif one.must_ask:
            self._ask(one)
        else:
            self._answer(one)

    @precondition(lambda self: self.ends and any(one.held for one in self.hosts))
    @rule(host=which, what=an_end)
    def end_job(self, host: int, what: str) -> None:
        """It ends, synchronously; or it never started and goes to the front lane."""
        one = _pick(host, [one for one in self.hosts if one.held])
        job = one.held.pop()
        if what == "finish":
            del self.claims[job]
            self.database.flush()
        else:
            self._begin_return(one, job)
            if what == "hand back":
                self.commit_return(-1)

    @precondition(lambda self: self.returns)
    @rule(which_one=which)
    def commit_return(self, which_one: int) -> None:
        transaction, _, job = self.returns.pop(which_one % len(self.returns))
        self.database.commit(transaction)
        del self.claims[job]

    # What else happens --------------------------------------------------------------------------

    @precondition(lambda self: self.disturbances)
    @rule(what=a_disturbance, host=which, numbers_lost=st.integers(0, 3))
    def disturb(self, what: str, host: int, numbers_lost: int) -> None:
        one = _pick(host, self.hosts)
        match what:
            case "reload":  # from a callback, so in the middle of whatever the task does
                one.lanes.forget()
            case "pause":
                one.lanes.serve([], [])
            case "resume":
                one.lanes.serve([QUEUE], [TYPED])
            case "flush":
                self.database.flush()
            case "crash":
                self._crash(numbers_lost)
            case "cut" | "cut late":  # a claim may have arrived and its answer have been lost
                if one.claiming is not None and what == "cut late":
                    self._commit_claim(one)
                elif one.claiming is not None:
                    self.database.rollback(one.claiming.transaction)
                self._reconnect(one)

    # What must hold -----------------------------------------------------------------------------

    @invariant()
    def safe_marks_are_safe(self) -> None:
        for one in self.hosts:
            for lane, marks in one.lanes._marks.items():
                if marks.safe > marks.low:
                    self._fail(f"{lane}: safe is above low: {marks}")
                for row in self.database.rows:
                    if row.lane == lane and row.seq <= marks.safe and row.may_be_visible:
                        self._fail(f"{lane}: {row.seq} may be there, and the marks are {marks}")

    def teardown(self) -> None:
        """Every transaction ends, one way or the other; then any single host finds the rest."""
        if self.broken or not self.hosts:
            return
        for number, one in enumerate(self.hosts):
            if one.claiming is not None and number % 2:
                self._refuse(one)
            self._acknowledge(one)
            self._ask(one)
            self._answer(one)
        while self.writers:
            self.end(0, True)
        while self.returns:
            self.commit_return(0)
        self._must_find_everything(self.hosts[self.next_job % HOSTS])

    def _must_find_everything(self, one: Host) -> None:
        one.lanes.serve([QUEUE], [TYPED])
        waiting = [row for row in self.database.rows if row.visible]
        for _ in range(len(waiting) + 2):
            self._claim_at_once(one, 2, Look.BELOW)
        stranded = [(row.lane, row.seq) for row in self.database.rows if row.visible]
        assert not stranded, f"stranded: {stranded}, the marks are {one.lanes._marks}"

    # ----------------------------------------------------------------------------------------------

    def _claim_at_once(self, one: Host, room: int, look: Look) -> None:
        self._begin_claim(one, room, look)
        self._acknowledge(one)
        self._ask(one)
        self._answer(one)

    def _begin_claim(self, one: Host, room: int, look: Look) -> None:
        plan = one.lanes.plan(room, look)
        assert len(set(plan.lanes)) == len(plan.lanes), "a lane is asked for twice"
        transaction = self.database.begin(waits_for_disk=False)
        one.claiming = Claim(plan, transaction, self.database.claim(transaction, plan))

    def _acknowledge(self, one: Host) -> None:
        if one.claiming is not None:
            claim = self._commit_claim(one)
            one.lanes.claimed(claim.plan, [(row.lane, row.seq) for row in claim.rows])
            one.held += [row.job for row in claim.rows]
            one.must_ask = claim.plan.look is not Look.ABOVE

    def _refuse(self, one: Host) -> None:
        if one.claiming is not None:
            self.database.rollback(one.claiming.transaction)
            one.claiming = None

    def _ask(self, one: Host) -> None:
        if one.must_ask:
            asked = one.lanes.question()
            occupied = [
                self.database.is_occupied(lane, after, upto, skip_locked=self.select_skips_locked)
                for lane, after, upto in zip(*asked, strict=True)
            ]
            one.asking = (asked, occupied, *self.database.snapshot())
            one.must_ask = False

    def _answer(self, one: Host) -> None:
        if one.asking is not None:
            one.lanes.answer(*one.asking)
            one.asking = None

    def _commit_claim(self, one: Host) -> Claim:
        claim = one.claiming
        assert claim is not None
        one.claiming = None
        self.database.commit(claim.transaction)
        for row in claim.rows:
            if row.job in self.claims:
                self._fail(f"job {row.job} was claimed twice")
            self.claims[row.job] = one
        return claim

    def _begin_return(self, one: Host, job: int) -> None:
        transaction = self.database.begin(waits_for_disk=True)
        self.database.assign_id(transaction)  # the delete of the claim
        self.database.insert(transaction, Lane(QUEUE, 0, FRONT), self.database.nextval(), job)
        self.returns.append((transaction, one, job))

    def _crash(self, numbers_lost: int) -> None:
        """Everybody's connection is reset, and what was committed asynchronously may be gone."""
        forgotten = self.database.crash(numbers_lost)
        assert not any(one.waits_for_disk for one in forgotten)
        ready = {row.job for row in self.database.rows if row.visible}
        self.claims = {job: host for job, host in self.claims.items() if job not in ready}
        self.writers.clear()
        self.returns.clear()
        for one in self.hosts:
            one.held = [job for job in one.held if job in self.claims]
            one.claiming = None
            self._reconnect(one)

    def _reconnect(self, one: Host) -> None:
        """As the dispatcher does it: from 0 again, and what is claimed and not known goes back."""
        one.claiming, one.must_ask, one.asking = None, False, None
        one.lanes.forget()
        known = {*one.held, *(job for _, owner, job in self.returns if owner is one)}
        for job in [job for job, owner in self.claims.items() if owner is one]:
            if job not in known:
                self._begin_return(one, job)
                self.commit_return(-1)

    def _fail(self, because: str) -> None:
        self.broken = True  # the end of this story proves nothing more
        raise AssertionError(because)


def _pick(which_one: int, candidates: list[Host]) -> Host:
    return candidates[which_one % len(candidates)]
