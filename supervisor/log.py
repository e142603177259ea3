"""The supervisor's own log: entries on standard error or in the journal, written by a thread that
may be stuck.

Whoever logs never waits: an entry that the writer cannot take (a full pipe, a stopped journal) is
dropped and counted, and leases and deadlines go on. How many were lost is said when it goes again.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from jobctl.supervisor import journal
from jobctl.supervisor.events import Event
from jobctl.supervisor.journal import Journal
from jobctl.supervisor.log_lines import LEVEL_NAMES, SHAPES, Entry

#: Entries that wait for the writer; more are dropped.
LONGEST_QUEUE = 10_000
#: A sentence is cut after so many characters.
LONGEST_SENTENCE = 20_000

#: The words of the setting log_level.
LEVELS = {name: level for level, name in LEVEL_NAMES.items()}


class Log:
    """Where events are said. `form`: text, logfmt, json, journald, or auto, which is journald if
    the stream ends there, text on a terminal, and else json."""

    def __init__(
        self,
        form: str,
        stream: TextIO | None = None,
        level: int = logging.INFO,
        journal_socket: str = journal.SOCKET,
    ) -> None:
        self.dropped = 0
        self.level = level
        self._stream = sys.stderr if stream is None else stream
        if form == "auto":
            form = _usual(self._stream)
        # Whoever says journald and has none still reads lines, marked with their priority.
        self._shape = SHAPES.get(form, journal.as_marked_line)
        self._journal = Journal(journal_socket) if form == "journald" else None
        self._told = 0  # how many of the dropped have been told of
        self._waiting: queue.Queue[Entry | None] = queue.Queue(LONGEST_QUEUE)
        self._writer = threading.Thread(target=self._write, name="jobctl-log", daemon=True)
        self._writer.start()

    def say(self, event: Event, **fields: Any) -> None:
        """Never waits and never raises."""
        if event.value.level >= self.level:
            self._say(event, event.value.level, fields)

    def pass_on(self, event: Event, level: int, **fields: Any) -> None:
        """What an application said, at its own level: how much it says is for it to decide."""
        self._say(event, level, fields)

    def close(self) -> None:
        """Writes what waits, for at most a second."""
        self._put(None)
        self._writer.join(timeout=1)
        if self._journal is not None and not self._writer.is_alive():
            self._journal.close()

    def _say(self, event: Event, level: int, fields: dict[str, Any]) -> None:
        try:
            sentence = event.value.sentence.format_map(fields)[:LONGEST_SENTENCE]
        except Exception as error:  # a field that cannot be printed must not end a supervisor
            sentence = f"this could not be said: {type(error).__name__}"
            fields = {}
        self._put(Entry(datetime.now(UTC), level, event.name.lower(), sentence, fields))

    def _put(self, entry: Entry | None) -> None:
        try:
            self._waiting.put_nowait(entry)
        except queue.Full:
            self.dropped += 1

    def _write(self) -> None:
        while (entry := self._waiting.get()) is not None:
            self._deliver(entry)
            if self.dropped > self._told and self._waiting.qsize() < LONGEST_QUEUE // 2:
                lost, self._told = self.dropped - self._told, self.dropped
                words = Event.LINES_DROPPED.value
                sentence = words.sentence.format(count=lost)
                now = datetime.now(UTC)
                self._deliver(Entry(now, words.level, "lines_dropped", sentence, {"count": lost}))

    def _deliver(self, entry: Entry) -> None:
        try:
            if self._journal is not None:
                try:
                    self._journal.send(journal.encode(entry))
                    return
                except OSError:
                    pass  # it is restarted, or there is none: our standard error is left
            line = self._shape(entry).encode("utf-8", "backslashreplace") + b"\n"
            while line:
                line = line[os.write(self._stream.fileno(), line) :]
        except Exception:  # a full disk, a closed pipe, a field whose __str__ raises
            self.dropped += 1


def _usual(stream: TextIO) -> str:
    if journal.is_stream(stream, os.environ):
        return "journald"
    with suppress(ValueError):  # closed
        return "text" if stream.isatty() else "json"
    return "json"


def first_line(error: BaseException) -> str:
    """What an error says, without what libpq adds on further lines."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
