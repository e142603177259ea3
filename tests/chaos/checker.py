"""The proof: a pure function from what was written down to what must not have happened.

It knows nothing of the product's code, only of its promises:

 1. a committed job has ended exactly once, or stands in exactly one place;
 2. a job of a transaction that was rolled back never ran, and none ran before its commit began;
 3. a claim's token is given out once, and a job is claimed by one at a time;
 4. an ending is accepted from the claim that holds the job and from no other, and once;
 5. what a claim's run does, it does before the next claim's run begins;
 6. a host that nothing was done to loses no claim, and is not declared dead;
 7. what is marked before it is done to the world is done once at most;
 8. when the last fault is over, all work ends within the bound.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from tests.chaos.audit import Entry, Standing
from tests.chaos.history import Event

#: What a host that was frozen does between waking up and having looked at the clock.
WAKING_SECONDS = 2.0
#: How long a host that something was done to may still be without its lease afterwards: an answer
#: that never comes is waited for, and so is the next connection.
RECOVERING_SECONDS = 30.0
#: A claim that was on its way when its host was killed is carried out a moment later, perhaps after
#: the host has been started again.
LATE_SECONDS = 0.5
ENDED = ("succeeded", "cancelled", "dead")


class Token(NamedTuple):
    session: int
    counter: int


@dataclass
class Evidence:
    """Everything that is known when it is over."""

    events: Sequence[Event]
    audit: Sequence[Entry]
    standings: Sequence[Standing]
    misplaced: Sequence[str]
    read_at: float  # monotonic, when the audit was read


@dataclass
class Verdict:
    """What was found, and how much was looked at."""

    violations: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)


def check(evidence: Evidence) -> Verdict:
    verdict = Verdict(list(evidence.misplaced))
    for part in (_jobs, _claims, _runs, _acts, _losses):
        verdict.violations += part(evidence, verdict.figures)
    return verdict


def _jobs(evidence: Evidence, figures: Counter[str]) -> Iterator[str]:
    """1, 2 and 8."""
    said = _by_tag(evidence.events)
    found: dict[str, list[Standing]] = defaultdict(list)
    for standing in evidence.standings:
        found[standing.tag].append(standing)
        figures[f"jobs {standing.state}"] += 1
    for tag, times in found.items():
        if len(times) > 1:
            yield f"{tag} is there {len(times)} times"
        if "rollback" in said[tag]:
            yield f"{tag} is there, and its transaction was rolled back"
        for one in times:
            if one.state not in ENDED:
                yield f"{tag} (job {one.job}) has not ended: it is {one.state}"
    for tag, words in said.items():
        figures["transactions' jobs " + ("committed" if "commit" in words else "not")] += 1
        if "commit" in words and tag not in found:
            yield f"{tag} was committed and is nowhere"
    for event in evidence.events:
        if event.op == "start":
            tag = event.facts["tag"]
            figures["runs"] += 1
            if "rollback" in said[tag]:
                yield f"{tag} ran, and its transaction was rolled back"
            elif event.at < said[tag].get("committing", 0):
                yield f"{tag} ran before its commit"


def _by_tag(events: Iterable[Event]) -> dict[str, dict[str, float]]:
    said: dict[str, dict[str, float]] = defaultdict(dict)
    for event in events:
        for tag in event.facts.get("tags", ()):
            said[tag][event.op] = event.at
    return said


def _claims(evidence: Evidence, figures: Counter[str]) -> Iterator[str]:
    """3 and 4, by PostgreSQL's own word."""
    given: Counter[Token] = Counter()
    by_job: dict[int, list[Entry]] = defaultdict(list)
    for entry in evidence.audit:
        if entry.job is not None:
            by_job[entry.job].append(entry)
    for job, entries in by_job.items():
        holder: Token | None = None
        ended: set[Token] = set()
        finished = False
        for _, group in groupby(entries, key=lambda entry: entry.xid):
            before = holder
            for entry in group:
                token = _token(entry)
                match entry.op:
                    case "claim":
                        figures["claims"] += 1
                        if holder is not None:
                            yield f"job {job} was claimed by {token} while {holder} had it"
                        if finished:
                            yield f"job {job} was claimed by {token} after it had ended"
                        holder = before = token
                        if token is not None:
                            given[token] += 1
                    case "release":
                        holder = None
                    case "attempt" | "finished" if token is not None:
                        figures[f"endings {entry.detail}"] += 1
                        if token != before:
                            yield f"job {job}: an ending of {token} was accepted; {before} had it"
                        if entry.op == "finished":
                            if finished:
                                yield f"job {job} ended twice"
                            finished = True
                        elif token in ended:
                            yield f"job {job}: two endings of {token} were accepted"
                        else:
                            ended.add(token)
    yield from (f"token {token} was given out {n} times" for token, n in given.items() if n > 1)


