"""All that a supervisor says: every event with its words and its weight, in one place.

A log line is an event, its fields, and a sentence for the person on call. Fields never hold a
job's arguments. Each attempt that has run has one line at its end, `job_succeeded` or `job_ended`,
with the same fields. What an application prints is `output`, what it logs is `logged`, at its own
level. The README's table of events is this table.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, eq=False)  # two events that are said alike are two
class Words:
    """How an event is said. `sentence` is a format string over the event's fields."""

    level: int
    sentence: str


class Event(Enum):
    """The event's name in lower case is its name in the log."""

    # The supervisor
    STARTED = Words(logging.INFO, "started on {host} with {slots} slots, version {version}")
    READY = Words(logging.INFO, "ready: the app is imported and PostgreSQL answers")
    STOPPING = Words(
        logging.INFO, "stopping because of {because}: {busy} jobs run, up to {patience}"
    )
    STOPPED = Words(
        logging.INFO,
        "stopped; {interrupted} jobs were interrupted, {queued_again} of them are queued again",
    )
    DRAINING = Words(logging.INFO, "draining: claiming nothing more, {busy} jobs run")
    UNDRAINED = Words(logging.INFO, "claiming again")
    SIGNAL_REPEATED = Words(logging.INFO, "{signal} again; already stopping")
    STOPPING_SOONER = Words(
        logging.INFO, "stopping sooner because of {because}: {busy} jobs run, up to {patience}"
    )
    PART_FAILED = Words(
        logging.CRITICAL, "{part} failed in a way nobody planned for; stopping at once\n{stack}"
    )
    CONFIGURATION_REFUSED = Words(logging.CRITICAL, "{error}")
    STATE = Words(logging.INFO, "{state}")
    LISTENING = Words(logging.INFO, "serving /metrics, /livez and /readyz on {address}")

    CONTROL_GROUPS = Words(logging.INFO, "control groups: {sentence}")

    # The session and the lease
    SESSION_REGISTERED = Words(logging.INFO, "registered session {session}")
    SESSION_LOST = Words(
        logging.ERROR, "this host's session was declared dead; its {busy} jobs are killed"
    )
    LEASE_OVER = Words(
        logging.ERROR,
        "the lease could not be renewed in time; {busy} jobs are killed before others run them",
    )
    EARLIER_SESSIONS_DEAD = Words(
        logging.WARNING, "{count} earlier lives of this host are dead; reclaiming what they held"
    )
    DATABASE_LOST = Words(
        logging.WARNING, "PostgreSQL does not answer on {link}: {error}; trying again"
    )
    DATABASE_BACK = Words(logging.INFO, "PostgreSQL answers again on {link}")
    DATABASE_REFUSED = Words(
        logging.ERROR, "PostgreSQL refused {statement}: {error}; it will be asked again"
    )
    LEADING = Words(logging.INFO, "leading: reaping, firing crons and counting for all hosts")
    NOT_LEADING = Words(logging.INFO, "not leading any more")
    DUTY_FAILED = Words(
        logging.ERROR, "the leader's duty {duty} failed: {error}; it is tried again"
    )
    UNRUNNABLE = Words(logging.WARNING, "{jobs} jobs of {type}, version {version}, wait: {because}")
    PLACES_MENDED = Words(
        logging.ERROR, "{places} places of limits were held by nobody, and are given back"
    )
    CLOCK_SET = Words(
        logging.WARNING,
        "the database's clock was set by {seconds} s; leases are judged when all can have renewed",
    )
    SESSIONS_EXPIRED = Words(logging.WARNING, "the lease of {hosts} is over; reclaiming their jobs")

    # Crons
    CRON_FIRED = Words(logging.DEBUG, "cron {name} fired {times} times, {lag:.3f} s late")
    CRON_SKIPPED = Words(
        logging.INFO, "cron {name} did not fire: the job of the time before is still open"
    )
    CRON_MISSED = Words(
        logging.WARNING,
        "cron {name} missed {times} planned times, and its misfire policy lets them go",
    )
    CRON_FAILED = Words(logging.ERROR, "cron {name} could not be fired: {error}; it is tried again")

    # Slots
    SLOT_READY = Words(logging.DEBUG, "{sentence}")
    SLOT_DIED = Words(logging.WARNING, "slot {slot} (pid {pid}) is gone: {sentence}")
    SLOT_LEFT = Words(logging.DEBUG, "slot {slot} (pid {pid}) has left: {sentence}")
    APP_FAILED = Words(
        logging.ERROR, "the app could not be imported: {error_class}: {error}\n{stack}"
    )
    RELOADING = Words(
        logging.INFO, "loading new code; what runs goes on, and the old code if the new one fails"
    )
    RELOADED = Words(logging.INFO, "{sentence}")
    FLEET_NOTICE = Words(logging.WARNING, "{sentence}")
    OUTPUT = Words(logging.INFO, "{line}")
    LOGGED = Words(logging.INFO, "{line}")  # noqa: PIE796 - two that are said alike

    # The log itself
    LINES_DROPPED = Words(
        logging.WARNING, "{count} lines were dropped: whoever reads the log did not follow"
    )

    # Jobs
    JOB_SUCCEEDED = Words(logging.INFO, "{type} #{job} succeeded in {seconds:.3f} s")
    JOBS_UNSAID = Words(logging.INFO, "{count} more jobs succeeded, too many to say one by one")
    JOB_ENDED = Words(
        logging.WARNING, "{type} #{job} attempt {attempt} {outcome}: {error}; it is {state} now"
    )
    CANCEL_ASKED = Words(logging.INFO, "{type} #{job} runs in slot {slot} and is asked to cancel")
    JOB_HAD_SUCCEEDED = Words(
        logging.WARNING,
        "{type} #{job} had committed its success itself; what came after it changes nothing: "
        "{outcome}: {error}",
    )
    JOB_RETURNED = Words(logging.INFO, "{type} #{job} goes back unstarted: {because}")
    JOB_LEFT = Words(logging.WARNING, "{type} #{job} ended in slot {slot}: it {left}{again}")
    CLAIM_LOST = Words(
        logging.ERROR,
        "{type} #{job}: its claim was no longer ours when its attempt ended; nothing was changed",
    )
    ROW_UNSTORABLE = Words(
        logging.ERROR, "{type} #{job}: PostgreSQL could not store how it ended: {error}"
    )
    CLAIMS_DISOWNED = Words(
        logging.WARNING, "{count} claims of ours were made by a lost statement; handed back"
    )
