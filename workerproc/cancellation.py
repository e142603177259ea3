"""What one attempt knows of being cancelled, and until when it can be.

Somebody's wish reaches the slot as a word in the page that names a claim; a handler meets it where
it asks, at a safe point of its own choosing, and nowhere else. Past its commit point nothing of it
reaches the handler any more: what is done counts.
"""

from __future__ import annotations

from jobctl.workerproc.errors import Cancelled
from jobctl.workerproc.page import Page


class Cancellation:
    """Of one attempt. `has_commit_point`: its type is declared with cancel="before_commit"."""

    __slots__ = ("_has_commit_point", "_page", "_token", "is_over", "requested_before")

    def __init__(
        self, page: Page, token: int, *, has_commit_point: bool, requested_before: bool = False
    ) -> None:
        self.is_over = requested_before  # nothing is delivered any more
        self.requested_before = requested_before  # what runs is the hook
        self._page = page
        self._token = token
        self._has_commit_point = has_commit_point

    @property
    def requested(self) -> bool:
        """Whether somebody wants the job to end."""
        return self.requested_before or self._page.cancel_aim() == self._token

    def check(self) -> None:
        """Raises Cancelled if it is to end here."""
        if not self.is_over and self._page.cancel_aim() == self._token:
            raise Cancelled

    def commit_point(self) -> None:
        """The last safe point. Raises Cancelled, or nothing does any more."""
        if self.is_over or not self._has_commit_point:
            self.check()
            return
        # Marked first: who kills by force has asked before it looks for the mark.
        self._page.note_committed(self._token)
        try:
            self.check()
        except Cancelled:
            self._page.note_committed(0)
            raise
        self.is_over = True
