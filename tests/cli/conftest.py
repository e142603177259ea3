"""The command line as a test types it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jobctl.cli import execute
from jobctl.store import reading
from jobctl.store.reading import Connection


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed."""
        return json.loads(self.out)


class Cli:
    """Runs commands in this process, with nobody at the keyboard."""

    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._patch = patch

    def __call__(self, *words: object, stdin: str = "") -> Ran:
        self._patch.setattr(sys, "stdin", io.StringIO(stdin))
        self._capsys.readouterr()
        code = execute([str(word) for word in words])
        printed = self._capsys.readouterr()
        return Ran(code, printed.out, printed.err)


@pytest.fixture
def bare_cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Cli:
    """With no settings at all, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(tmp_path / "pg"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("JOBCTL_RUNTIME_DIR", str(tmp_path / "run"))
    # Set only to be put back: enqueue sets it for the rest of its process.
    monkeypatch.setenv("JOBCTL_SCHEMA", "jobctl")
    return Cli(capsys, monkeypatch)


@pytest.fixture
def cli(bare_cli: Cli, database: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """With a migrated, empty database."""
    monkeypatch.setenv("JOBCTL_DSN", database)
    return bare_cli


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """To look at what a command has done."""
    with reading.connect(database, "jobctl") as made:
        yield made
