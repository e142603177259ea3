"""One run: one system, one scenario, in a process of its own that leaves nothing behind.

    python -m tests.compare.run ORDER

The order is JSON and so is the answer, on standard output. The process is the subreaper of all
that it starts, whatever that forks or forgets, and ends it all before it ends itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from jobctl.bench.processes import descendants
from tests.compare.apps.desk import Record
from tests.compare.apps.terms import Terms
from tests.compare.diary import Diary
from tests.compare.host import Host
from tests.compare.result import CulpritResult, PauseResult, Result, StopResult
from tests.compare.roster import SYSTEMS, System
from tests.compare.scenarios import (
    BY_NAME,
    PAUSE_PATIENCE,
    QUICK,
    STOP_PATIENCE,
    TOLERANCE,
    Kind,
    Scenario,
    window,
)
from tests.system.host import alive

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

ROOT = Path(__file__).resolve().parents[2]
NAP = 0.05
READY = 40.0
PICKED_UP = 20.0
MOST_GAUGES = 24
GAUGE_EVERY = 0.1
AFTER_THE_WAKE = 3.0  # what woke up is given this long to write


class RunError(Exception):
    """Why there is no result."""


@dataclass(frozen=True)
class Order:
    """What is to be run."""

    system: System
    scenario: Scenario
    terms: Terms
    python: str
    redis_server: str

    def to_json(self) -> str:
        terms = {**asdict(self.terms), "folder": str(self.terms.folder)}
        names = {"system": self.system.name, "scenario": self.scenario.name}
        return json.dumps(
            {**names, "terms": terms, "python": self.python, "redis_server": self.redis_server}
        )

    @classmethod
    def from_json(cls, text: str) -> Order:
        given = json.loads(text)
        terms = Terms(**{**given["terms"], "folder": Path(given["terms"]["folder"])})
        (system,) = [each for each in SYSTEMS if each.name == given["system"]]
        scenario = BY_NAME[given["scenario"]]
        return cls(system, scenario, terms, given["python"], given["redis_server"])


class Ground:
    """The system under test: its hosts, its desk and the diary of its jobs."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.terms = order.terms
        self.hosts: list[Host] = []
        self._environment = {**_clean_environment(), **self.terms.environment()}
        with (self.terms.folder / "desk.log").open("ab") as log:
            self._desk = subprocess.Popen(
                [order.python, "-c", f"from {order.system.app} import desk; desk()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=self.terms.folder,
                text=True,
            )
        self._answer()

    def start(self, name: str) -> Host:
        """A host of this name."""
        (self.terms.folder / name).mkdir(mode=0o700)
        words = {
            "python": self.order.python,
            "host": name,
            "folder": str(self.terms.folder),
            "dsn": self.terms.dsn,
            "redis": self.terms.redis,
            "slots": f"{self.terms.slots}",
            "grace": f"{self.terms.grace:g}",
            "stale": f"{self.terms.stale:g}",
        }
        commands = [unit.format(**words) for unit in self.order.system.units]
        host = Host(name, commands, self._environment, self.terms.folder, self.terms.folder)
        self.hosts.append(host)
        return host

    def enqueue(self, name: str, deed: str, *, limited: bool = False) -> str:
        told = self._ask(ask="enqueue", name=name, deed=deed, limited=limited)
        return str(told["id"])

    def look(self, job: str) -> Record:
        return Record(**self._ask(ask="look", id=job))

    def diary(self) -> Diary:
        return Diary.read(self.terms.folder)

    def go(self, name: str) -> None:
        """Lets the jobs that wait for this go on."""
        (self.terms.folder / f"{name}.go").touch()

    def watch(self, fact: Callable[[], bool], within: float) -> bool:
        """Keeps the hosts running until the fact is there; False when it is not in time."""
        end = monotonic() + within
        while not fact():
            if monotonic() > end:
                return False
            for host in self.hosts:
                host.tick()
            time.sleep(NAP)
        return True

    def expect(self, fact: Callable[[], bool], within: float, what: str) -> None:
        """The same for what every system must be able to do."""
        if not self.watch(fact, within):
            raise RunError(f"{what}: not within {within:g} s; see the logs in {self.terms.folder}")

    def _ask(self, **asked: Any) -> dict[str, Any]:
        assert self._desk.stdin is not None
        self._desk.stdin.write(json.dumps(asked) + "\n")
        self._desk.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._desk.stdout is not None
        line = self._desk.stdout.readline()
        if not line:
            said = (self.terms.folder / "desk.log").read_text(errors="replace").strip()
            last = said.splitlines()[-1:] or ["nothing"]
            raise RunError(f"the client of {self.order.system.name} ended and said: {last[0]}")
        return dict(json.loads(line))


def tell(order: Order) -> Result:
    """Runs the scenario on a ground of its own."""
    ground = Ground(order)
    host = ground.start("a")
    ground.enqueue("warm", "quick")
    ground.expect(lambda: bool(ground.diary().times("warm", "end")), READY, "the first job")
    match order.scenario.kind:
        case Kind.CULPRIT:
            return _culprit(ground, host)
        case Kind.STOP:
            return _stop(ground, host)
        case Kind.PAUSE:
            return _pause(ground, host)


def _culprit(ground: Ground, host: Host) -> CulpritResult:
    order, terms = ground.order, ground.terms
    ground.enqueue("slow", "slow")
    ground.expect(lambda: ground.diary().runs("slow") > 0, PICKED_UP, "the slow job")
    culprit = ground.enqueue("culprit", order.scenario.deed, limited=True)
    ground.expect(lambda: ground.diary().runs("culprit") > 0, PICKED_UP, "the culprit")
    quick = [f"quick-{at}" for at in range(1, QUICK + 1)]
    quick_at = monotonic()
    for name in quick:
        ground.enqueue(name, "quick")
    watcher = _Watcher(ground, culprit, ["slow", *quick])
    begun = monotonic()
    ground.watch(watcher.turn, window(order.system, order.scenario, terms))
    diary, record = ground.diary(), ground.look(culprit)
    due = {"slow": (diary.first("slow") or 0.0) + terms.slow, **dict.fromkeys(quick, quick_at)}
    return CulpritResult(
        runs=diary.runs("culprit"),
        most_at_once=watcher.most_at_once,
        word=record.word,
        over=record.over,
        succeeded=record.succeeded,
        slot_back=watcher.slot_back,
        watched=monotonic() - begun,
        hurt=[name for name, at in due.items() if _hurt(diary, name, at)],
        restarts=sum(unit.restarts for unit in host.units),
    )


class _Watcher:
    """Watches a culprit, and measures with gauges when the slot that it had is back.

    A gauge keeps a slot. As long as fewer jobs run than there are slots, not counting the
    culprit's own runs, there is always one more gauge in the queue: so the moment at which as many
    run as there are slots is the moment at which none is lost any more.
    """

    def __init__(self, ground: Ground, culprit: str, bystanders: list[str]) -> None:
        self._ground = ground
        self._culprit = culprit
        self._bystanders = bystanders
        self._gauges = 0
        self._next_gauge = monotonic() + 0.5  # the quick jobs come first
        self._next_look = 0.0
        self._over = False
        self.slot_back: float | None = None
        self.most_at_once = 0

    def turn(self) -> bool:
        """Looks around; True when there is nothing more to be seen."""
        diary = self._ground.diary()
        running = diary.running(lambda pid: bool(alive([pid])))
        self.most_at_once = max(self.most_at_once, running.get("culprit", 0))
        others = sum(count for name, count in running.items() if name != "culprit")
        if self.slot_back is None:
            self._measure(diary, others)
        settled = all(diary.times(name, "end") or diary.runs(name) > 1 for name in self._bystanders)
        return self.slot_back is not None and settled and self._is_over(diary)

    def _measure(self, diary: Diary, others: int) -> None:
        if others >= self._ground.terms.slots:
            begun = diary.first("culprit", "dies") or diary.first("culprit")
            last = max(line.at for line in diary.lines if line.name.startswith("gauge"))
            self.slot_back = max(0.0, last - (begun or 0.0))
            self._ground.go("gauges")
        elif monotonic() >= self._next_gauge and self._gauges < MOST_GAUGES:
            if self._gauges == 0 or diary.runs(f"gauge-{self._gauges}"):
                self._gauges += 1
                self._ground.enqueue(f"gauge-{self._gauges}", "gauge")
            self._next_gauge = monotonic() + GAUGE_EVERY

    def _is_over(self, diary: Diary) -> bool:
        if diary.runs("culprit") >= self._ground.terms.tries + 3:
            return True  # nobody counts
        if not self._over and monotonic() >= self._next_look:
            self._over = self._ground.look(self._culprit).over
            self._next_look = monotonic() + 0.5
        return self._over


def _hurt(diary: Diary, name: str, due: float) -> bool:
    ends = diary.times(name, "end")
    return diary.runs(name) != 1 or len(ends) != 1 or ends[0] > due + TOLERANCE


def _stop(ground: Ground, host: Host) -> StopResult:
    ground.enqueue("culprit", ground.order.scenario.deed, limited=True)
    ground.expect(lambda: ground.diary().runs("culprit") > 0, PICKED_UP, "the culprit")
    time.sleep(1.0)  # nobody can tell from outside that it hangs by now
    pids = host.pids()
    host.stop()
    begun = monotonic()
    gone = ground.watch(host.gone, STOP_PATIENCE)
    after = monotonic() - begun
    return StopResult(after if gone else None, len(alive(pids)) if gone else 0)


def _pause(ground: Ground, host: Host) -> PauseResult:
    job = ground.enqueue("held", "held")
    ground.expect(lambda: ground.diary().runs("held") > 0, PICKED_UP, "the job")
    _freeze(host)
    begun = monotonic()
    ground.start("b")
    if not ground.watch(lambda: ground.diary().runs("held") > 1, PAUSE_PATIENCE):
        return PauseResult(None, None, ground.look(job).word)
    again_after = monotonic() - begun
    first = ground.diary().pid_of_run("held", 1)
    ground.go("held.1")  # the first run is done as soon as it wakes
    for pid in host.pids():
        _send(pid, signal.SIGCONT)
    ground.watch(lambda: bool(ground.diary().times("held", "end")) or not alive([first]), PICKED_UP)
    ground.watch(lambda: ground.look(job).over, AFTER_THE_WAKE)
    found = ground.look(job)
    return PauseResult(again_after, not found.over, found.word)


def _freeze(host: Host) -> None:
    """All of its processes, those included that are forked meanwhile."""
    frozen: set[int] = set()
    while pids := set(host.pids()) - frozen:
        for pid in pids:
            _send(pid, signal.SIGSTOP)
        frozen |= pids


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _clean_environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PG", "JOBCTL_", "OBAN_", "CELERY_", "RQ_", "COMPARE_", "PYTEST"))
        and name not in ("DATABASE_URL", "PYTHONHOME", "VIRTUAL_ENV")
    }
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@contextmanager
def _redis(order: Order) -> Iterator[Terms]:
    """The terms with a Redis of this run's own in them, if the system needs one."""
    terms = order.terms
    if not order.system.redis:
        yield terms
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        order.redis_server, "--bind", "127.0.0.1", "--port", str(port), "--save", "",
        "--appendonly", "no", "--dir", str(terms.folder),
    ]  # fmt: skip
    with (terms.folder / "redis.log").open("ab") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        end = monotonic() + READY
        while not _listens(port):
            if server.poll() is not None or monotonic() > end:
                raise RunError(f"redis-server did not start; see {terms.folder}/redis.log")
            time.sleep(NAP)
        yield Terms(**{**asdict(terms), "redis": f"redis://127.0.0.1:{port}/0"})
    finally:
        server.terminate()
        server.wait(timeout=READY)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextmanager
def _nothing_left() -> Iterator[None]:
    """Whatever was started below this process is gone when the block is."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while left := alive(descendants(os.getpid())):
            for pid in left:
                _send(pid, signal.SIGKILL)
            time.sleep(NAP)


def main() -> int:
    """Prints {"kind", "result"} or {"error"}."""
    order = Order.from_json(sys.argv[1])
    with _nothing_left(), ExitStack() as stack:
        try:
            terms = stack.enter_context(_redis(order))
            order = Order(order.system, order.scenario, terms, order.python, order.redis_server)
            result = tell(order)
        except RunError as error:
            answer: dict[str, Any] = {"error": str(error)}
        else:
            answer = {"kind": type(result).__name__, "result": asdict(result)}
        print(json.dumps(answer), flush=True)  # noqa: T201 - the answer
    return 0


if __name__ == "__main__":
    sys.exit(main())
