"""What one attempt has said of itself so far, beside what its handler returns.

It belongs to the context that the handler holds, and is read when the handler has ended. Bounded,
because a handler may say anything any number of times.
"""

from __future__ import annotations

from typing import Any, Final

#: What can have come of an effect; the results of `jobctl_effects_total`.
EFFECT_RESULTS: Final = ("done", "repeated", "ambiguous", "reconciled", "failed", "lost", "busy")


class Said:
    """Nothing yet. `committed`: the job's success is, in a transaction of the handler's own."""

    __slots__ = ("committed", "effects", "in_transaction", "progressed", "result", "result_text")

    def __init__(self) -> None:
        self.result: Any = None
        self.result_text: str | None = None
        self.committed = False
        self.in_transaction = False
        self.progressed = False
        self.effects: dict[str, int] | None = None

    @property
    def is_plain(self) -> bool:
        """Nothing that the supervisor would have to be told."""
        return not self.progressed and self.effects is None and self.result_text is None

    def count_effect(self, result: str) -> None:
        """A word of EFFECT_RESULTS."""
        if self.effects is None:
            self.effects = {}
        self.effects[result] = self.effects.get(result, 0) + 1

    def to_dict(self) -> dict[str, Any]:
        """What goes into the frame that says how the attempt ended."""
        found: dict[str, Any] = {}
        if self.effects is not None:
            found["effects"] = self.effects
        if self.progressed:
            found["progressed"] = True
        return found
