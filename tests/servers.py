"""Throw-away PostgreSQL servers that are gone when the tests are, however those end.

A guardian process watches over a folder of servers. It waits for the end of a pipe that
only the tests' process holds; so it sees a failed run, Ctrl-C and kill -9 alike, stops
every server in the folder and removes it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobctl.store.embedded import EmbeddedError, EmbeddedPostgres

# Nothing in a throw-away server outlives a crash, so nothing need wait for a disk.
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    # In its own folder, which goes with it: whoever is killed leaves what is in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
}

GUARD_LIMIT = 90.0


@contextmanager
def guarded_folder() -> Iterator[Path]:
    """A folder for the roots of servers, watched over until the block or the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="jobctl-"))
    if os.geteuid() == 0:
        folder.chmod(0o755)  # root's servers run as another user, who must come through
    guardian = subprocess.Popen(
        [sys.executable, "-P", __file__, folder], stdin=subprocess.PIPE, start_new_session=True
    )
    assert guardian.stdin is not None
    try:
        yield folder
    finally:
        guardian.stdin.close()
        assert guardian.wait(GUARD_LIMIT) == 0, f"the servers in {folder} were not removed"


def chosen_bindir() -> Path | None:
    """The programs that this run is to use; None leaves the choice to the product."""
    chosen = os.environ.get("JOBCTL_TEST_PG_BINDIR")
    return Path(chosen) if chosen else None


def _guard(folder: Path) -> None:
    sys.stdin.buffer.read()
    failures = []
    # `serving` marks the root of a server that was started at least once.
    for root in [file.parent for file in folder.rglob("serving")]:
        try:
            EmbeddedPostgres(root).destroy()
        except (EmbeddedError, OSError) as error:
            failures.append(str(error))
    shutil.rmtree(folder)
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    _guard(Path(sys.argv[1]))
