"""Dispatch: from queued in PostgreSQL to running in a slot.

One statement claims for a whole pool of slots, which is the host unless somebody has set more: as
many jobs as there are idle slots and, while jobs are short, a reserve that keeps the slots busy
during the next claim. A slot that ends a job is given the next one from the reserve in the same
callback. What was claimed and did not start within a
moment goes back, and costs no attempt. Nothing here waits for a slot, and only `run` waits for
PostgreSQL.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Sequence, Set
from math import inf
from time import monotonic, monotonic_ns
from typing import Protocol

import psycopg

from jobctl.store.job_type import LONGEST_TIMEOUT, JobType
from jobctl.store.link import Link, Unreachable
from jobctl.supervisor.admission import Admission
from jobctl.supervisor.alarm import Alarm
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.code import Code
from jobctl.supervisor.doorbell import POLL_SECONDS, Due
from jobctl.supervisor.lanes import Lane, Look
from jobctl.supervisor.outcomes import Failed, HandedBack, Unrunnable
from jobctl.supervisor.pool import Pool
from jobctl.supervisor.pool_spec import PoolSpec
from jobctl.supervisor.slot import Running, Slot
from jobctl.workerproc.frames import FRAME_LIMIT, Job, pack_job

#: Larger arguments are not fetched (`claim.sql` has the number too): no frame carries them.
LARGEST_ARGS = FRAME_LIMIT - 16 * 1024
#: How long a claimed job may wait for a slot before it is handed back.
MOMENT_SECONDS = 0.15
#: Queues and lanes are read anew even if nobody announced a change.
REREAD_SECONDS = 15.0
#: What has been due for longer than this was left behind, or committed late: it is looked for, too,
#: but seldom, because all that was promoted lies there as long as somebody holds an old snapshot.
LATELY_DUE_SECONDS, PROMOTE_WHOLE_SECONDS = 10.0, 30.0
#: The most that one statement promotes.
LARGEST_PROMOTION = 1000
#: Who has to wait for a rate starts at least so much later: `slack` of function admit.
NEAREST_MOMENT_SECONDS = 0.1
#: The longest sleep between promotions; the next due time cuts it short.
PROMOTE_SECONDS = 1.0
#: So long after a reconnect nothing that the old connection had begun can still be committed: more
#: than the `statement_timeout` of a link.
STRAGGLERS_SECONDS = 12.0
#: What PostgreSQL refuses for reasons of its own is asked again after this.
REFUSED_SECONDS = 1.0


class Hands(Protocol):
    """What the dispatcher needs of its surroundings."""

    def idle_slots(self, pool: str) -> list[Slot]:
        """Slots of this pool that can be given a job now."""

    def may_claim(self) -> bool:
        """False while draining, fenced, degraded or without a session."""

    def may_start(self) -> bool:
        """False from the moment at which the lease is over, whoever has noticed it yet."""

    def give_back(self, claimed: Claimed, cause: HandedBack | Unrunnable | Failed) -> None:
        """This claim did not start here."""

    def holds(self) -> set[tuple[int, int]]:
        """(session, token) of every claim that runs or waits to be written."""

    def disown(self, claims: list[tuple[int, int]]) -> None:
        """(job, token) of claims that this session holds and nobody here knows."""

    def on_claims_missing(self, present: set[int], before_token: int) -> None:
        """After a reconnect: the tokens that PostgreSQL knows of this session."""

    def on_claimed(self, claimed: list[Claimed]) -> None:
        """A claim brought these."""

    def on_refused(self, statement: str, error: psycopg.Error) -> None:
        """PostgreSQL refused a statement; it will be asked again."""


class Dispatcher:
    """One host's dispatcher."""

    def __init__(
        self,
        link: Link,
        hands: Hands,
        code: Code,
        pools: Sequence[PoolSpec],
        max_reserve: int,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.session_id = 0  # set by whoever registers sessions
        self.backstop = 0.0  # seconds: the longest that a known type may hold a claim
        self._link = link
        self._hands = hands
        self._code = code
        self._pools = {spec.name: Pool(spec, pools, max_reserve) for spec in pools}
        self._alarm = Alarm()
        self._clock = clock
        self._next_token = 1
        self._link_generation = 0
        self._reread_at = 0.0
        self._promote_at = 0.0
        self._promote_whole_at = 0.0  # however long it has been due
        self._admission = Admission()
        self._compare_at = inf
        self._cancelled: Set[int] = frozenset()  # tokens that must not start any more

    # What happens to it -------------------------------------------------------------------------

    def ring(self) -> None:
        """There is work, perhaps: somebody rang, or rang for others a moment ago."""
        self._admission.rung(self._clock())
        self._look_anew()

    def _look_anew(self) -> None:
        for pool in self._pools.values():
            pool.doorbell.rung(self._clock())
        self._alarm.set()

    def reread(self) -> None:
        """Queues, lanes or the types that this host can run have changed."""
        self._reread_at = 0.0
        self.ring()

    def start_over(self) -> None:
        """Looks from 0 again, as after a reconnect: the code is new, or the session is."""
        for pool in self._pools.values():
            pool.forget()
        self.reread()

    def feed(self, slot: Slot) -> None:
        """Gives an idle slot the next job of the reserve, and sees to it that there is more."""
        pool = self._pools[slot.pool]
        reserve = pool.reserve
        while reserve and self._hands.may_start():
            claimed = reserve.popleft()
            known = self._code.types(slot.generation).get(claimed.type)
            if known is None or claimed.schema_version > known.schema_version:
                self._hands.give_back(claimed, Unrunnable())
                continue
            if self._cancelled and claimed.token in self._cancelled:
                self._hands.give_back(claimed, HandedBack())
                continue
            if known.ack == "early" and not claimed.marked:
                pool.unmarked.append(claimed)
                self._alarm.set()
                continue
            try:
                given = self._give(pool, slot, claimed, known)
            except (struct.error, ValueError, OverflowError) as error:
                # Rows come from anywhere: one that cannot be given ends, and takes nobody along.
                self._hands.give_back(claimed, _ungivable(claimed, error))
                continue
            if not given:
                reserve.appendleft(claimed)  # the slot has just died; the next one takes it
            break
        if len(reserve) <= pool.pace.low_water:
            self._alarm.set()

    def finished(self, slot: Slot, claimed: Claimed, seconds: float) -> None:
        """An attempt of this type took so long: what the size of the reserve rests on."""
        self._pools[slot.pool].pace.ran(claimed.type, seconds)

    def hand_back_all(self) -> None:
        """Everything that has not started goes back now: a drain begins, or the lease is over."""
        for pool in self._pools.values():
            while pool.reserve:
                self._hands.give_back(pool.reserve.popleft(), HandedBack())
            while pool.unmarked:
                self._hands.give_back(pool.unmarked.pop(), HandedBack())

    def do_not_start(self, tokens: Set[int]) -> None:
        """These, of this session, are cancelled: they go back, also those still on their way."""
        self._cancelled = tokens
        if tokens:
            for queue in (each for pool in self._pools.values() for each in pool.waiting):
                for claimed in [one for one in queue if one.token in tokens]:
                    queue.remove(claimed)
                    self._hands.give_back(claimed, HandedBack())

    def forget_all(self) -> None:
        """The session is dead: what waits here belongs to others already."""
        for pool in self._pools.values():
            pool.reserve.clear()
            pool.unmarked.clear()
        self._cancelled = frozenset()
        self.session_id = 0

    def hand_back_stale(self) -> float:
        """Hands back what has waited too long; returns when to look again (the clock's time)."""
        now_ns = monotonic_ns()
        limit = int(MOMENT_SECONDS * 1e9)
        for pool in self._pools.values():
            while pool.reserve and now_ns - pool.reserve[0].claimed_ns > limit:
                self._hands.give_back(pool.reserve.popleft(), HandedBack())
                pool.pace.stranded(now_ns)
            while pool.unmarked and now_ns - pool.unmarked[0].claimed_ns > limit:
                self._hands.give_back(pool.unmarked.pop(0), HandedBack())
        return self._clock() + MOMENT_SECONDS / 2

    def reserve_tokens(self) -> set[tuple[int, int]]:
        """(session, token) of what waits here."""
        waiting = (queue for pool in self._pools.values() for queue in pool.waiting)
        return {(one.session_id, one.token) for queue in waiting for one in queue}

    def __len__(self) -> int:
        return sum(len(pool) for pool in self._pools.values())

    # What it does -------------------------------------------------------------------------------

    async def run(self) -> None:
        """For ever: wait for a reason, promote what is due, claim what there is room for."""
        while True:
            if not self.session_id:
                await self._alarm.wait(self._clock() + POLL_SECONDS)
                continue
            await self._link.ready()
            try:
                if self._link.generation != self._link_generation:
                    await self._after_reconnect()
                await self._turn()
            except Unreachable:
                continue
            except psycopg.Error as error:
                self._hands.on_refused("dispatch", error)
                await asyncio.sleep(REFUSED_SECONDS)
            await self._alarm.wait(self._next_due())

    async def _turn(self) -> None:
        if self._clock() >= self._compare_at:
            await self._compare_claims()
            self._compare_at = inf
        if self._clock() >= self._promote_at:
            await self._promote()
        await self._mark()
        if not self._hands.may_claim():
            return
        if self._clock() >= self._reread_at:
            await self._read_lanes()
        if self._clock() >= self._admission.next_due(bool(self._roomy())):
            await self._admit()
        for pool in self._pools.values():
            await self._look(pool)

    async def _look(self, pool: Pool) -> None:
        """Claims while the pool has room and a reason to look."""
        while (room := self._room(pool)) > 0:
            match pool.doorbell.due(self._clock()):
                case Look() as look if len(pool.lanes):
                    await self._claim(pool, room, look)
                case Due.PEEK:
                    ((number,),) = await self._link.run("peek")
                    pool.doorbell.peeked(number, self._clock())
                case _:
                    return

    def _next_due(self) -> float:
        due = min(self._promote_at, self._compare_at)
        if self._hands.may_claim():
            roomy = self._roomy()
            due = min(due, self._reread_at, self._admission.next_due(bool(roomy)))
            for pool in roomy:
                due = min(due, pool.doorbell.next_due(self._clock()))
        return due

    def _roomy(self) -> list[Pool]:
        """Those for which there is something to claim, if somebody is let in or rings."""
        pools = self._pools.values()
        return [pool for pool in pools if len(pool.lanes) and self._room(pool) > 0]

    def _room(self, pool: Pool) -> int:
        """How many jobs to claim now."""
        idle = len(self._hands.idle_slots(pool.name))
        waiting = len(pool)
        target = pool.pace.reserve(monotonic_ns())
        if waiting >= idle and waiting > target // 2:
            return 0
        return max(0, idle + target - waiting)

    async def _claim(self, pool: Pool, room: int, look: Look) -> None:
        """One claim."""
        pool.doorbell.begins(look, self._clock())
        plan = pool.lanes.plan(room, look)
        session, token = self.session_id, self._next_token
        self._next_token += room  # whatever comes of it, these are never used again
        try:
            rows = await self._link.run(
                "claim",
                queues=[lane.queue for lane in plan.lanes],
                priorities=[lane.priority for lane in plan.lanes],
                lanes=[lane.name for lane in plan.lanes],
                marks=list(plan.marks),
                limits=list(plan.limits),
                most=room,
                session=session,
                first_token=token,
                backstop=self.backstop,
            )
        except BaseException:
            pool.doorbell.failed()
            raise
        claimed_ns = monotonic_ns()
        taken = [Claimed.from_row(session, claimed_ns, row) for row in rows]
        more = pool.lanes.claimed(
            plan, [(Lane(one.queue, one.priority, one.lane), one.seq) for one in taken]
        )
        pool.doorbell.brought(max((one.seq for one in taken), default=0), more)
        if taken:
            self._hands.on_claimed(taken)
            self._take(pool, taken)
            await self._mark()
        if look is not Look.ABOVE:
            await self._ask_below(pool)

    def _take(self, pool: Pool, taken: list[Claimed]) -> None:
        if not self._hands.may_claim():  # a drain began while the claim was on its way
            for one in taken:
                self._hands.give_back(one, HandedBack())
            return
        pool.reserve.extend(taken)
        self._feed_idle(pool)

    def _feed_idle(self, pool: Pool) -> None:
        for slot in self._hands.idle_slots(pool.name):
            if not pool.reserve:
                break
            self.feed(slot)

    async def _mark(self) -> None:
        """Writes, for sure, that these are begun; only then may a slot have them.

        One statement more, for types that are acknowledged early and for no others.
        """
        for pool in self._pools.values():
            if pool.unmarked:
                await self._mark_of(pool)

    async def _mark_of(self, pool: Pool) -> None:
        marking, session = list(pool.unmarked), self.session_id
        rows = await self._link.run(
            "mark_early",
            session=session,
            jobs=[one.job_id for one in marking],
            tokens=[one.token for one in marking],
        )
        marked = {token for (token,) in rows}
        waiting, pool.unmarked = pool.unmarked, []
        for one in waiting:  # what went back meanwhile is not among them
            if one.token in marked:
                one.marked = True
                pool.reserve.append(one)
            elif one in marking:
                self._hands.give_back(one, HandedBack())  # it turns out there what became of it
            else:
                pool.unmarked.append(one)
        self._feed_idle(pool)

    def _give(self, pool: Pool, slot: Slot, claimed: Claimed, known: JobType) -> bool:
        if not claimed.args:
            raise ValueError(f"its arguments have more than {LARGEST_ARGS} bytes")
        hard = claimed.timeout_seconds or known.timeout_seconds
        if not 0 < hard <= LONGEST_TIMEOUT:  # NaN is neither
            raise ValueError(f"its time-out is {hard} s")
        soft = known.soft_timeout_seconds or 0.0
        soft = soft if soft < hard else 0.0
        most = known.max_attempts if claimed.max_attempts is None else claimed.max_attempts
        frame = pack_job(
            Job(
                claimed.job_id,
                claimed.session_id,
                claimed.token,
                claimed.attempt + 1,
                most,
                claimed.schema_version,
                hard,
                soft,
                claimed.type,
                claimed.queue,
                claimed.key,
                claimed.subject,
                claimed.args.encode(),
                claimed.compensating,
                claimed.traceparent,
            )
        )
        pool.pace.given(slot.number, claimed.type, monotonic_ns())
        running = Running(
            claimed.job_id, claimed.token, hard, soft,
            pool.memory(known), known.cpu_seconds or 0.0, claimed,
        )  # fmt: skip
        return slot.give(running, frame)

    async def _ask_below(self, pool: Pool) -> None:
        asked = pool.lanes.question()
        if not asked.lanes and not pool.lanes.unsure:
            return
        rows = await self._link.run(
            "look_below",
            queues=[lane.queue for lane in asked.lanes],
            priorities=[lane.priority for lane in asked.lanes],
            lanes=[lane.name for lane in asked.lanes],
            after=list(asked.after),
            upto=list(asked.upto),
        )
        ((xmin, xmax, occupied),) = rows
        pool.lanes.answer(asked, occupied, xmin, xmax)

    async def _promote(self) -> None:
        whole = self._clock() >= self._promote_whole_at
        within = None if whole else LATELY_DUE_SECONDS
        rows = await self._link.run("promote", most=LARGEST_PROMOTION, within=within)
        ((moved, _, next_in),) = rows
        jitter = random.uniform(0.8, 1.2)  # noqa: S311
        wait = PROMOTE_SECONDS * jitter
        if moved == LARGEST_PROMOTION:
            wait = 0.0
        elif next_in is not None:
            wait = min(wait, max(0.0, next_in) + 0.001)
        if whole and moved < LARGEST_PROMOTION:
            self._promote_whole_at = self._clock() + PROMOTE_WHOLE_SECONDS * jitter
        self._promote_at = self._clock() + wait
        if moved:
            self._look_anew()

    async def _admit(self) -> None:
        """Lets in who waits for a limit that has room, or whose moment has come."""
        self._admission.begins(self._clock())
        try:
            ((moved, next_in),) = await self._link.run("admit")
        except BaseException:
            self._admission.failed()
            raise
        self._admission.answered(next_in, self._clock())
        if moved:  # some may have been given a moment, none that is nearer than this
            self._promote_at = min(self._promote_at, self._clock() + NEAREST_MOMENT_SECONDS)
            self._look_anew()

    async def _read_lanes(self) -> None:
        self._reread_at = self._clock() + REREAD_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311
        rows = await self._link.run("read_lanes")
        queues = {queue for queue, _, name, _, _ in rows if name is None}
        known = self._code.types()
        of_types = [
            Lane(queue, priority, name)
            for queue, priority, name, type_, version in rows
            if name is not None
            and (mine := known.get(type_)) is not None
            and mine.schema_version >= version
        ]
        for pool in self._pools.values():
            pool.lanes.serve(
                {queue for queue in queues if pool.serves(queue)},
                [lane for lane in of_types if pool.serves(lane.queue)],
            )
            self._hand_back_unserved(pool, queues)
        ((in_use,),) = await self._link.run("limits_in_use")
        self._admission.use(in_use, self._clock())

    def _hand_back_unserved(self, pool: Pool, queues: Set[str]) -> None:
        """What has not started of a queue that was paused meanwhile waits there, not here."""
        for one in [each for each in pool.reserve if each.queue not in queues]:
            pool.reserve.remove(one)
            self._hands.give_back(one, HandedBack())

    async def _after_reconnect(self) -> None:
        """Nothing that rests on what the old connection said holds any more."""
        for pool in self._pools.values():
            pool.forget()
        self._reread_at = self._promote_at = self._promote_whole_at = 0.0
        await self._compare_claims()
        # And once more when the server has certainly given up what the old connection had sent: a
        # claim may have been waiting for a lock while nobody was there to be told.
        self._compare_at = self._clock() + STRAGGLERS_SECONDS
        self._link_generation = self._link.generation  # not before: what failed is done again

    async def _compare_claims(self) -> None:
        """Kills what runs here and is not ours any more; hands back what is ours and not here."""
        # Claims are made by this task alone, so every claim with a token below this is either
        # known here or was made by a statement whose answer was lost.
        known = self._hands.holds() | self.reserve_tokens()
        session, before = self.session_id, self._next_token
        rows = await self._link.run("session_claims", session=session)
        self._hands.on_claims_missing({token for _, token in rows}, before)
        self._hands.disown([(job, token) for job, token in rows if (session, token) not in known])


def _ungivable(claimed: Claimed, error: Exception) -> Failed:
    why = f"it cannot be given to a slot: {error}. It was not enqueued with jobctl.enqueue"
    return Failed("UngivableJob", why, permanent=True)
