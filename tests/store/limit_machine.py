"""Limits under whatever can happen to a job: the real statements, step by step, with what must hold
after each. There is no model of who is let in: the rules are checked on what is there."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.outcomes import (
    Cancelled,
    Cause,
    Crashed,
    Failed,
    HandedBack,
    Interrupted,
    Lost,
    Snoozed,
)
from tests import claiming
from tests.claiming import Connection, claim, enqueue, register, run, succeed, violations
from tests.store.limiting import admit, end, set_limit

KEYS = ("a", "b", "tenant:1", "tenant:2")
RULES = ("a", "b", "tenant:*", "tenant:1")
SESSION = 7
TABLES = (
    "job", "ready", "scheduled", "claim", "blocked", "dead", "history", "attempt", "job_key",
    "job_edge", "lane",
    "place", "limit_rule", "limit_state", "limit_arrival", "session", "audit",
)  # fmt: skip
CAUSES: tuple[Cause, ...] = (
    Failed("E", "why"), Failed("E", "why", permanent=True), Crashed("killed"), Snoozed(0.0),
    Cancelled(), Interrupted("drain"), HandedBack(), Lost("its host is gone"),
)  # fmt: skip

which = st.integers(0, 1_000)
a_key = st.sampled_from((*KEYS, None))
several = st.integers(1, 4)


class LimitMachine(RuleBasedStateMachine):
    """`dsn` is set by the test; a control alters the schema's functions beforehand."""

    dsn = ""

    def __init__(self) -> None:
        super().__init__()
        self.host: Connection = claiming.connect(self.dsn)
        with self.host.transaction():
            for table in TABLES:
                self.host.execute(f"DELETE FROM {table}".encode())  # noqa: S608 - our own names
        register(self.host, SESSION)
        self.claims: list[Claimed] = []
        self.held: dict[str, int] = {}

    def teardown(self) -> None:
        try:
            self._let_all_end()
        finally:
            self.host.close()

    # What can happen -----------------------------------------------------------------------------

    @initialize()
    def limits(self) -> None:
        set_limit(self.host, "a", 1)
        set_limit(self.host, "tenant:*", 2)

    @rule(key=a_key, many=several, priority=st.integers(0, 3), later=st.booleans())
    def somebody_enqueues(self, key: str | None, many: int, priority: int, later: bool) -> None:
        options: dict[str, Any] = {} if key is None else {"limit_key": key}
        delay = {"delay": "1 ms"} if later else {}
        enqueue(self.host, many, priority=priority, **options, **delay)

    @rule(name=st.sampled_from(RULES), places=st.integers(0, 3))
    def an_operator_sets(self, name: str, places: int) -> None:
        set_limit(self.host, name, places)
        self._remember()

    @rule(name=st.sampled_from(RULES))
    def an_operator_removes(self, name: str) -> None:
        self.host.execute("SELECT remove_limit(%s)", (name,))
        self._remember()

    @rule(most=several)
    def a_host_claims(self, most: int) -> None:
        run(self.host, "promote", most=100, within=None)
        admit(self.host)
        self.claims += claim(self.host, SESSION, most=most)
        self._nobody_waits_beside_a_free_place()

    @precondition(lambda self: self.claims)
    @rule(at=which)
    def one_succeeds(self, at: int) -> None:
        succeed(self.host, [self.claims.pop(at % len(self.claims))])

    @precondition(lambda self: self.claims)
    @rule(at=which, cause=st.sampled_from(CAUSES))
    def one_ends(self, at: int, cause: Cause) -> None:
        end(self.host, [self.claims.pop(at % len(self.claims))], cause)

    @precondition(lambda self: self.claims)
    @rule()
    def a_host_dies(self) -> None:
        """The reaper ends all that it had, in one batch."""
        lost, self.claims = self.claims, []
        end(self.host, lost, Lost("its host is gone"))

    @rule(at=which)
    def somebody_cancels(self, at: int) -> None:
        if ids := self._ids("SELECT id FROM job ORDER BY id"):
            self.host.execute("SELECT cancel_many(%s, 'me')", ([ids[at % len(ids)]],))

    @rule()
    def somebody_replays(self) -> None:
        ids = self._ids("SELECT job_id FROM dead ORDER BY job_id LIMIT 3")
        self.host.execute("SELECT replay_many(%s, 'me')", (ids,))

    @rule()
    def somebody_hastens(self) -> None:
        ids = self._ids("SELECT job_id FROM scheduled ORDER BY job_id LIMIT 3")
        run(self.host, "hasten", ids=ids, actor="me", reason=None, filter="{}")

    @rule()
    def the_leader_mends(self) -> None:
        ((places, _),) = run(self.host, "mend_limits")
        assert places == 0

    # What must hold ------------------------------------------------------------------------------

    @invariant()
    def places_are_those_of_jobs_that_may_run(self) -> None:
        assert violations(self.host) == []

    @invariant()
    def no_limit_is_exceeded(self) -> None:
        """Nobody is let in above a limit; who was in before it was lowered stays."""
        before, now = self.held, self._held()
        for key, many in now.items():
            most = self._most(key)
            assert most is None or many <= max(most, before.get(key, 0)), (key, many, most)
        self.held = now

    def _nobody_waits_beside_a_free_place(self) -> None:
        rows = self.host.execute("SELECT limit_key, held, waiting FROM limits").fetchall()
        for key, many, waiting in rows:
            most = self._most(key)
            assert not waiting or (most is not None and many >= most), (key, many, waiting, most)

    def _let_all_end(self) -> None:
        """Everybody gets through in the end, and leaves nothing behind."""
        for name in RULES:
            set_limit(self.host, name, 2)
        for _ in range(2_000):
            run(self.host, "promote", most=1000, within=None)
            admit(self.host)
            self.claims += claim(self.host, SESSION)
            if self.claims:
                succeed(self.host, self.claims)
                self.claims = []
            left = self._ids("SELECT id FROM job EXCEPT SELECT job_id FROM dead")
            if not left:
                break
        assert left == []
        assert self._held() == {}
        assert self._ids("SELECT job_id FROM blocked") == []

    def _remember(self) -> None:
        self.held = self._held()

    def _held(self) -> dict[str, int]:
        query = "SELECT limit_key, count(*) FROM place GROUP BY limit_key"
        return {str(key): int(many) for key, many in self.host.execute(query)}

    def _most(self, key: str) -> int | None:
        row = self.host.execute("SELECT max_running FROM limit_rule_for(%s)", (key,)).fetchone()
        return None if row is None else row[0]

    def _ids(self, query: str) -> list[int]:
        return [row[0] for row in self.host.execute(query.encode())]
