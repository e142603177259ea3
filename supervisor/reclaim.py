"""Reclaim: rows, not processes. Claims of hosts that will not come back are ended for them.

Used by the leader's reaper, and by a supervisor that finds at its start what an earlier life of
its own has left behind. Both end an attempt as everybody does: under the claim's own token,
through `settle`, by the table of outcomes; so a host that was only slow loses its claim cleanly,
and two who reclaim at once do it once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic_ns

from jobctl.store.job_type import JobType
from jobctl.store.link import Link
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.outcomes import UNREGISTERED, Ending, HandedBack, Lost, decide, is_poison
from jobctl.supervisor.settle import Other, Settlement

#: The most that one step reclaims; the next step goes on.
LARGEST_STEP = 1000


async def reclaim(
    link: Link, settle: Callable[[Settlement], None], pending: Callable[[int, int], bool]
) -> int:
    """One step: hands every lost claim to `settle`. Returns how many it found.

    `pending(session, token)`: already handed over and not written yet. Raises what `link` raises.
    """
    rows = await link.run("lost_claims", most=LARGEST_STEP)
    lost = [row for row in rows if not pending(row[0], row[4])]
    policies = await _policies(link, {row[5] for row in lost}) if lost else {}
    now_ns = monotonic_ns()
    for row in lost:
        (session, queue, priority, job, token, type_, key, subject, version, attempt) = row[:10]
        (crashes, max_attempts, age, elapsed, host, because, marked) = row[10:]
        claimed = Claimed(
            session, now_ns, queue, priority, "", 0, job, token, type_, key, subject, version,
            attempt, crashes, max_attempts, None, "{}", 0.0, age, elapsed, marked=marked,
        )  # fmt: skip
        policy = policies.get(type_, UNREGISTERED)
        cause: Lost | HandedBack = Lost(because)
        if marked:
            policy = replace(policy, ack="early")
        elif policy.ack == "early":
            cause = HandedBack()  # it was not marked, so it had not begun: it may still run once
        ending: Ending = decide(job, session, token, claimed, policy, cause, elapsed)
        ending.host = host
        settle(Other(claimed, ending, poison=is_poison(ending, claimed, policy)))
    return len(rows)


async def _policies(link: Link, names: set[str]) -> Mapping[str, JobType]:
    rows = await link.run("read_job_types", names=sorted(names))
    found = {}
    for (columns,) in rows:
        try:
            known = JobType.from_dict(columns)
        except ValueError:
            continue  # written by a newer version with other rules: the defaults must do
        found[known.name] = known
    return found
