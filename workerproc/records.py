"""What an application logs while it runs a job: how it finds its way into the supervisor's log.

A record becomes one line on the slot's standard error: a mark, then JSON with level, logger and
message. The supervisor takes it from there (`supervisor/app_records.py`); which job it was it knows
by itself. The rule: an application that has set logging up keeps what it has set up, and its
records say whose they are. One that has not gets a handler, once it is imported and not before,
because `logging.basicConfig` does nothing where there is one.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from jobctl.store.texts import redact, storable
from jobctl.workerproc.frames import Job

#: Ends what was printed before on the same line, and begins a record. Nobody prints it by chance.
MARK: Final = "\x1ejobctl "
#: A line is cut by its reader beyond 8 KiB; a record has to fit.
LINE_LIMIT: Final = 8000
MESSAGE_LIMIT: Final = 6000
#: Of what a caller gives as `extra`: so many, so long.
MOST_EXTRAS, EXTRA_LIMIT = 16, 200

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,39}")
#: What every record has; the rest of its dictionary was given as `extra`.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message", "asctime", "taskName", "job_id", "job_type", "attempt",
}  # fmt: skip


class _Running:
    """Which attempt this process runs: one at a time, also seen by the threads that it starts."""

    job: Job | None = None
    in_slot = False


RUNNING: Final = _Running()


class LogHandler(logging.Handler):
    """Sends records to the supervisor's log with their level, logger and job.

    An application without handlers of its own has it already. One that configures logging may name
    it there, `jobctl.LogHandler`; outside of a slot it writes plain lines to standard error.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises; what cannot be sent goes where logging's own mistakes go."""
        try:
            message = self.format(record)
            if RUNNING.in_slot:
                _write(_line(record, message))
            else:
                sys.stderr.write(f"{record.levelname} {record.name}: {message}\n")
        except Exception:
            self.handleError(record)


class _Whose(logging.Filter):
    """Gives records that other handlers format `job_id`, `job_type` and `attempt`."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Changes the record, and lets it pass."""
        job, known = RUNNING.job, record.__dict__
        known.setdefault("job_id", job and job.job_id)
        known.setdefault("job_type", job and job.type)
        known.setdefault("attempt", job and job.attempt)
        return True


def install() -> None:
    """In a slot, when the application is imported."""
    RUNNING.in_slot = True
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(LogHandler())
        job_log = logging.getLogger("jobctl.job")
        if job_log.level == logging.NOTSET:
            job_log.setLevel(logging.INFO)  # `ctx.log.info` is meant to be seen
    whose = _Whose()
    for handler in _handlers():
        handler.addFilter(whose)


def _handlers() -> Iterator[logging.Handler]:
    """All that any logger has."""
    seen = set()
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for logger in loggers:
        for handler in getattr(logger, "handlers", ()):  # a placeholder has none
            if handler not in seen:
                seen.add(handler)
                yield handler


def _line(record: logging.LogRecord, message: str) -> bytes:
    body: dict[str, Any] = {"level": record.levelno, "logger": record.name[:200]}
    if extras := _extras(record):
        body["extra"] = extras
    # Head and tail: the end of a traceback says most.
    shown = redact(storable(message, 2 * MESSAGE_LIMIT))
    room = MESSAGE_LIMIT
    while True:
        text = json.dumps({**body, "message": storable(shown, room)})
        if len(text) + len(MARK) < LINE_LIMIT or room < 100:
            return f"{MARK}{text}\n".encode("ascii")
        room //= 2


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in record.__dict__.items():
        if name in _USUAL or not _NAME.fullmatch(name) or len(found) >= MOST_EXTRAS:
            continue
        if isinstance(value, str):
            found[name] = storable(redact(value[:EXTRA_LIMIT]), EXTRA_LIMIT)
        elif isinstance(value, bool | int | float) and abs(value) < 2**53:
            found[name] = value
    return found


def _write(line: bytes) -> None:
    while line:
        line = line[os.write(2, line) :]
