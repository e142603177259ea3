"""The headline: what a supervisor would say of itself in one line, as `systemctl status` shows it.

What is wrong comes first, then what is under way, then the figures. It rests on what is in memory:
whoever reads it at night must get it when PostgreSQL is away, too.
"""

from __future__ import annotations

from time import monotonic_ns

from jobctl.store.durations import format_duration
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.condition import Condition
from jobctl.supervisor.fleet import Fleet
from jobctl.supervisor.reload import Step
from jobctl.supervisor.stopping import Phase, Stop

#: Errors and names of types are a stranger's.
LONGEST_WORDS = 200


def headline(
    now: float,
    condition: Condition,
    fleet: Fleet,
    stop: Stop,
    *,
    leads: bool,
    ready: int,
    unwritten: int,
    trouble: str | None,
) -> str:
    """`ready` slots could run something; `trouble` is why PostgreSQL cannot be used, if so."""
    if stop.begun:
        return _leaving(now, fleet, stop, unwritten)
    busy = len(fleet.busy())
    words = [] if trouble is None else [trouble]
    if not ready:
        words.append(_not_ready(condition, fleet))
    if condition.draining:
        still = f"draining: {_jobs(busy)} left{_longest(fleet)}"
        words.append(still if busy else "drained: nothing runs here and nothing is claimed")
    words += _reload(condition, fleet)
    if ready:
        words.append(f"{busy} of {fleet.wanted} slots busy")
    if leads:
        words.append(_leading(condition))
    return "; ".join(words)


def _leaving(now: float, fleet: Fleet, stop: Stop, unwritten: int) -> str:
    busy = len(fleet.busy())
    words = f"stopping because of {_short(stop.because)}: "
    match stop.phase:
        case Phase.DRAINING:
            left = format_duration(max(0, round(stop.patience_ends - now)))
            return f"{words}{_jobs(busy)} may run for up to {left} more{_longest(fleet)}"
        case Phase.KILLING:
            return f"{words}{_jobs(busy)} are interrupted"
        case _:
            return f"{words}how {_jobs(unwritten)} ended is being written"


def _not_ready(condition: Condition, fleet: Fleet) -> str:
    if condition.load_error is not None:
        return f"not started: {_short(condition.load_error)}; it is tried again"
    if fleet.degraded:
        return "slots die before they have done anything: see the log"
    return "starting: the app is imported"


def _reload(condition: Condition, fleet: Fleet) -> list[str]:
    progress = fleet.reload_progress()
    if not progress.decided:
        return ["loading new code"]
    if progress.failed is not None:
        why = condition.load_error or progress.failed
        return [f"the old code goes on, the new code was not taken: {_short(why)}"]
    if progress.step is Step.RELIEVING and progress.old:
        return [f"{progress.old} slots end their job with the old code"]
    return []


def _leading(condition: Condition) -> str:
    if condition.backlog is None:
        return "leads"
    due, oldest = condition.backlog
    if not due:
        return "leads, nothing waits"
    return f"leads, {_jobs(due)} due, the oldest for {format_duration(round(oldest))}"


def _longest(fleet: Fleet) -> str:
    running = [(slot.running.given_ns, slot.running) for slot in fleet.busy() if slot.running]
    if not running:
        return ""
    given_ns, first = min(running, key=lambda pair: pair[0])
    claim = first.claim
    name = _short(claim.type) if isinstance(claim, Claimed) else "job"
    took = format_duration(round((monotonic_ns() - given_ns) / 1e9))
    return f", the longest, {name} #{first.job_id}, for {took}"


def _jobs(many: int) -> str:
    return "1 job" if many == 1 else f"{many} jobs"


def _short(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= LONGEST_WORDS else words[: LONGEST_WORDS - 3] + "..."
