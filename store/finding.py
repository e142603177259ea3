"""What an examination says: a fact, how it stands, and what to do if it is not as it should be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How it stands. Only what is wrong makes an examination fail."""

    FINE = "fine"
    NOTE = "note"
    WRONG = "WRONG"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    about: str
    level: Level
    fact: str
    advice: str = ""

    @property
    def fine(self) -> bool:
        """Whether nothing has to be done."""
        return self.level is not Level.WRONG


def finding(about: str, fine: bool, fact: str, advice: str, *, note: bool = False) -> Finding:
    """Fine, or wrong (`note`: only worth a thought), with the advice for that."""
    level = Level.FINE if fine else Level.NOTE if note else Level.WRONG
    return Finding(about, level, fact, "" if fine else advice)
