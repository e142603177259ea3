"""`jobctl bench`, ended in the middle: it takes its PostgreSQL and its supervisor with it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.terminals import JOBCTL
from tests.servers import guarded_folder
from tests.waiting import until


def _with_path_in_their_words(folder: Path) -> list[str]:
    """Processes that were started with something in this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:  # it has just ended
                continue
            if str(folder) in words:
                found.append(words)
    return found


def _memory_of_nobody() -> set[str]:
    """Segments of PostgreSQL servers that no process has; those of other tests' servers come and
    go."""
    segments = {
        path.name
        for path in Path("/dev/shm").glob("PostgreSQL.*")
        if os.geteuid() in (0, path.lstat().st_uid)  # of others it is not seen who has them
    }
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "maps").read_text()
        except OSError:  # it has just ended, or is somebody else's
            continue
        segments -= set(re.findall(r"/dev/shm/(PostgreSQL\.\d+)", words))
    return segments


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_whoever_ends_it_leaves_nothing_behind(how: signal.Signals) -> None:
    """As `timeout` does, or Ctrl-C."""
    with guarded_folder() as guarded:
        folder = guarded / "tmp"  # the guard has the other one among its words
        folder.mkdir()
        folder.chmod(0o1777)
        before = _memory_of_nobody()
        environ = {key: value for key, value in os.environ.items() if "JOBCTL" not in key}
        process = subprocess.Popen(
            [*JOBCTL, "bench", "--jobs", "100000"], env={**environ, "TMPDIR": str(folder)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            until(
                lambda: any("postgres" in one for one in _with_path_in_their_words(folder)),
                within=60, what="its PostgreSQL",
            )  # fmt: skip
            process.send_signal(how)
            assert process.wait(60) == 130
            until(lambda: not _with_path_in_their_words(folder), within=30, what="nobody left")
            until(lambda: not _memory_of_nobody() - before, within=10, what="no shared memory left")
        finally:
            process.kill()
            process.wait()
