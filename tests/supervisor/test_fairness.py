"""Which lanes come first, for any sizes of room: nothing starves, and order means something."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from jobctl.supervisor.lanes import FRONT, PRIORITIES, TURN_OF_THE_LOWER, Lane, Lanes, Look, Plan
from tests.exploring import explore

ENDLESS = 10**9
LARGEST_ROOM = 100
QUEUES = ("a", "b", "c")
TYPED = tuple(Lane("a", priority, "type:t@2") for priority in PRIORITIES)
ALL = (*TYPED, *(Lane(q, p, name) for q in QUEUES for p in PRIORITIES for name in (FRONT, "")))

rooms = st.lists(st.integers(1, LARGEST_ROOM) | st.integers(1, 3), min_size=1, max_size=80)
#: The front holds what came back: there is never an end to it only in a nightmare.
endless_lanes = st.sets(st.sampled_from([lane for lane in ALL if lane.name != FRONT]), min_size=1)


@dataclass
class Backlog:
    """Jobs by lane, claimed as claim.sql does."""

    lanes: Lanes
    waiting: Counter[Lane]
    taken: Counter[Lane] = field(default_factory=Counter)
    seq: int = 0

    @classmethod
    def of(cls, waiting: dict[Lane, int]) -> Backlog:
        lanes = Lanes()
        lanes.serve(QUEUES, TYPED)
        return cls(lanes, Counter(waiting))

    def claim(self, room: int) -> tuple[Plan, list[Lane], bool]:
        """The plan, of which lane each job was in their order, and whether there may be more."""
        plan = self.lanes.plan(room, Look.ABOVE)
        brought: list[Lane] = []
        for lane, limit in zip(plan.lanes, plan.limits, strict=True):
            found = min(self.waiting[lane], limit, room - len(brought))
            self.waiting[lane] -= found
            self.taken[lane] += found
            brought += [lane] * found
        self.seq += 1
        return plan, brought, self.lanes.claimed(plan, [(lane, self.seq) for lane in brought])

    def of_priority(self, *priorities: int) -> int:
        return sum(n for lane, n in self.taken.items() if lane.priority in priorities)


@explore(100)
@given(st.dictionaries(st.sampled_from(ALL), st.integers(1, 200)), rooms)
def test_a_plan_asks_each_lane_once_and_says_when_nothing_is_left(
    waiting: dict[Lane, int], sizes: list[int]
) -> None:
    """Every lane is in every plan; when a claim says that there is no more, there is no more."""
    backlog = Backlog.of(waiting)
    for room in sizes:
        plan, brought, more = backlog.claim(room)
        assert sorted(plan.lanes) == sorted(ALL)
        assert len(plan.marks) == len(plan.limits) == len(plan.lanes)
        assert all(1 <= limit <= room for limit in plan.limits)
        assert len(brought) <= room
        assert more or not +backlog.waiting


@explore(100)
@given(endless_lanes, rooms)
def test_one_job_in_eight_comes_from_the_lanes_below(endless: set[Lane], sizes: list[int]) -> None:
    """For every seven jobs of any priority, one of those below it; late by one claim at most.

    And below the highest no more than that, but for one claim that was too generous.
    """
    backlog = Backlog.of(dict.fromkeys(endless, ENDLESS))
    for room in sizes:
        backlog.claim(room)
        for priority in {lane.priority for lane in endless}:
            lower = [p for p in PRIORITIES if p < priority]
            if any(lane.priority in lower for lane in endless):
                own, below = backlog.of_priority(priority), backlog.of_priority(*lower)
                late = own - below * (TURN_OF_THE_LOWER - 1)
                most = max(sizes)
                assert late < TURN_OF_THE_LOWER + most
                if priority == max(lane.priority for lane in endless):
                    assert late > -most * TURN_OF_THE_LOWER


@explore(100)
@given(endless_lanes, st.dictionaries(st.sampled_from(ALL), st.integers(1, 50)), rooms)
def test_queues_and_lanes_are_served_in_turn(
    endless: set[Lane], finite: dict[Lane, int], sizes: list[int]
) -> None:
    """Of one priority, no queue is served twice with another waiting in between; nor is a lane."""
    backlog = Backlog.of(finite | dict.fromkeys(endless, ENDLESS))
    hungry: Counter[Lane] = Counter()  # claims that served its priority and not it
    for room in sizes:
        _, brought, _ = backlog.claim(room)
        for lane in endless:
            rivals = [one for one in brought if one.priority == lane.priority]
            hungry[lane] = 0 if lane in brought else hungry[lane] + bool(rivals)
            # Each of the other queues first, each with its front and its other lane first.
            fronts = sum(n > 0 for one, n in finite.items() if one.name == FRONT)
            assert hungry[lane] <= 2 * len(QUEUES) + sum(finite.values()) + fronts


def test_every_lane_is_served_although_all_are_endless_and_there_is_room_for_one() -> None:
    """The worst case: four priorities, nothing ever ends, one job at a time."""
    endless = [lane for lane in ALL if lane.name != FRONT]
    backlog = Backlog.of(dict.fromkeys(endless, ENDLESS))
    per_level = 4  # lanes: three queues, one of them with a lane of a type
    for _ in range(2 * per_level * TURN_OF_THE_LOWER ** (len(PRIORITIES) - 1)):
        backlog.claim(1)
    assert all(backlog.taken[lane] for lane in endless), backlog.taken
    shares = [backlog.of_priority(priority) for priority in PRIORITIES]
    assert shares == [7 * 512, 7 * 64, 7 * 8, 8]


@explore(100)
@given(endless_lanes, st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_higher_priorities_come_first_when_nobody_is_owed(
    endless: set[Lane], sizes: list[int]
) -> None:
    """What comes after the debts are paid is the highest that is there."""
    backlog = Backlog.of(dict.fromkeys(endless, ENDLESS))
    highest = max(lane.priority for lane in endless)
    plan, brought, _ = backlog.claim(sizes[0])
    assert not plan.let_pass
    assert {lane.priority for lane in brought} == {highest}


@explore(100)
@given(st.dictionaries(st.sampled_from(ALL), st.integers(1, 30)), rooms)
def test_the_front_of_a_queue_goes_before_its_other_lanes(
    waiting: dict[Lane, int], sizes: list[int]
) -> None:
    """Handed-back work does not lose its turn: of a queue and priority, it is claimed first."""
    backlog = Backlog.of(waiting)
    for room in sizes:
        before = Counter(backlog.waiting)
        _, brought, _ = backlog.claim(room)
        for lane in set(brought):
            front = lane._replace(name=FRONT)
            if lane.name != FRONT:
                assert brought.count(front) >= min(before[front], 1)


def test_a_lane_that_was_paused_starts_from_nothing() -> None:
    """What was enqueued and resumed meanwhile cannot be below its marks."""
    lanes = Lanes()
    lanes.serve(["a"], [])
    own = Lane("a", 0, "")
    lanes.claimed(lanes.plan(1, Look.ABOVE), [(own, 7)])
    lanes.serve([], [])
    assert len(lanes) == 0
    assert not lanes.plan(1, Look.ABOVE).lanes
    lanes.serve(["a"], [])
    plan = lanes.plan(1, Look.ABOVE)
    assert plan.marks[plan.lanes.index(own)] == 0
