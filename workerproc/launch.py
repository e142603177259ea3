"""What the supervisor and the processes below it agree on besides the frames.

Names, numbers and descriptors; no behaviour.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final, NamedTuple

#: In the environment of everything that a slot's handlers start: whose it is. A supervisor finds
#: strays by it. `SUPERVISOR:SLOT:LIFE:KIN`: the supervisor's pid, the slot's number, which of the
#: supervisor's processes it is, which tells a slot from its replacement, and what all lives of one
#: supervisor have in common.
MARKER: Final = "JOBCTL_SLOT"

#: The template's socket to the supervisor. It is started by exec, so the number is fixed.
TEMPLATE_CONTROL: Final = 3

#: What a SPAWN frame carries, in this order.
SPAWN_DESCRIPTORS: Final = ("control", "page", "output", "stack")

EXIT_CLEAN: Final = 0
EXIT_FAILED: Final = 1
EXIT_INTERNAL: Final = 70  # EX_SOFTWARE: our own code failed
EXIT_ORPHANED: Final = 71  # EX_OSERR: the supervisor is gone
EXIT_CONFIGURATION: Final = 78  # EX_CONFIG: restarting will not help

#: How far above its supervisor a slot stands in the queue of the out-of-memory killer.
OOM_SCORE_STEP: Final = 300

#: What belongs to the supervisor alone: a child that spoke to systemd in its name would lie.
_SUPERVISORS_OWN: Final = frozenset(
    {
        "NOTIFY_SOCKET",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
        "LISTEN_FDS",
        "LISTEN_FDNAMES",
        "LISTEN_PID",
        "LISTEN_PIDFDID",
        "JOURNAL_STREAM",
    }
)


def marker(supervisor: int, slot: int, life: int, kin: str) -> str:
    """The value of `MARKER` in one slot."""
    return f"{supervisor}:{slot}:{life}:{kin}"


def page_name(mark: str) -> str:
    """The name of a slot's shared page, as /proc shows it.

    A process that a handler forked without exec has the template's environment in /proc, not the
    slot's; but it still maps the page.
    """
    return f"jobctl-page-{mark}"


def drop_supervisors_own(environment: MutableMapping[str, str]) -> None:
    """Takes out of an environment what only the supervisor may use."""
    for name in _SUPERVISORS_OWN & environment.keys():
        del environment[name]


class Share(NamedTuple):
    """What a slot takes of the processors: how much further it stands back than its supervisor, and
    the numbers of those that it may use (none: all that the supervisor may)."""

    nice: int = 0
    cpus: tuple[int, ...] = ()
