"""The terms that every system works under, read from the environment that the script gives.

Nothing but the standard library: this file is imported in the virtual environment of each system.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Terms:
    """One run's terms. Durations are seconds."""

    folder: Path
    dsn: str
    redis: str
    slots: int
    tries: int
    limit: float
    grace: float
    slow: float
    stale: float
    late_ack: bool
    """Celery only: acknowledge when a task has ended, and give back those of dead processes."""

    @classmethod
    def from_environment(cls) -> Terms:
        """What `environment` has written."""
        given = os.environ
        return cls(
            folder=Path(given["COMPARE_FOLDER"]),
            dsn=given["COMPARE_DSN"],
            redis=given["COMPARE_REDIS"],
            slots=int(given["COMPARE_SLOTS"]),
            tries=int(given["COMPARE_TRIES"]),
            limit=float(given["COMPARE_LIMIT"]),
            grace=float(given["COMPARE_GRACE"]),
            slow=float(given["COMPARE_SLOW"]),
            stale=float(given["COMPARE_STALE"]),
            late_ack=given["COMPARE_LATE_ACK"] == "1",
        )

    def environment(self) -> dict[str, str]:
        """For the processes of a system."""
        return {
            "COMPARE_FOLDER": str(self.folder),
            "COMPARE_DSN": self.dsn,
            "COMPARE_REDIS": self.redis,
            "COMPARE_SLOTS": str(self.slots),
            "COMPARE_TRIES": str(self.tries),
            "COMPARE_LIMIT": f"{self.limit:g}",
            "COMPARE_GRACE": f"{self.grace:g}",
            "COMPARE_SLOW": f"{self.slow:g}",
            "COMPARE_STALE": f"{self.stale:g}",
            "COMPARE_LATE_ACK": "1" if self.late_ack else "0",
        }
