"""The machine of the store, and jobs that come after others."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from jobctl.store.enqueue import enqueue, enqueue_many
from jobctl.store.errors import InvalidJob
from jobctl.store.new_job import OnDead, new_job
from tests.store.store_machine import StoreMachine
from tests.store.store_model import LATER, Job, a_key, a_type, on_dead, some_parents, which


class StepsMachine(StoreMachine):
    """Parents in whatever state; children that are let go, cancelled, swept."""

    @precondition(lambda self: self.jobs)
    @rule(type=a_type, key=a_key, parents=some_parents, on_dead=on_dead, delayed=st.booleans(),
          producer=st.none() | which)  # fmt: skip
    def enqueue_after(
        self,
        type: str,
        key: str | None,
        parents: list[int],
        on_dead: OnDead,
        delayed: bool,
        producer: int | None,
    ) -> None:
        """After any jobs that are seen there, whatever has become of them; perhaps in a transaction
        that stays open."""
        one = None if producer is None else self.producers[producer % len(self.producers)]
        if key is not None and any((type, key) in other.keys for other in self.producers):
            return  # `enqueue` has shown what becomes of keys
        if one is not None and not one.begun:
            one.connection.execute("BEGIN")
            one.begun = True
        seen = self.jobs if one is None else self.jobs | one.jobs
        after = {sorted(seen)[chosen % len(seen)] for chosen in parents}
        words: dict[str, Any] = {
            "key": key, "after": sorted(after), "on_dead": on_dead,
            "delay": LATER if delayed else None,
        }  # fmt: skip
        connection = self.admin if one is None else one.connection
        holder = self._holder(type, key)
        never = {job_id for job_id in after if seen[job_id].state == "cancelled"}
        if holder is None and never and on_dead == "hold":
            try:
                with connection.transaction():
                    enqueue(connection, type, **words)
            except InvalidJob as error:
                assert "will never succeed" in str(error)
                return
            raise AssertionError("a job comes after one that will never succeed")
        job_id = enqueue(connection, type, **words)
        if holder is not None:
            assert job_id == holder, "a key let a second job in"
            return
        job = Job(type, key, 0, "blocked", delayed=delayed, came_after=frozenset(after))
        job.goes_with_them = on_dead == "cancel"
        job.waits_for = {job_id for job_id in after if seen[job_id].state != "succeeded"}
        never |= {job_id for job_id in after if seen[job_id].state == "dead"}
        (self.jobs if one is None else one.jobs)[job_id] = job
        if key is not None and one is None:
            self.keys[type, key] = (job_id, False)
        elif key is not None and one is not None:
            one.keys[type, key] = job_id
        if not job.waits_for:
            self._let_run(job)
        elif job.goes_with_them and never:
            job.state = "cancelled"
            if key is not None and one is None:
                self.keys[type, key] = (job_id, True)

    @rule(types=st.lists(a_type, min_size=2, max_size=4), on_dead=on_dead)
    def enqueue_chain(self, types: list[str], on_dead: OnDead) -> None:
        """In one call: each after the one before."""
        items = [new_job(types[0])]
        for type_ in types[1:]:
            items.append(new_job(type_, after=items[-1:], on_dead=on_dead))
        before: int | None = None
        for type_, job_id in zip(types, enqueue_many(self.admin, items), strict=True):
            job = self.jobs[job_id] = Job(type_, None, 0, "blocked")
            job.goes_with_them = on_dead == "cancel"
            if before is None:
                self._let_run(job)
            else:
                job.waits_for, job.came_after = {before}, frozenset({before})
            before = job_id

    @rule()
    def sweep(self) -> None:
        """What nobody let go when it could have been: a transaction was open then."""
        self._run("sweep_children", since=0, most=1000)
        ended = {
            state: [job_id for job_id, job in self.jobs.items() if job.state == state]
            for state in ("succeeded", "dead", "cancelled")
        }
        self._let_go(ended["succeeded"])
        self._let_down(ended["dead"] + ended["cancelled"])

    @precondition(lambda self: any(job.state == "blocked" for job in self.jobs.values()))
    @rule(chosen=which)
    def cancel_what_waits(self, chosen: int) -> None:
        """And what is to be cancelled with it."""
        blocked = [job_id for job_id, job in self.jobs.items() if job.state == "blocked"]
        job_id = blocked[chosen % len(blocked)]
        answer = self.admin.execute("SELECT cancel(%s)", (job_id,)).fetchall()
        assert answer == [("cancelled",)]
        self.jobs[job_id].state = "cancelled"
        self._key_is_over(job_id)
        self._let_down([job_id])
