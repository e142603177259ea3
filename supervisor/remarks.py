"""What slots remark on beside their answers, said in measure.

A job that leaves something behind does so every time it runs, thousands of times an hour, so each
type is spoken of once in a while, with how often it was silent meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from jobctl.store.texts import storable
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.events import Event
from jobctl.supervisor.log import Log
from jobctl.supervisor.slot import Running, Slot

#: The same type is not spoken of again within this.
QUIET_SECONDS: Final = 60.0
#: Types that are remembered; whoever has more is spoken of more often.
MOST_TYPES: Final = 1000
_LONGEST: Final = 1000


@dataclass(slots=True)
class _Said:
    at: float
    silent: int = 0


class Remarks:
    """Says them."""

    def __init__(self, log: Log, clock: Callable[[], float] = monotonic) -> None:
        self._log = log
        self._clock = clock
        self._said: dict[str, _Said] = {}

    def job_left(self, slot: Slot, running: Running, body: Mapping[str, Any]) -> None:
        """Its job left something behind, which was put back or ends the slot. Strange words."""
        claimed = running.claim
        if not isinstance(claimed, Claimed):
            return
        now = self._clock()
        said = self._said.get(claimed.type)
        if said is not None and now - said.at < QUIET_SECONDS:
            said.silent += 1
            return
        if len(self._said) >= MOST_TYPES:
            self._said.clear()
        self._said[claimed.type] = _Said(now)
        silent = 0 if said is None else said.silent
        self._log.say(
            Event.JOB_LEFT,
            type=claimed.type,
            job=claimed.job_id,
            slot=slot.number,
            left=storable(str(body["left"]), _LONGEST),
            again=f" (and so did {silent} before it)" if silent else "",
        )
