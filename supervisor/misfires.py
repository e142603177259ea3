"""What is to be done about the planned times of a cron that have come since it was looked at last.

Pure arithmetic between two readings of the database's clock. Whatever was planned within the last
`TOLERANCE` fires, whatever the policy: a change of leader must not cost a firing. What is older was
missed, and then the policy decides: `skip` lets it go, `once` fires the last of it unless something
fresher fires anyway, `all` fires it up to the limit, the newest.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from jobctl.store.cron_spec import CronSpec

#: Twice what a change of leader takes at most.
TOLERANCE = timedelta(seconds=60)
#: Missed planned times are not counted further than this.
MOST_COUNTED = 1_000


@dataclass(frozen=True, slots=True)
class Judgement:
    """`moments` fire, in order. `missed` came to nothing before them, the last at `too_late`."""

    moments: list[datetime]
    missed: int
    too_late: datetime | None
    next_at: datetime | None


def judge(spec: CronSpec, judged_until: datetime, as_of: datetime) -> Judgement:
    """Of the planned times later than `judged_until` and not later than `as_of`."""
    schedule = spec.moments
    limit = as_of - TOLERANCE
    fresh = list(schedule.between(max(judged_until, limit), as_of))
    next_at = schedule.next(as_of)
    if judged_until >= limit:
        return Judgement(fresh, 0, None, next_at)
    count = sum(1 for _ in islice(schedule.between(judged_until, limit), MOST_COUNTED))
    if count == 0:
        return Judgement(fresh, 0, None, next_at)
    match spec.misfire:
        case "all":
            most = spec.misfire_limit - len(fresh)
        case "once":
            most = 0 if fresh else 1
        case _:
            most = 0
    made_up = schedule.latest(judged_until, limit, most) if most > 0 else []
    missed = count - len(made_up)
    too_late = schedule.latest(judged_until, limit, 1)[0] if not made_up else None
    return Judgement(made_up + fresh, missed, too_late, next_at)