def _runs(evidence: Evidence, figures: Counter[str]) -> Iterator[str]:
    """5. A claim that PostgreSQL lost in a crash was never acknowledged to last: its run may
    overlap with the next, and its token keeps it out (4)."""
    known = {_token(entry) for entry in evidence.audit if entry.op == "claim"}
    woken: dict[str, list[float]] = defaultdict(list)
    for event in evidence.events:
        if event.op == "thaw":
            woken[event.facts["host"]].append(event.at)
    newest: dict[int, tuple[Token, float]] = {}
    for event in evidence.events:
        if event.op not in ("start", "beat", "end"):
            continue
        job = event.facts["job"]
        token = Token(event.facts["session"], event.facts["token"])
        if event.op == "start":
            newest[job] = (token, event.at)
        elif newest[job][0] != token:
            if token not in known:
                figures["beats of claims lost in a crash"] += 1
            elif any(0 <= event.at - at < WAKING_SECONDS for at in woken[event.actor]):
                figures["beats while waking"] += 1
            else:
                late = event.at - newest[job][1]
                yield (
                    f"job {job}: {token} on {event.actor} was still running {late:.2f} s after "
                    f"{newest[job][0]} had begun"
                )


def _acts(evidence: Evidence, figures: Counter[str]) -> Iterator[str]:
    """7. By the world's own word: a line for each time."""
    acts = Counter(event.facts["key"] for event in evidence.events if event.op == "act")
    figures["effects done"] += len(acts)
    for key, times in acts.items():
        if times > 1:
            yield f"effect {key} was done {times} times"


def _losses(evidence: Evidence, figures: Counter[str]) -> Iterator[str]:
    """6. A fault of PostgreSQL is not a fault of the host's."""
    done_to: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in evidence.events:
        if event.op == "fault" and event.facts.get("host"):
            done_to[event.facts["host"]].append((event.at, float("inf")))
        elif event.op == "healed" and event.facts.get("host"):
            begun, _ = done_to[event.facts["host"]].pop()
            done_to[event.facts["host"]].append((begun, event.at))
    begun_by = {
        Token(event.facts["session"], event.facts["token"])
        for event in evidence.events
        if event.op == "start"
    }
    claimed = {
        _token(entry): evidence.read_at - entry.ago
        for entry in evidence.audit
        if entry.op == "claim"
    }
    for entry in evidence.audit:
        at, faults = evidence.read_at - entry.ago, done_to[entry.host or "?"]
        if entry.op == "attempt" and entry.detail == "lost":
            since = claimed[_token(entry)]
            if not any(begun <= at and since <= healed + LATE_SECONDS for begun, healed in faults):
                over = max((healed for _, healed in faults if healed <= since), default=None)
                last = "before any fault" if over is None else f"{since - over:.2f} s after a fault"
                ran = "had begun" if _token(entry) in begun_by else "had not begun"
                yield (
                    f"job {entry.job}: {entry.host} lost it {at - since:.2f} s after its claim "
                    f"({last}; its handler {ran}), and nothing had been done to it"
                )
        elif entry.op == "buried":
            figures["sessions declared dead"] += 1
            if not any(begun <= at <= healed + RECOVERING_SECONDS for begun, healed in faults):
                over = max((healed for _, healed in faults if healed <= at), default=None)
                last = "before any fault" if over is None else f"{at - over:.1f} s after a fault"
                yield f"{entry.host} was declared dead ({last}), and nothing had been done to it"


def _token(entry: Entry) -> Token | None:
    if entry.session is None or entry.token is None:
        return None
    return Token(entry.session, entry.token)
