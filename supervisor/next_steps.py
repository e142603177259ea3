"""The sweep of what comes after what: children that should have been let go, and were not.

Whoever settles a parent lets its children go in the same transaction. What that cannot see is a
child whose own transaction was still open; what it does not wait for is one that somebody holds;
and of thousands it takes the first. All of that is found here. Two leaders at once do no harm.
"""

from __future__ import annotations

from time import monotonic

from jobctl.store.link import Link

#: Looks at everything that waits at least this often, while that is cheap.
SWEEP_SECONDS = 5.0
#: So many of those that wait are looked at in one statement.
LARGEST_LOOK = 2_000
#: Looking takes at most this part of the time, however many wait.
LOOKING_SHARE = 1 / 20


class NextSteps:
    """Walks over what is blocked, from the oldest, again and again."""

    def __init__(self) -> None:
        self._since = 0

    async def step(self, link: Link) -> float:
        """One portion; returns in how many seconds the next is due."""
        begun = monotonic()
        ((upto, released, cancelled),) = await link.run(
            "sweep_children", since=self._since, most=LARGEST_LOOK
        )
        if released or cancelled:
            return 0.0  # there may be more of the same
        self._since = upto or 0
        rest = 0.0 if upto else SWEEP_SECONDS
        return max(rest, (monotonic() - begun) / LOOKING_SHARE)
