"""Callers who close our streams, fill the disk, or type what no database can be asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def run(database: str, command: str) -> subprocess.CompletedProcess[str]:
    """As a shell would, with its redirections."""
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "{sys.executable}" -m jobctl {command}'],
        env={**os.environ, "JOBCTL_DSN": database},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_stream_is_closed(database: str, closed: str) -> None:
    """What cannot be said is not said; it is no failure of the command."""
    ran = run(database, f"status {closed}")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_disk_is_full(database: str) -> None:
    """Exit 1 and a sentence: what was to be printed is not there."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    ran = run(database, "status > /dev/full")
    assert ran.returncode == 1
    assert ran.stderr == "jobctl: the output could not be written: No space left on device\n"


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "show", "99999999999999999999999"],
        ["jobs", "show", "0"],
        ["jobs", "wait", "9223372036854775808"],
        ["jobs", "list", "--after", "99999999999999999999999"],
        ["jobs", "retry", "--yes", "99999999999999999999999"],
        ["jobs", "list", "--error", "\udcff"],
        ["jobs", "list", "--queue", "a\udcff"],
        ["dead", "list", "--key", "\udcff"],
    ],
)
def test_what_no_database_can_be_asked(cli: Cli, words: list[str]) -> None:
    """Refused as a slip of the keyboard, with what it should have been."""
    ran = cli(*words)
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert ran.err
