"""What a blocked job waits for: a place in its limit, or jobs that come before it."""

from __future__ import annotations

from jobctl.store.causes import Answer, Cause, have, many, when
from jobctl.store.standing import Standing


def of_limit(facts: Standing, key: str) -> Answer:
    """A place in the limit of this key."""
    ahead = facts.place["waiting_ahead"]
    turn = f"{ahead} jobs wait before it" if ahead else "it is the next"
    limit = facts.limit
    if limit is None:
        return (
            Cause.LIMIT,
            f"its limit {key} is about to be looked at",
            "ask again in a moment; if it stays so, no supervisor works: jobctl hosts",
        )
    most = limit.max_running if limit.braked_to is None else limit.braked_to
    held = ", ".join(f"#{one.job_id}" for one in facts.holders)
    if limit.held_until is not None:
        why = f"a job of limit {key} was told to come back later, and nobody of it starts before "
        why += when(facts, limit.held_until)
        advice = f"wait, or jobctl limits release {key}"
    elif most == 0:
        why = f"limit {key} is 0, so that none of its jobs may start"
        advice = f"jobctl limits set {key} N, when they may"
    elif most is not None and limit.held >= most:
        braked = (
            ""
            if limit.braked_to is None
            else f" (the brake has taken {limit.max_running} to {most})"
        )
        why = f"all {most} places of limit {key} are held{braked}" + (
            f", by {held}" if held else ""
        )
        advice = f"wait for them, or jobctl limits set {key} N"
    else:
        why = (
            f"limit {key} lets jobs start at {limit.rate:g} a second"
            if limit.rate
            else (f"limit {key} has room for it, and it is about to be let in")
        )
        advice = (
            f"wait, or jobctl limits set {key} --rate N/s"
            if limit.rate
            else "ask again in a moment"
        )
    return Cause.LIMIT, f"{why}; {turn}", advice


def of_parents(facts: Standing) -> Answer:
    """Jobs that it comes after."""
    job, since = facts.job, when(facts, facts.place["blocked_at"])
    drawn = f"jobctl jobs show {job['id']} draws what it comes after"
    if job["stuck"]:
        return (
            Cause.BLOCKED,
            f"{job['stuck_because']}; it is held since {since}",
            f"{drawn}; replay that one if it is dead (jobctl dead replay), or cancel this one",
        )
    return (
        Cause.BLOCKED,
        f"it comes after {many(job['waits_for'])} that {have(job['waits_for'])} not succeeded "
        f"yet, since {since}",
        f"{drawn}; when the last of them has succeeded it is queued by itself",
    )
