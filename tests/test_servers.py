"""The servers of a test run are gone when the run is, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.waiting import until

RUN = """
import sys
sys.path.append(sys.argv[1])
from tests.servers import FAST, guarded_folder
from jobctl.store.embedded import EmbeddedPostgres
with guarded_folder() as folder:
    server = EmbeddedPostgres(folder / "tests", settings=FAST)
    server.start()
    print(folder, server.pid(), flush=True)
    sys.stdin.read()
"""


def test_tests_killed() -> None:
    """After a kill -9 of the tests no process and no folder is left."""
    here = Path(__file__).parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", RUN, here], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        folder, pid = run.stdout.readline().split()
        assert Path(f"/proc/{pid}").exists()
        run.kill()
    until(lambda: not Path(folder).exists(), within=30, what="the guardian's work")
    assert not Path(f"/proc/{pid}/cwd").exists()
