"""Completion: what a shell is told while somebody waits behind a Tab."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from jobctl.store.reading import Connection
from tests.cli.conftest import Cli
from tests.cli.terminals import JOBCTL
from tests.proxy import Proxy, Wire
from tests.store.standing import put, put_session


def completed(words: str, database: str, **environ: str) -> list[str]:
    """What Tab would offer behind these words, the last of which is being typed."""
    typed = words.split(" ")
    ran = subprocess.run(
        JOBCTL, capture_output=True, text=True, check=True,
        env={
            **os.environ, "JOBCTL_DSN": database, "_JOBCTL_COMPLETE": "bash_complete",
            "COMP_WORDS": words, "COMP_CWORD": str(len(typed) - 1), **environ,
        },
    )  # fmt: skip
    assert ran.stderr == ""
    return [line.split(",", 1)[1] for line in ran.stdout.splitlines() if line]


def test_commands_options_and_words(database: str) -> None:
    """Also those that are loaded only when they are asked for."""
    assert {"jobs"} == set(completed("jobctl job", database))
    assert "top" in completed("jobctl ", database)
    assert completed("jobctl queues pa", database) == ["pause"]
    assert completed("jobctl jobs list --sub", database) == ["--subject"]
    assert completed("jobctl jobs list --state ret", database) == ["retrying"]


def test_names_come_from_the_database(database: str, connection: Connection) -> None:
    """Queues, types, hosts: those that begin so."""
    put(connection, queue="mail")
    put(connection, queue="mailing lists")
    put(connection, queue="re\nports")
    put_session(connection, 1, "alpha")
    assert completed("jobctl queues pause ma", database) == ["mail", "mailing lists"]
    assert completed("jobctl jobs list --queue mail", database) == ["mail", "mailing lists"]
    assert completed("jobctl queues pause re", database) == []
    assert completed("jobctl check --host a", database) == ["alpha"]


def test_a_database_that_is_away_completes_nothing_and_says_nothing(database: str) -> None:
    """Refused, silent, or not migrated: soon, and without a word on the prompt."""
    assert completed("jobctl queues pause ma", "postgresql://127.0.0.1:1/x") == []
    with Proxy.to(database) as proxy:
        proxy.wire = Wire.BLACK_HOLE
        begun = time.monotonic()
        assert completed("jobctl queues pause ma", proxy.dsn) == []
        assert time.monotonic() - begun < 10  # where a connection alone may take as long


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(bare_cli: Cli, shell: str) -> None:
    """Each names its variable; a shell that is here takes it."""
    ran = bare_cli("completion", shell)
    assert ran.code == 0
    assert "_JOBCTL_COMPLETE" in ran.out
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=ran.out, text=True, check=True)


def test_bash_completes(
    bare_cli: Cli, database: str, connection: Connection, tmp_path: Path
) -> None:
    """The real shell, with the script as it is printed."""
    put(connection, queue="mail")
    script = bare_cli("completion", "bash").out
    ask = (
        "COMP_WORDS=(jobctl queues pause ma); COMP_CWORD=3; _jobctl_completion jobctl; echo "
        '"${COMPREPLY[@]}"'
    )
    program = tmp_path / "jobctl"
    program.write_text(f"#!/bin/sh\nexec {shlex.join(JOBCTL)}\n")
    program.chmod(0o755)
    ran = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True,
        env={**os.environ, "JOBCTL_DSN": database, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert ran.stdout.strip() == "mail"


def test_an_unknown_shell_is_refused(bare_cli: Cli) -> None:
    assert bare_cli("completion", "csh").code == 2


def test_the_first_screen_of_help_are_examples(bare_cli: Cli) -> None:
    """What people look for is there before they have to scroll."""
    lines = bare_cli("-h").out.splitlines()
    assert lines == bare_cli("--help").out.splitlines()
    assert any("jobctl run --app shop.jobs" in line for line in lines[:12])
    assert lines.index("Commands:") > 10


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["stauts"], "Did you mean status?"),
        (["jobs", "lst"], "Did you mean list?"),
        (["queues", "puase", "mail"], "Did you mean pause?"),
        (["jobs", "list", "--quue", "mail"], "--queue"),
    ],
)
def test_did_you_mean(bare_cli: Cli, typed: list[str], meant: str) -> None:
    """Of commands and of options."""
    ran = bare_cli(*typed)
    assert ran.code == 2
    assert meant in ran.err
