"""What is done on a ground, scenario by scenario, and what it shows."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from time import monotonic

from tests.compare.diary import Diary
from tests.compare.ground import Ground
from tests.compare.host import Host
from tests.compare.order import Order
from tests.compare.result import CulpritResult, PauseResult, Result, StopResult
from tests.compare.scenarios import (
    PAUSE_PATIENCE,
    QUICK,
    STOP_PATIENCE,
    TOLERANCE,
    Kind,
    window,
)
from tests.compare.slot_gauge import Watcher
from tests.system.host import alive

READY = 40.0
PICKED_UP = 20.0
AFTER_THE_WAKE = 3.0  # what woke up is given this long to write


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
    watcher = Watcher(ground, culprit, ["slow", *quick])
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
