"""What is told to systemd, how, and what is never told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import pytest

from jobctl.supervisor.notify import VARIABLES, Notify
from jobctl.supervisor.reload import Progress, Step
from jobctl.supervisor.service import AGAIN_SECONDS, EXTEND_EVERY_SECONDS, FEEDS, Service
from jobctl.supervisor.stopping import Stop


class Manager:
    """The other end of $NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def heard(self) -> list[dict[str, str]]:
        """Every message since the last time."""
        messages: list[dict[str, str]] = []
        while True:
            try:
                text = self._socket.recv(65536).decode()
            except BlockingIOError:
                return messages
            messages.append(dict(line.split("=", 1) for line in text.splitlines()))

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["a path", "an abstract name"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """Both kinds of address that systemd uses."""
    abstract = f"@jobctl-test-{os.getpid()}-{tmp_path.name}"
    made = Manager(str(tmp_path / "notify") if request.param == "a path" else abstract)
    yield made
    made.close()


def test_one_message_with_all_that_is_said(manager: Manager) -> None:
    """A line for each, and no more lines than that, whatever is in the words."""
    assert Notify(manager.address).tell(READY=1, STATUS="two\nWATCHDOG=1\x00 ü")
    assert manager.heard() == [{"READY": "1", "STATUS": "two WATCHDOG=1  ü"}]


def test_children_cannot_speak_for_the_supervisor(manager: Manager) -> None:
    """The variables are gone from the environment that they would inherit."""
    environment = {**os.environ, "NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "30000000",
                   "WATCHDOG_PID": str(os.getpid())}  # fmt: skip
    notify = Notify.of(environment)
    assert notify.listens and notify.watchdog == 30
    assert not set(VARIABLES) & environment.keys()
    told = subprocess.run(
        [sys.executable, "-c", "import os; print(os.environ.get('NOTIFY_SOCKET'))"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == "None"


@pytest.mark.parametrize(
    ("environment", "watchdog"),
    [
        ({"WATCHDOG_USEC": "5000000"}, 5.0),
        ({"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "often"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_ours_only_if_it_says_so(
    environment: dict[str, str], watchdog: float | None
) -> None:
    """It may be meant for a wrapper that has started us."""
    assert Notify.of({"NOTIFY_SOCKET": "/nowhere", **environment}).watchdog == watchdog


@pytest.mark.parametrize("address", [None, "", "vsock:2:1234", "/nowhere/at/all"])
def test_nobody_listens(address: str | None) -> None:
    """That is no error and takes no time."""
    notify = Notify.of({} if address is None else {"NOTIFY_SOCKET": address})
    assert notify.tell(READY=1) is False


def test_a_manager_that_does_not_read_is_not_waited_for(manager: Manager) -> None:
    """Its queue is full: the answer is False, at once."""
    notify = Notify(manager.address)
    begun = monotonic()
    while notify.tell(STATUS="x" * 1000):
        assert monotonic() - begun < 30
    assert manager.heard()
    assert notify.tell(STATUS="again")


@dataclass
class Supervisor:
    """What the service is told about."""

    started: bool = False
    error: str | None = None
    progress: Progress = field(default_factory=Progress)
    line: str = "0 of 2 slots busy"

    def has_started(self) -> bool:
        return self.started

    def load_error(self) -> str | None:
        return self.error

    def reload_progress(self) -> Progress:
        return self.progress

    def headline(self, now: float) -> str:
        return self.line


@pytest.fixture
def stop() -> Stop:
    return Stop()


@pytest.fixture
def facts() -> Supervisor:
    return Supervisor()


@pytest.fixture
def service(manager: Manager, facts: Supervisor, stop: Stop) -> Service:
    """Its clock begins at 0; the app may take 60 s to be imported."""
    return Service(Notify(manager.address, watchdog=8.0), facts, stop, 60.0, 0.0)


def test_ready_is_said_once(service: Service, facts: Supervisor, manager: Manager) -> None:
    """And not before."""
    service.turned(0.0)
    assert all("READY" not in said for said in manager.heard())
    facts.started = True
    service.turned(1.0)
    service.turned(1.1)
    ready = [said for said in manager.heard() if "READY" in said]
    assert [said["READY"] for said in ready] == ["1"]
    facts.started = False  # slots may all be gone for a moment later: it has started
    service.turned(20.0)
    assert all("READY" not in said for said in manager.heard())


def test_only_a_turn_feeds_the_watchdog(service: Service, manager: Manager) -> None:
    """As often as is needed, and no word without a turn."""
    fed = []
    for tenth in range(100):
        service.turned(tenth / 10)
        fed += [tenth / 10 for said in manager.heard() if said.get("WATCHDOG") == "1"]
    assert fed == pytest.approx([each * 8.0 / FEEDS for each in range(len(fed))], abs=0.11)
    assert len(fed) == 5
    assert service.next_due() == pytest.approx(fed[-1] + 8.0 / FEEDS)


def test_the_status_line_is_told_when_it_changes(
    service: Service, facts: Supervisor, manager: Manager
) -> None:
    """Not each time that it is looked at, and not more often than people can read."""
    lines = []
    for tenth in range(100):
        facts.line = "0 of 2 slots busy" if tenth < 50 else f"{tenth} of 100 slots busy"
        service.turned(tenth / 10)
        lines += [said["STATUS"] for said in manager.heard() if "STATUS" in said]
    assert lines[0] == "0 of 2 slots busy"
    assert 2 <= len(lines) <= 5


def test_a_reload_is_told_when_it_begins_and_when_it_is_decided(
    service: Service, facts: Supervisor, manager: Manager
) -> None:
    """Also one that failed before the turn was over: who asked waits for both words."""
    facts.started = True
    service.turned(0.0)
    manager.heard()
    facts.progress = Progress(1, 1, Step.LOADING)
    service.turned(1.0)
    facts.progress = Progress(1, 1, Step.RELIEVING, None, 3)
    service.turned(2.0)
    told = [word for said in manager.heard() for word in said if word in ("RELOADING", "READY")]
    assert told == ["RELOADING", "READY"]
    facts.progress = Progress(2, 2, Step.OVER, "its template could not be started")
    service.turned(3.0)
    assert service.next_due() < 3.1  # the second word must not wait for a turn
    service.turned(3.1)
    told = [word for said in manager.heard() for word in said if word in ("RELOADING", "READY")]
    assert told == ["RELOADING", "READY"]


def test_more_time_to_start_is_asked_for_while_there_is_hope(
    service: Service, facts: Supervisor, manager: Manager
) -> None:
    """An import may take its time; one that has failed asks for no more."""
    for second in range(0, 20, 5):
        service.turned(float(second))
    assert sum("EXTEND_TIMEOUT_USEC" in said for said in manager.heard()) == 4
    facts.error = "ImportError: no module named shop"
    for second in range(20, 40, 5):
        service.turned(float(second))
    assert all("EXTEND_TIMEOUT_USEC" not in said for said in manager.heard())
    facts.error = None
    service.turned(1000.0)  # longer than any setting allows
    assert all("EXTEND_TIMEOUT_USEC" not in said for said in manager.heard())


def test_more_time_to_stop_is_asked_for_until_patience_is_over(
    service: Service, facts: Supervisor, stop: Stop, manager: Manager
) -> None:
    """At once, because TimeoutStopSec may be short; and not for ever."""
    facts.started = True
    service.turned(0.0)
    service.turned(99.0)
    manager.heard()
    stop.begin("SIGTERM", 100.0, 300.0)
    service.turned(100.0)
    (said,) = manager.heard()
    assert said["STOPPING"] == "1" and "EXTEND_TIMEOUT_USEC" in said
    service.turned(100.0 + EXTEND_EVERY_SECONDS)
    assert any("EXTEND_TIMEOUT_USEC" in said for said in manager.heard())
    service.turned(1000.0)
    assert all("EXTEND_TIMEOUT_USEC" not in said for said in manager.heard())


def test_what_did_not_arrive_is_told_again(facts: Supervisor, stop: Stop, tmp_path: Path) -> None:
    """A manager that was not there for a moment does not miss READY; and nobody spins meanwhile."""
    address = str(tmp_path / "later")
    service = Service(Notify(address, watchdog=8.0), facts, stop, 60.0, 0.0)
    facts.started = True
    service.turned(0.0)
    assert service.next_due() == pytest.approx(AGAIN_SECONDS)
    manager = Manager(address)
    service.turned(AGAIN_SECONDS)
    assert manager.heard()[0]["READY"] == "1"
    manager.close()


def test_without_a_manager_nothing_is_asked(facts: Supervisor, stop: Stop) -> None:
    """On a laptop it costs nothing, and wakes nobody."""
    service = Service(Notify(), facts, stop, 60.0, 0.0)
    service.turned(0.0)
    service.closing()
    assert service.next_due() == float("inf")
