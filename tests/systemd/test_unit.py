"""The shipped units: what systemd says of them, and what they must share with the code and with
each other.

systemd-analyze needs no running systemd. Its trap: an unknown directive is only a line on standard
error, with exit code 0; and a program that is not installed here, which ours is not, is an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jobctl.store.durations import parse_duration
from jobctl.supervisor import service, supervisor
from jobctl.supervisor.settings import TABLE
from jobctl.supervisor.settings_sources import load
from jobctl.supervisor.stopping import WRITING_SECONDS

FOLDER = Path(__file__).parents[2] / "systemd"
UNIT = FOLDER / "jobctl.service"
TEMPLATE = FOLDER / "jobctl@.service"
MIGRATE = FOLDER / "jobctl-migrate.service"
DROP_IN = FOLDER / "jobctl.service.d" / "10-app.conf"
UNITS = [UNIT, TEMPLATE, MIGRATE]
PROGRAMS = ("ExecStart", "ExecReload")
#: Exposure times ten; Debian's own redis has 12, its postgresql 96.
MOST_EXPOSED = 20
#: What a stop takes beside the drain and the writing: kills, the last statements, closing.
CLOSING_SECONDS = 20.0


def _directives(unit: Path = UNIT) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


def _one(name: str, unit: Path = UNIT) -> str:
    (value,) = _directives(unit)[name]
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
    """The folder, with a program that exists in the place of ours."""
    folder = tmp_path / "systemd"
    shutil.copytree(FOLDER, folder)
    for unit in UNITS:
        text, programs = re.subn(r"=/opt/\S+/bin/jobctl ", "=/bin/true ", unit.read_text())
        assert programs == sum(len(_directives(unit).get(name, ())) for name in PROGRAMS)
        (folder / unit.name).write_text(text)
    return folder


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_systemd_understands_every_directive(unit: Path, runnable: Path) -> None:
    """Silence: a misspelt directive is a warning and changes no exit code."""
    said = _analyze("verify", "--man=no", runnable / unit.name)
    assert (said.returncode, said.stdout) == (0, "")


@pytest.mark.parametrize("file", [UNIT.name, f"{DROP_IN.parent.name}/{DROP_IN.name}"])
def test_the_check_would_notice_a_misspelt_directive(file: str, runnable: Path) -> None:
    """The guard of the test above, which reads the drop-in as well."""
    text = (runnable / file).read_text()
    (runnable / file).write_text(text.replace("[Service]", "[Service]\nOOMPolice=continue"))
    assert "OOMPolice" in _analyze("verify", "--man=no", runnable / UNIT.name).stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_the_unit_is_closed_up(unit: Path) -> None:
    """systemd's own measure of what a service could do if it were taken over."""
    said = _analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", unit)
    assert said.returncode == 0, said.stdout


def test_an_instance_is_the_service_under_its_own_name() -> None:
    """The two do not drift apart."""
    instance, plain = _directives(TEMPLATE), _directives(UNIT)
    renamed = {
        "Description": ["jobctl: background jobs of %i"],
        "ExecStart": ["/opt/%i/bin/jobctl run"],
        "ExecReload": ["/opt/%i/bin/jobctl reload"],
        "LoadCredential": ["dsn:/etc/jobctl/%i.dsn"],
        "Environment": ["JOBCTL_CONFIG=/etc/jobctl/%i.toml", *plain["Environment"]],
        "EnvironmentFile": ["-/etc/default/jobctl-%i"],
        "RuntimeDirectory": ["jobctl-%i"],
        "StateDirectory": ["jobctl-%i"],
        "WorkingDirectory": ["%S/jobctl-%i"],
    }
    assert instance == plain | renamed


def test_the_user_is_made_as_the_units_name_it() -> None:
    """`systemd-sysusers` understands its file."""
    program = shutil.which("systemd-sysusers")
    if program is None:
        pytest.skip("no systemd-sysusers here: apt-get install systemd")
    file = FOLDER / "jobctl.sysusers"
    said = subprocess.run(
        [program, "--dry-run", file], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    line = next(line for line in file.read_text().splitlines() if line.startswith("u "))
    assert line.split()[1] == _one("User") == _one("User", TEMPLATE) == _one("User", MIGRATE)


def test_the_variables_of_the_example_are_settings() -> None:
    """Each line can be used as it stands once its # is gone."""
    lines = [line[1:] for line in (FOLDER / "jobctl.default").read_text().splitlines()]
    given = dict(line.split("=", 1) for line in lines if line.startswith("JOBCTL_"))
    assert len(given) > 3
    loaded = load({}, given)
    assert loaded.settings.drain_timeout == 600


def test_the_watchdog_is_fed_in_time() -> None:
    """A turn comes once a second at least; a portion of time outlasts the pause between two."""
    patience = parse_duration(_one("WatchdogSec")).total_seconds()
    assert patience / service.FEEDS > 2 * supervisor.LONGEST_REST
    assert service.EXTENSION_SECONDS >= 3 * service.EXTEND_EVERY_SECONDS


def test_a_stop_is_given_more_time_than_it_takes() -> None:
    """Else systemd kills a supervisor that drains, and its jobs count as lost."""
    drain = TABLE["drain_timeout"].default({})
    limit = parse_duration(_one("TimeoutStopSec")).total_seconds()
    assert limit > drain + WRITING_SECONDS + CLOSING_SECONDS


def test_the_exit_codes_are_those_of_the_code() -> None:
    """78 is not tried again; 5 is a stop as it was asked for."""
    assert int(_one("RestartPreventExitStatus")) == supervisor.EXIT_CONFIGURATION
    assert int(_one("SuccessExitStatus")) == supervisor.EXIT_PARTLY


@pytest.mark.parametrize("unit", [UNIT, MIGRATE], ids=lambda unit: str(unit.name))
def test_every_directive_says_why(unit: Path) -> None:
    """A group of directives without an empty line stands under a comment."""
    explained = False
    for line in unit.read_text().splitlines():
        if line.startswith("#"):
            explained = True
        elif not line or line.startswith("["):
            explained = False
        elif not line.startswith(("Description=", "WantedBy=")):
            assert explained, f"nothing is said about {line}"
