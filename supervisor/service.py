"""The supervisor as a service of systemd: what was told is compared with what is so, once a turn.

Only the loop of the supervisor calls this, at the end of a turn in which deadlines were enforced
and the lease was looked at. So the watchdog is fed by supervision itself: a loop that is stuck, or
that turns without supervising, feeds nothing and is ended. More time to start, to reload or to stop
is asked for a little at a time, and only within what the settings allow: whoever makes no progress
stops asking.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import inf
from time import monotonic_ns
from typing import Any, Protocol

from jobctl.supervisor.notify import Notify
from jobctl.supervisor.reload import Progress
from jobctl.supervisor.stopping import Stop

#: So often within the time that systemd allows between two words the watchdog is fed.
FEEDS = 4
#: Figures in the status line are told at most this often: each is a signal to whoever watches.
STATUS_SECONDS = 2.0
#: More time is asked for in portions of this size, and this often.
EXTENSION_SECONDS, EXTEND_EVERY_SECONDS = 15.0, 5.0
#: When the patience of a stop is over, killing, writing and closing take this at the most.
ENDING_SECONDS = 45.0
#: What did not arrive is told again after this.
AGAIN_SECONDS = 0.1


class Life(Enum):
    """What systemd calls it; the last words of a state are those that announce it."""

    STARTING = "activating"
    READY = "active"
    RELOADING = "reloading"
    STOPPING = "deactivating"


class Facts(Protocol):
    """What is asked about the supervisor: its report."""

    def has_started(self) -> bool:
        """Whether it does its work, or would if PostgreSQL answered."""

    def load_error(self) -> str | None:
        """Why the app could not be imported the last time, if so."""

    def reload_progress(self) -> Progress:
        """Of the last reload."""

    def headline(self, now: float) -> str:
        """One line for people."""


class Service:
    """Tells systemd. `boot_timeout` is how long the app may take to be imported, in seconds."""

    def __init__(self, notify: Notify, facts: Facts, stop: Stop, boot_timeout: float, now: float):
        self._notify = notify
        self._facts = facts
        self._stop = stop
        self._patience = 2 * boot_timeout  # once in the template, once in a slot
        self._life = Life.STARTING  # as it was told
        self._since = now
        self._line = ""
        self._reloads = 0  # that were told of
        self._feed_at = self._status_at = self._extend_at = now if notify.listens else inf
        self._again_at = 0.0
        self._feed_every = inf if notify.watchdog is None else notify.watchdog / FEEDS

    def turned(self, now: float) -> None:
        """A turn of supervision is over."""
        if not self._notify.listens or now < self._again_at:
            return
        life = self._now_is()
        said: dict[str, Any] = {}
        then: list[Callable[[], None]] = []
        if life is not self._life:
            said |= _ANNOUNCED[life]()
            then.append(lambda: self._became(life, now))
        if now >= self._status_at or life is not self._life:
            line = self._facts.headline(now)
            if line != self._line:
                said["STATUS"] = line
            then.append(lambda: self._said(line, now))
        if (now >= self._extend_at or life is not self._life) and self._may_take_longer(now):
            said["EXTEND_TIMEOUT_USEC"] = round(EXTENSION_SECONDS * 1e6)
            then.append(lambda: self._extended(now))
        if self._feed_every < inf and now >= self._feed_at:
            said["WATCHDOG"] = 1
            then.append(lambda: self._fed(now))
        if said and not self._notify.tell(**said):
            self._again_at = now + AGAIN_SECONDS
            return
        for remember in then:
            remember()

    def next_due(self) -> float:
        """When to turn although nothing happened (monotonic seconds)."""
        if self._feed_every == inf and self._life is not Life.RELOADING:
            return inf
        due = self._feed_at if self._feed_every < inf else inf
        if self._life is Life.RELOADING and self._now_is() is Life.READY:
            due = 0.0
        return max(due, self._again_at)

    def closing(self) -> None:
        """There will be no other turn; what is left takes seconds."""
        portion = round(EXTENSION_SECONDS * 2 * 1e6)
        said: dict[str, Any] = {"STOPPING": 1, "STATUS": "leaving", "EXTEND_TIMEOUT_USEC": portion}
        if self._feed_every < inf:
            said["WATCHDOG"] = 1
        self._notify.tell(**said)

    def _now_is(self) -> Life:
        if self._stop.begun:
            return Life.STOPPING
        if self._life is Life.STARTING and not self._facts.has_started():
            return Life.STARTING
        progress = self._facts.reload_progress()
        # One that failed at once is told of as well: who asked for it waits for both words.
        untold = self._life is Life.READY and progress.asked > self._reloads
        return Life.RELOADING if untold or not progress.decided else Life.READY

    def _may_take_longer(self, now: float) -> bool:
        match self._now_is():
            case Life.STARTING:
                return now < self._since + self._patience and self._facts.load_error() is None
            case Life.RELOADING:
                return now < self._since + self._patience
            case Life.STOPPING:
                return now < self._stop.patience_ends + ENDING_SECONDS
            case Life.READY:
                return False

    def _became(self, life: Life, now: float) -> None:
        self._life, self._since = life, now
        self._reloads = self._facts.reload_progress().asked

    def _said(self, line: str, now: float) -> None:
        self._line, self._status_at = line, now + STATUS_SECONDS

    def _extended(self, now: float) -> None:
        self._extend_at = now + EXTEND_EVERY_SECONDS

    def _fed(self, now: float) -> None:
        self._feed_at = now + self._feed_every


def _reloading() -> dict[str, Any]:
    return {"RELOADING": 1, "MONOTONIC_USEC": monotonic_ns() // 1000}


_ANNOUNCED: dict[Life, Callable[[], dict[str, Any]]] = {
    Life.STARTING: dict,
    Life.READY: lambda: {"READY": 1},
    Life.RELOADING: _reloading,
    Life.STOPPING: lambda: {"STOPPING": 1},
}
