"""A terminal taken over and given back as it was, however the program ends (but for kill -9).

Plain escape codes that every terminal since the VT100 knows, and xterm's second screen. A signal
is only remembered, and wakes whoever waits for a key; leaving is done by the loop, so that nothing
is drawn after the screen has been given back.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J"
_LEAVE = "\x1b[?25h\x1b[?1049l"
#: Those that end or stop a program that has a terminal, and the one that tells of another size.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)


class Screen:
    """`with Screen() as screen`: the whole terminal, keys without Enter, and no echo."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._pending: list[int] = []
        self._bell: tuple[int, int] = (-1, -1)
        self._drawn = ""
        self._typed = ""

    def __enter__(self) -> Screen:
        self._bell = os.pipe()
        for end in self._bell:
            os.set_blocking(end, False)
        for number in (*_SIGNALS, signal.SIGWINCH):
            self._handlers[number] = signal.signal(number, self._remember)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for end in self._bell:
            os.close(end)

    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        try:
            columns, lines = os.get_terminal_size(self._out)
        except OSError:
            columns, lines = 0, 0
        return columns or 80, lines or 24  # a serial line does not know

    def draw(self, lines: Sequence[str]) -> None:
        """Shows these lines, none of them wider than the screen, and nothing else."""
        frame = "\r\n".join(f"{line}\x1b[K" for line in lines)
        if frame != self._drawn:
            self._drawn = frame
            self._write(f"\x1b[H{frame}\x1b[J")

    def key(self, within: float) -> str:
        """What was typed; "" when time is over or something else is new. A signal that ends the
        program leaves the screen and then does what it does: KeyboardInterrupt, or the end."""
        if self._typed:
            first, self._typed = self._typed[0], self._typed[1:]
            return first
        ready, _, _ = select.select([self._in, self._bell[0]], [], [], max(0.0, within))
        if self._bell[0] in ready:
            with suppress(BlockingIOError):
                os.read(self._bell[0], 4096)
            self._obey()
            return ""
        if self._in not in ready:
            return ""
        typed = os.read(self._in, 64)
        if not typed:  # the terminal has gone
            raise KeyboardInterrupt
        keys = typed.decode("utf-8", "replace")
        if len(keys) > 1 and keys[0] == "\x1b":
            return keys  # an arrow, or another key that has no letter
        self._typed = keys[1:]
        return keys[0]

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._pending.append(number)
        with suppress(OSError):  # the pipe is full of such: it will wake
            os.write(self._bell[1], b".")

    def _obey(self) -> None:
        pending, self._pending = self._pending, []
        self._drawn = ""  # of another size, perhaps
        for number in pending:
            if number == signal.SIGWINCH:
                continue
            self._give_back()
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)  # the end; or, for Ctrl-Z, a long pause
            signal.signal(number, self._remember)
            self._take()

    def _take(self) -> None:
        self._before = termios.tcgetattr(self._in)
        tty.setcbreak(self._in, termios.TCSANOW)
        self._write(_ENTER)
        self._drawn = ""

    def _give_back(self) -> None:
        if not self._before:
            return
        with suppress(OSError, termios.error):  # the terminal has gone
            self._write(_LEAVE)
            # What was typed and not read is not for the shell.
            termios.tcsetattr(self._in, termios.TCSAFLUSH, self._before)
        self._before = []

    def _write(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding or "ascii", "replace")
        while data:
            data = data[os.write(self._out, data) :]


def is_usable() -> bool:
    """Whether there is a terminal on both ends that can do this."""
    try:
        both = os.isatty(sys.stdin.fileno()) and os.isatty(sys.stdout.fileno())
        # In the background a change of the terminal would stop us.
        front = both and os.tcgetpgrp(sys.stdout.fileno()) == os.getpgrp()
        fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, b"\0" * 8) if both else None
    except (OSError, ValueError):
        return False
    return front and os.environ.get("TERM", "dumb") != "dumb"
