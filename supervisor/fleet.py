"""The fleet: as many slots as are wanted, whatever happens to them.

No event starts a child: `launch_missing` compares want with have. Nothing in here waits for a
child, for SQL or for anybody else; every step is a callback of the loop that returns at once. A
dead slot's replacement is asked for before anyone is told of the death.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobctl.supervisor.listener import Listener, Reason
from jobctl.supervisor.slot import Slot


@dataclass(frozen=True)
class FleetSettings:
    """What the fleet needs to know. Times in seconds."""

    app: str
    session_id: int
    pools: Mapping[str, int]  # pool name -> slots; slot numbers count through all of them, from 1
    preload: bool = True
    max_jobs_per_slot: int | None = None  # recycled after so many, give or take a tenth
    load_timeout: float = 120.0
    boot_timeout: float = 60.0
    dump_grace: float = 1.0
    dump_quiet: float = 0.05
    unkillable_after: float = 5.0
    healthy_after: float = 10.0
    environment: Mapping[str, str] = field(default_factory=dict)  # added to the template's


class Fleet:
    """All slots and the template that they are forked from. Lives in the running event loop."""

    def __init__(self, settings: FleetSettings, listener: Listener) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Becomes the subreaper of everything below and asks for the template and the slots."""

    def idle_slots(self) -> list[Slot]:
        """Those that can be given a job now."""
        raise NotImplementedError

    def busy(self) -> list[Slot]:
        """Those that run something, those that are being killed included."""
        raise NotImplementedError

    def slots(self) -> list[Slot]:
        """All that are not gone."""
        raise NotImplementedError

    @property
    def degraded(self) -> bool:
        """Slots die before they have done anything, again and again: claiming is pointless."""
        raise NotImplementedError

    @property
    def empty(self) -> bool:
        """No slot is left."""
        raise NotImplementedError

    def kill(self, slot: Slot, reason: Reason, *, token: int | None = None) -> bool:
        """Ends a slot by force; `on_death` follows within moments. Idempotent.

        First reads what the slot has already said: if the outcome of what it ran is there and the
        reason was only that job (TIMEOUT, CANCEL, LOST, INTERRUPT), the outcome counts - it has
        been delivered when this returns False - and the slot lives on. With `token`, kills only
        while that claim is what runs.
        """
        raise NotImplementedError

    def soft_timeout(self, slot: Slot, token: int) -> None:
        """Raises SoftTimeout in the handler, if it still runs that claim. Advisory."""

    def leave(self, slot: Slot, reason: Reason = Reason.RECYCLE) -> None:
        """Ends a slot without force: at once if idle, else when its job has ended."""

    def resize(self, pool: str, slots: int) -> None:
        """Wants another number of slots; surplus ones leave when their job has ended."""

    def reload(self) -> None:
        """Starts a new generation from the code on disk; see `reload.py`."""

    def quiet_stop(self) -> None:
        """Starts nothing any more; idle slots leave now and busy ones when their job has ended."""

    def kill_all(self, reason: Reason) -> None:
        """Ends every slot by force."""

    async def wait_empty(self) -> None:
        """Returns when no slot is left. For the end of a stop; nothing else waits."""

    def close(self) -> None:
        """Gives everything back: the template and what is left of the slots are killed."""
