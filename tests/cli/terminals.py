"""A real terminal with the real command in it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

JOBCTL = [sys.executable, "-c", "from jobctl.cli import main; main()"]


def environment(database: str, **more: str) -> dict[str, str]:
    """What a user with a terminal has."""
    clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    return {**clean, "JOBCTL_DSN": database, "TERM": "xterm", "COLUMNS": "100", **more}


class Terminal:
    """What stands on the screen, and a keyboard."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.screen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        """The kernel tells whoever is in front."""
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def attributes(self) -> list[object]:
        """How the terminal is set: echo, line mode and the rest."""
        return list(termios.tcgetattr(self._descriptor))

    def ended(self, process: subprocess.Popen[bytes]) -> int:
        """What it exits with, within 20 s. Reads on: who writes to a terminal that nobody reads
        waits for ever once that is full, and a busy machine lets it come to that."""
        end = time.monotonic() + 20
        while (code := process.poll()) is None:
            assert time.monotonic() < end, self.screen
            self._read()
        return code

    def read_until(self, text: str, within: float = 20.0) -> str:
        end = time.monotonic() + within
        while text not in self.screen:
            assert time.monotonic() < end, self.screen
            if not self._read():
                assert text in self.screen, self.screen
        return self.screen

    def _read(self) -> bool:
        """What there is, after a moment at the most; False: the other end is closed."""
        if select.select([self._descriptor], [], [], 0.1)[0]:
            try:
                self.screen += os.read(self._descriptor, 4096).decode()
            except OSError:
                return False
        return True


@contextmanager
def on_a_terminal(
    words: Sequence[str],
    environ: dict[str, str],
    *,
    size: tuple[int, int] | None = None,
    keep_open: bool = False,
    program: Sequence[str] = JOBCTL,
) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """The command, in a session whose terminal this is. `keep_open`: also when it has ended, to
    look at how it was left."""
    ours, theirs = pty.openpty()
    terminal = Terminal(ours)
    if size is not None:
        terminal.resize(*size)

    def take() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [*program, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environ,
        start_new_session=True, preexec_fn=take,
    )  # fmt: skip
    if not keep_open:
        os.close(theirs)
    try:
        yield terminal, process
    finally:
        process.kill()
        process.wait()
        if keep_open:
            os.close(theirs)
        os.close(ours)
