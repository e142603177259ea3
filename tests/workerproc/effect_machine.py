"""Effects beside a model of them: attempts that crash, that lose their claims and go on, that race.

The world is a count of acts. An attempt that was told to act may do so at any later step, also when
its claim has long gone to somebody else: nobody can hold it back then. What is said of an effect is
checked at every step against what the model knows.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jobctl.supervisor.claimed import Claimed
from jobctl.workerproc.context import Context
from jobctl.workerproc.effect import Effect
from jobctl.workerproc.errors import LostClaim, Snooze
from tests.attempting import Ground, ground_on

MARKED, ACTING = ("m1", "m2"), ("a1",)  # keys by their mode
MOST_JOBS = 3
TABLES = ("effect", "claim", "ready", "job", "history", "session", "queue_seen")


@dataclass(eq=False)
class Attempt:
    """One attempt of the model; its process may be a stranger to its own claim."""

    claimed: Claimed
    context: Context
    holds: bool = True  # its claim


@dataclass(eq=False)
class Block:
    """An attempt that is inside `with ctx.effect(key)`."""

    attempt: Attempt
    key: str
    effect: Effect
    acted: bool = False


@dataclass
class Known:
    """What the table must say of one key."""

    state: str | None = None  # None | marked | done
    value: Any = None
    by: Attempt | None = None  # whose the mark is
    acts: int = 0
    begun: int = 0  # how often somebody was told to act


class EffectMachine(RuleBasedStateMachine):
    """`dsn` is set by the test."""

    dsn = ""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.ground: Ground = self.stack.enter_context(ground_on(self.dsn, fresh=TABLES))
        self.attempts: list[Attempt] = []
        self.blocks: list[Block] = []
        self.known = {key: Known() for key in (*MARKED, *ACTING)}
        self.open_jobs = 0

    def teardown(self) -> None:
        self.stack.close()

    # What happens to attempts -------------------------------------------------------------------

    @precondition(lambda self: self.open_jobs < MOST_JOBS)
    @rule()
    def start_a_job(self) -> None:
        self.open_jobs += 1
        self._begin_attempt(self.ground.job())

    @precondition(lambda self: any(one.holds for one in self.attempts))
    @rule(data=st.data(), dies=st.booleans())
    def lose_the_claim(self, data: st.DataObject, dies: bool) -> None:
        """The next attempt begins; the process of this one is dead, or only thought to be."""
        lost = data.draw(st.sampled_from([one for one in self.attempts if one.holds]))
        lost.holds = False
        if dies:
            self._forget(lost)
        self._begin_attempt(self.ground.lose(lost.claimed))

    @precondition(lambda self: any(one.holds for one in self.attempts))
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        """The job is over; so is whatever its attempt was inside of."""
        done = data.draw(st.sampled_from([one for one in self.attempts if one.holds]))
        assert self.ground.settle(done.claimed)
        done.holds = False
        self._forget(done)
        self.open_jobs -= 1

    # What attempts do ---------------------------------------------------------------------------

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), key=st.sampled_from((*MARKED, *ACTING)))
    def ask(self, data: st.DataObject, key: str) -> None:
        """An attempt enters the block of this effect."""
        attempt = data.draw(st.sampled_from(self.attempts))
        if any(one.attempt is attempt and one.key == key for one in self.blocks):
            return
        known, mode = self.known[key], "mark_first" if key in MARKED else "act_first"
        effect = attempt.context.effect(key, mode=mode)  # type: ignore[arg-type]  # one of two
        try:
            effect.__enter__()
        except LostClaim:
            assert not attempt.holds
            return
        except Snooze:
            assert attempt.holds and known.state == "marked"
            assert known.by is not None and known.by.holds
            assert known.by.claimed.job_id != attempt.claimed.job_id
            return
        assert attempt.holds, "an attempt that counts no more was let in"
        if known.state == "done":
            assert (effect.state, effect.todo, effect.value) == ("done", False, known.value)
        elif known.state == "marked":
            assert (effect.state, effect.todo) == ("ambiguous", False)
            known.by = attempt
        else:
            assert (effect.state, effect.todo) == ("new", True)
            if mode == "mark_first":
                known.state, known.by = "marked", attempt
        self.blocks.append(Block(attempt, key, effect))
        known.begun += effect.todo

    @precondition(lambda self: any(one.effect.todo and not one.acted for one in self.blocks))
    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """On the world: whoever was told to may, whatever has become of its claim."""
        block = data.draw(
            st.sampled_from([one for one in self.blocks if one.effect.todo and not one.acted])
        )
        block.acted = True
        self.known[block.key].acts += 1

    @precondition(lambda self: any(one.acted for one in self.blocks))
    @rule(data=st.data(), value=st.integers(0, 9))
    def say_done(self, data: st.DataObject, value: int) -> None:
        """By whom it was done; heard only while it holds its claim."""
        block = data.draw(st.sampled_from([one for one in self.blocks if one.acted]))
        known = self.known[block.key]
        self.blocks.remove(block)
        try:
            block.effect.done(value)
        except LostClaim:
            assert not block.attempt.holds
            return
        assert block.attempt.holds, "an attempt that counts no more was heard"
        block.effect.__exit__(None, None, None)
        if known.state != "done":
            known.state, known.value = "done", value

    @precondition(lambda self: any(one.effect.todo and not one.acted for one in self.blocks))
    @rule(data=st.data())
    def say_not_done(self, data: st.DataObject) -> None:
        """It has not acted, and never will."""
        block = data.draw(
            st.sampled_from([one for one in self.blocks if one.effect.todo and not one.acted])
        )
        known = self.known[block.key]
        self.blocks.remove(block)
        if block.key in ACTING:
            block.effect.not_done()
            return
        try:
            block.effect.not_done()
        except LostClaim:
            assert not block.attempt.holds
            return
        assert block.attempt.holds and known.by is block.attempt
        known.state = known.by = None

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def raise_inside(self, data: st.DataObject) -> None:
        """An exception leaves everything as it is."""
        block = data.draw(st.sampled_from(self.blocks))
        self.blocks.remove(block)
        block.effect.__exit__(OSError, OSError(), None)

    # What must hold -----------------------------------------------------------------------------

    @invariant()
    def the_table_says_what_the_model_knows(self) -> None:
        for key, known in self.known.items():
            found = self.ground.effect(key)
            assert (None if known.state is None else (known.state, known.value)) == found, key

    @invariant()
    def marked_first_is_never_done_twice(self) -> None:
        for key in MARKED:
            assert self.known[key].acts <= 1, key

    @invariant()
    def what_is_said_to_be_done_was_done(self) -> None:
        for key, known in self.known.items():
            assert known.acts >= (known.state == "done"), key
            assert known.acts <= known.begun

    # ----------------------------------------------------------------------------------------------

    def _begin_attempt(self, claimed: Claimed) -> None:
        self.attempts.append(Attempt(claimed, self.ground.context(claimed)))

    def _forget(self, attempt: Attempt) -> None:
        self.attempts.remove(attempt)
        self.blocks = [one for one in self.blocks if one.attempt is not attempt]
