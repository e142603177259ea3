"""The shipped unit: what systemd says of it, and what it must share with the code.

systemd-analyze needs no running systemd. Its trap: an unknown directive is only a line on standard
error, with exit code 0; and a program that is not installed here, which ours is not, is an error.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from jobctl.store.durations import parse_duration
from jobctl.supervisor import supervisor
from jobctl.supervisor.settings import TABLE
from jobctl.supervisor.stopping import WRITING_SECONDS

UNIT = Path(__file__).parents[2] / "systemd" / "jobctl.service"
PROGRAM = "/opt/jobctl/bin/jobctl"
#: Exposure times ten; Debian's own redis has 12, its postgresql 96.
MOST_EXPOSED = 20
#: What a stop takes beside the drain and the writing: kills, the last statements, closing.
CLOSING_SECONDS = 20.0


def _directives() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


def _one(name: str) -> str:
    (value,) = _directives()[name]
    return value


def _analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here: apt-get install systemd")
    return subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def runnable(tmp_path: Path) -> Path:
    """The unit with a program that exists in the place of ours."""
    text = UNIT.read_text()
    assert text.count(f"ExecStart={PROGRAM} ") == 1
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace(f"ExecStart={PROGRAM} ", "ExecStart=/bin/true "))
    return copy


def test_systemd_understands_every_directive(runnable: Path) -> None:
    """Silence: a misspelt directive is a warning and changes no exit code."""
    said = _analyze("verify", "--man=no", runnable)
    assert (said.returncode, said.stdout) == (0, "")


def test_the_check_would_notice_a_misspelt_directive(runnable: Path) -> None:
    """The guard of the test above."""
    text = runnable.read_text()
    runnable.write_text(text.replace("[Service]", "[Service]\nOOMPolice=continue"))
    assert "OOMPolice" in _analyze("verify", "--man=no", runnable).stdout


def test_the_unit_is_closed_up() -> None:
    """systemd's own measure of what a service could do if it were taken over."""
    said = _analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", UNIT)
    assert said.returncode == 0, said.stdout


def test_a_stop_is_given_more_time_than_it_takes() -> None:
    """Else systemd kills a supervisor that drains, and its jobs count as lost."""
    drain = TABLE["drain_timeout"].default({})
    limit = parse_duration(_one("TimeoutStopSec")).total_seconds()
    assert limit > drain + WRITING_SECONDS + CLOSING_SECONDS


def test_the_exit_codes_are_those_of_the_code() -> None:
    """78 is not tried again; 5 is a stop as it was asked for."""
    assert int(_one("RestartPreventExitStatus")) == supervisor.EXIT_CONFIGURATION
    assert int(_one("SuccessExitStatus")) == supervisor.EXIT_PARTLY


def test_variables_are_settings() -> None:
    """A name that no setting has would be ignored, or refused at the start."""
    ours = [value for value in _directives()["Environment"] if value.startswith("JOBCTL_")]
    names = {value.split("=", 1)[0] for value in ours}
    assert names == {TABLE["dsn_file"].environment}


def test_every_directive_says_why() -> None:
    """A group of directives without an empty line stands under a comment."""
    explained = False
    for line in UNIT.read_text().splitlines():
        if line.startswith("#"):
            explained = True
        elif not line or line.startswith("["):
            explained = False
        elif not line.startswith(("Description=", "WantedBy=")):
            assert explained, f"nothing is said about {line}"
