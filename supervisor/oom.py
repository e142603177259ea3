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

    def __init__(self, counters: Path = _VMSTAT) -> None:
        self._counters = counters
        self._before = self._noted = self._count()

    def note(self) -> None:
        """Called every few seconds: what had been counted before the last call is long ago."""
        self._before, self._noted = self._noted, self._count()

    def struck(self) -> bool:
        """Whether it killed somebody within the last calls of `note`; each is told once."""
        now = self._count()
        if now <= self._before:
            return False
        self._before += 1
        self._noted = max(self._noted, self._before)
        return True

    def _count(self) -> int:
        try:
            counters = self._counters.read_bytes()
        except OSError:  # a container that hides them
            return 0
        found = re.search(rb"^oom_kill (\d+)$", counters, re.MULTILINE)
        return int(found[1]) if found else 0
