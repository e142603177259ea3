"""A lock that ends with its last holder, and that a removed file does not split in two."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from jobctl.store import flock
from jobctl.store.binaries import EmbeddedError


def test_a_lock_that_is_held_is_not_free(tmp_path: Path) -> None:
    """And whoever waits in vain is told the caller's sentence."""
    with flock.held(tmp_path / "lock", within=0, otherwise="first"):
        assert not flock.is_free(tmp_path / "lock")
        with (
            pytest.raises(EmbeddedError, match="it is taken"),
            flock.held(tmp_path / "lock", within=0.05, otherwise="it is taken"),
        ):
            pass
    assert flock.is_free(tmp_path / "lock")


def test_a_child_that_inherits_it_keeps_it(tmp_path: Path) -> None:
    """Whoever started the child may be gone; the lock says whether the child is."""
    with flock.held(tmp_path / "lock", within=0, otherwise="") as lock:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[lock])
    assert not flock.is_free(tmp_path / "lock")
    child.kill()
    child.wait()
    assert flock.is_free(tmp_path / "lock")
    assert child.stdin is not None
    child.stdin.close()


def test_the_file_is_removed_while_somebody_waits_for_it(tmp_path: Path) -> None:
    """The waiter must not end up with the lock of a file that nobody else can see."""
    path = tmp_path / "lock"
    begun = Event()

    def wait() -> bool:
        begun.set()
        with flock.held(path, within=10, otherwise="not in time"):
            return not flock.is_free(path)

    with ThreadPoolExecutor(1) as pool:
        with flock.held(path, within=0, otherwise=""):
            waiter = pool.submit(wait)
            begun.wait(10)
            path.unlink()
        assert waiter.result(10)
