"""The supervisor's own log: lines on standard error, written by a thread that may be stuck.

Whoever logs never waits: a line that the writer cannot take (a full pipe, a stopped journal) is
dropped and counted, and leases and deadlines go on. Lines are text on a terminal, else JSON.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO

from jobctl.supervisor.events import Event

#: Lines that wait for the writer; more are dropped.
LONGEST_QUEUE = 10_000
#: A sentence is cut after so many characters.
LONGEST_SENTENCE = 20_000

_LEVEL = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
    logging.CRITICAL: "critical",
}


class Log:
    """Where events are said."""

    def __init__(self, form: str, stream: TextIO | None = None, level: int = logging.INFO) -> None:
        self.dropped = 0
        self.level = level
        self._stream = sys.stderr if stream is None else stream
        as_text = form == "text" or (form == "auto" and self._stream.isatty())
        self._format = _as_text if as_text else _as_json
        self._lines: queue.Queue[str | None] = queue.Queue(LONGEST_QUEUE)
        self._writer = threading.Thread(target=self._write, name="jobctl-log", daemon=True)
        self._writer.start()

    def say(self, event: Event, **fields: Any) -> None:
        """Never waits and never raises."""
        words = event.value
        if words.level < self.level:
            return
        try:
            sentence = words.sentence.format_map(fields)[:LONGEST_SENTENCE]
            moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            line = self._format(moment, words.level, event.name.lower(), sentence, fields)
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped += 1
        except Exception as error:  # a field that cannot be printed must not end a supervisor
            self._lines_or_drop(f"jobctl: {event.name} could not be said: {type(error).__name__}")

    def close(self) -> None:
        """Writes what waits, for at most a second."""
        self._lines_or_drop(None)
        self._writer.join(timeout=1)

    def _lines_or_drop(self, line: str | None) -> None:
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                os.write(self._stream.fileno(), line.encode("utf-8", "backslashreplace") + b"\n")
            except OSError:
                self.dropped += 1


def _as_text(moment: str, level: int, event: str, sentence: str, fields: dict[str, Any]) -> str:
    where = ""
    if event == "output":
        slot, job = fields["slot"], fields["job"]
        where = "[app] " if slot is None else f"[slot {slot} job {job}] "
        where = where.replace(" job None", "")
    return f"{moment} {_LEVEL[level]:7} {where}{sentence}"


def _as_json(moment: str, level: int, event: str, sentence: str, fields: dict[str, Any]) -> str:
    known = {name: value for name, value in fields.items() if name != "line"}
    line = {**known, "time": moment, "level": _LEVEL[level], "event": event, "message": sentence}
    return json.dumps(line, default=str, ensure_ascii=True)


def first_line(error: BaseException) -> str:
    """What an error says, without what libpq adds on further lines."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
