"""What `jobctl doctor` sees of a host: its unit, its clock, its limits."""

from __future__ import annotations

import os
import time

import pytest

from jobctl.cli import host_health
from jobctl.cli.host_health import Local
from jobctl.store.finding import Level
from jobctl.store.reading import Connection

#: As `systemctl show` of systemd 252 prints it.
SHOWN = """\
Type=notify
RestartPreventExitStatus=78
NRestarts=0
Result=success
OOMPolicy=continue
KillMode=mixed
Id=jobctl.service
LoadState=loaded
ActiveState=active
SubState=running
"""


def test_a_unit_as_ours_is_fine() -> None:
    """So is none at all, and the one that only migrates is not looked at."""
    (one,) = host_health.units(SHOWN)
    assert (one.level, one.fact) == (Level.FINE, "jobctl.service is active")
    assert host_health.units("") == []
    assert host_health.units(SHOWN.replace("LoadState=loaded", "LoadState=not-found")) == []
    assert host_health.units(SHOWN.replace("Type=notify", "Type=oneshot")) == []


@pytest.mark.parametrize(
    ("was", "is_", "level", "said"),
    [
        ("KillMode=mixed", "KillMode=control-group", Level.WRONG, "KillMode=mixed"),
        ("OOMPolicy=continue", "OOMPolicy=stop", Level.WRONG, "OOMPolicy=continue"),
        ("ActiveState=active", "ActiveState=failed", Level.WRONG, "journalctl -u jobctl.service"),
        ("NRestarts=0", "NRestarts=12", Level.NOTE, "journalctl"),
        ("RestartPreventExitStatus=78", "RestartPreventExitStatus=", Level.NOTE, "=78"),
    ],
)
def test_a_unit_that_is_otherwise(was: str, is_: str, level: Level, said: str) -> None:
    """Each of several units is told by its name."""
    other = SHOWN.replace("jobctl.service", "jobctl@shop.service")
    found = host_health.units(SHOWN.replace(was, is_) + "\n" + other)
    assert [one.level for one in found] == [level, Level.FINE]
    assert said in found[0].advice
    assert "jobctl@shop.service" in found[1].fact


@pytest.mark.parametrize(("off", "word"), [(90, "ahead of"), (-90, "behind")])
def test_a_clock_that_is_wrong(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, off: int, word: str
) -> None:
    """Nothing depends on it but people."""
    assert host_health.clock(connection).level is Level.FINE
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + off)
    found = host_health.clock(connection)
    assert found.level is Level.NOTE
    assert f"{word} the database's" in found.fact


def test_too_few_open_files() -> None:
    """For the slots that run, or for those that would."""
    me = Local(os.getpid(), [os.getpid()])
    assert host_health.files([me], 1).level is Level.FINE
    many = Local(os.getpid(), [os.getpid()] * 10**7)
    assert host_health.files([me, many], 1).level is Level.WRONG
    assert "LimitNOFILE=" in host_health.files([], 10**7).advice


def test_slots_that_do_not_fit_into_memory() -> None:
    """By the largest that was, a type's ceiling, or the setting; whichever is most."""
    me = Local(os.getpid(), [os.getpid()] * 4)
    nothing = {"largest": None, "type": None}
    assert host_health.memory(me, nothing, None).level is Level.FINE
    greedy = {"largest": 2**50, "type": "render"}
    found = host_health.memory(me, greedy, None)
    assert found.level is Level.NOTE
    assert "as render may become" in found.fact
    assert "max_rss_per_slot" in host_health.memory(me, nothing, 2**50).fact
