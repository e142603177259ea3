"""Whether the kernel's out-of-memory killer has struck, by its own count.

The count has everybody's victims in it, of the whole machine, so it is asked only about a process
that died of a SIGKILL which nobody here had sent.
"""

from __future__ import annotations

import re
from pathlib import Path

_VMSTAT = Path("/proc/vmstat")


class KernelKills:
    """Remembers what had been counted a few seconds ago."""

    def __init__(self) -> None:
        self._before = self._noted = _oom_kills()

    def note(self) -> None:
        """Called every few seconds: what had been counted before the last call is long ago."""
        self._before, self._noted = self._noted, _oom_kills()

    def struck(self) -> bool:
        """Whether it killed somebody within the last calls of `note`; each is told once."""
        now = _oom_kills()
        if now <= self._before:
            return False
        self._before += 1
        self._noted = max(self._noted, self._before)
        return True


def _oom_kills() -> int:
    try:
        found = re.search(rb"^oom_kill (\d+)$", _VMSTAT.read_bytes(), re.MULTILINE)
    except OSError:  # a container that hides it
        return 0
    return int(found[1]) if found else 0
