"""The checker against histories written by hand: it finds each wrong, and no wrong in right."""

from __future__ import annotations

from typing import Any

from tests.chaos.audit import Entry, Standing
from tests.chaos.checker import Evidence, check
from tests.chaos.history import Event

READ_AT = 100.0
A, B = (7, 1), (8, 1)  # claims of two hosts: session and counter
HOSTS = {7: "one", 8: "two"}


def entry(xid: int, at: float, op: str, claim: tuple[int, int], detail: str | None = None) -> Entry:
    return Entry(xid, READ_AT - at, op, 1, *claim, detail, HOSTS[claim[0]])


def said(at: float, op: str, actor: str = "e0", **facts: Any) -> Event:
    return Event(at, actor, op, facts)


def run(at: float, op: str, claim: tuple[int, int]) -> Event:
    session, token = claim
    return said(at, op, HOSTS[session], tag="e0:1", job=1, session=session, token=token)


COMMITTED = [said(1, "insert", tags=["e0:1"]), said(2, "committing", tags=["e0:1"]),
             said(3, "commit", tags=["e0:1"])]  # fmt: skip
LOST = [entry(1, 4, "claim", A), entry(2, 20, "release", A), entry(2, 20, "attempt", A, "lost")]
DONE = [entry(3, 21, "claim", B), entry(4, 23, "release", B),
        entry(4, 23, "finished", B, "succeeded")]  # fmt: skip
KILLED = [said(5, "fault", "nemesis", what="kill", host="one"),
          said(6, "healed", "nemesis", host="one")]  # fmt: skip
RUNS = [run(4.5, "start", A), run(21.5, "start", B), run(22, "end", B)]


def violations(
    events: list[Event] | None = None,
    audit: list[Entry] | None = None,
    state: str | None = "succeeded",
) -> list[str]:
    told = [*COMMITTED, *KILLED, *RUNS] if events is None else events
    standings = [] if state is None else [Standing(1, "e0:1", state)]
    audited = [*LOST, *DONE] if audit is None else audit
    ordered = sorted(told, key=lambda event: event.at)
    return check(Evidence(ordered, audited, standings, [], READ_AT)).violations


def test_a_job_that_was_lost_with_its_host_and_ran_again() -> None:
    """Nothing is wrong with it."""
    assert violations() == []


def test_a_committed_job_that_is_nowhere() -> None:
    assert violations(state=None) == ["e0:1 was committed and is nowhere"]


def test_a_job_that_does_not_end() -> None:
    assert violations(state="queued") == ["e0:1 (job 1) has not ended: it is queued"]


def test_a_job_that_was_rolled_back_and_ran() -> None:
    events = [*COMMITTED[:1], said(3, "rollback", tags=["e0:1"]), *KILLED, *RUNS]
    found = violations(events, state=None)
    assert found[0] == "e0:1 ran, and its transaction was rolled back"


def test_a_job_that_ran_before_its_commit() -> None:
    events = [*COMMITTED, *KILLED, run(1.5, "start", A), *RUNS[1:]]
    assert violations(events) == ["e0:1 ran before its commit"]


def test_a_stale_claim_that_ends_a_job() -> None:
    """The first host's word is taken while the second has the job."""
    (claimed, *_) = DONE
    stale = [entry(4, 23, "release", B), entry(4, 23, "finished", A, "succeeded")]
    (found,) = violations(audit=[*LOST, claimed, *stale])
    assert "was accepted" in found


def test_a_job_that_ends_twice() -> None:
    again = entry(5, 24, "finished", B, "succeeded")
    found = violations(audit=[*LOST, *DONE, again])
    assert "job 1 ended twice" in found


def test_a_token_that_is_given_out_twice() -> None:
    again = [entry(3, 21, "claim", A), entry(4, 23, "release", A),
             entry(4, 23, "finished", A, "succeeded")]  # fmt: skip
    found = violations(audit=[*LOST, *again], events=[*COMMITTED, *KILLED])
    assert any("was given out 2 times" in one for one in found)


def test_a_job_that_two_have_claimed() -> None:
    found = violations(audit=[LOST[0], *DONE])
    assert any("while" in one for one in found)


def test_a_run_that_goes_on_after_the_next_has_begun() -> None:
    """Unless its host has only just woken up, or PostgreSQL has lost the claim in a crash."""
    beat = run(21.8, "beat", A)
    events = [*COMMITTED, *KILLED, *RUNS, beat]
    (found,) = violations(events)
    assert "was still running 0.30 s after" in found
    assert violations([*events, said(21.7, "thaw", "nemesis", host="one")]) == []
    assert violations(events, audit=DONE) == []


def test_an_effect_that_is_done_twice() -> None:
    acts = [said(at, "act", "one", key="storm:e0:1", job=1) for at in (4.6, 21.6)]
    events = [*COMMITTED, *KILLED, *RUNS]
    assert violations([*events, *acts[:1]]) == []
    assert violations([*events, *acts]) == ["effect storm:e0:1 was done 2 times"]


def test_a_host_that_loses_a_job_although_nothing_was_done_to_it() -> None:
    found = violations([*COMMITTED, *RUNS])
    (sentence,) = found
    assert sentence == (
        "job 1: one lost it 16.00 s after its claim (before any fault; its handler had begun), and "
        "nothing had been done to it"
    )


def test_a_host_that_is_declared_dead_although_nothing_was_done_to_it() -> None:
    buried = Entry(9, READ_AT - 19, "buried", None, 8, None, "lease expired", "two")
    found = violations(audit=[*LOST, *DONE, buried])
    assert found == ["two was declared dead (before any fault), and nothing had been done to it"]
