"""Newer code takes over, seat by seat, or not at all."""

from __future__ import annotations

import json
import os
import signal

from jobctl.supervisor.listener import Notice, Reason
from jobctl.supervisor.slot import Slot, Stage
from tests.supervisor.fleets import Ground, exists, with_fleet

APP = """
from jobctl.workerproc.job import job
@job
def version(ctx): return {version}
@job
def wait(ctx, started, gate):
    open(started, "w").close()
    return open(gate).read() and {version}
"""


def _write(ground: Ground, text: str) -> None:
    path = ground.folder / "shop.py"
    path.write_text(text)


async def _version(ground: Ground, slot: Slot) -> int:
    told = await ground.end_of(ground.give(slot, "version"))
    return int(json.loads(told.detail["result"]))


async def _start(ground: Ground) -> list[Slot]:
    _write(ground, APP.format(version=1))
    ground.fleet.start()
    return await ground.ready()


@with_fleet(slots=4, app="shop", started=False)
async def test_newer_code_takes_over(ground: Ground) -> None:
    """Idle slots are relieved, a busy one ends its job first, and work never lacks a slot."""
    slots = await _start(ground)
    gate = ground.gate()
    number = ground.give(slots[0], "wait", started=ground.path("started"), gate=gate)
    await ground.exists(ground.path("started"))
    _write(ground, APP.format(version=2))
    ground.fleet.reload()
    fewest = len(ground.fleet.idle_slots())

    def relieved() -> bool:
        nonlocal fewest
        fewest = min(fewest, len(ground.fleet.idle_slots()))
        idle = ground.fleet.idle_slots()
        return len(idle) == 3 and all(slot.generation == 2 for slot in idle)

    await ground.until(relieved, "the idle ones are relieved")
    assert fewest == 3
    assert slots[0].stage is Stage.BUSY and exists(slots[0].pid)
    assert [await _version(ground, slot) for slot in ground.fleet.idle_slots()] == [2, 2, 2]
    await ground.open_gate(gate)
    assert json.loads((await ground.end_of(number)).detail["result"]) == 1
    after = await ground.ready()
    assert {slot.generation for slot in after} == {2}
    assert sorted(slot.number for slot in after) == [1, 2, 3, 4]
    await ground.until(lambda: ground.notices(Notice.RELOADED), "the end is told")
    assert {told.detail.reason for told in ground.all("death")} == {Reason.RELOAD}
    assert [told.detail for told in ground.all("types")] == [1, 2]


@with_fleet(slots=2, app="shop", started=False)
async def test_the_new_code_cannot_be_imported(ground: Ground) -> None:
    """The old slots go on as if nothing had been, and the next reload works."""
    slots = await _start(ground)
    _write(ground, "1 / 0")
    ground.fleet.reload()
    await ground.until(lambda: ground.notices(Notice.RELOAD_FAILED), "it failed")
    (failure,) = [told.detail for told in ground.all("load_failed")]
    assert failure.reloading and "ZeroDivisionError" in failure.message
    assert ground.fleet.idle_slots() == slots
    assert [await _version(ground, slot) for slot in slots] == [1, 1]
    # The old template still forks slots of the old code.
    os.kill(slots[0].pid, signal.SIGKILL)
    await ground.death_of(slots[0])
    assert [await _version(ground, slot) for slot in await ground.ready()] == [1, 1]
    _write(ground, APP.format(version=3))
    ground.fleet.reload()
    await ground.until(lambda: ground.notices(Notice.RELOADED), "the second one")
    assert [await _version(ground, slot) for slot in await ground.ready()] == [3, 3]


@with_fleet(slots=2, app="shop", started=False, preload=False)
async def test_the_first_new_slot_does_not_come_up(ground: Ground) -> None:
    """The import works nowhere but in the slot: there it is found out, and nothing changes."""
    slots = await _start(ground)
    _write(ground, "import os; os._exit(3)")
    ground.fleet.reload()
    await ground.until(lambda: ground.notices(Notice.RELOAD_FAILED), "it failed")
    assert ground.fleet.idle_slots() == slots
    assert not ground.fleet.degraded


@with_fleet(slots=1, app="shop", started=False)
async def test_a_reload_while_the_only_slot_is_busy(ground: Ground) -> None:
    """The heir is ready and waits; it is offered when the job has ended."""
    (slot,) = await _start(ground)
    gate = ground.gate()
    ground.give(slot, "wait", started=ground.path("started"), gate=gate)
    await ground.exists(ground.path("started"))
    _write(ground, APP.format(version=2))
    ground.fleet.reload()
    await ground.until(lambda: len(ground.notices(Notice.SLOT_READY)) == 2, "the heir is ready")
    assert ground.fleet.idle_slots() == []
    await ground.open_gate(gate)
    (after,) = await ground.ready()
    assert after is not slot and await _version(ground, after) == 2


@with_fleet(slots=2, app="shop", started=False)
async def test_reloads_in_a_row(ground: Ground) -> None:
    """However often it is asked for, the newest code is what runs in the end."""
    await _start(ground)
    for version in range(2, 6):
        _write(ground, APP.format(version=version))
        ground.fleet.reload()
        if version % 2:
            await ground.until(lambda: ground.fleet._nursery.next is None, "it is decided")

    def settled() -> bool:
        slots = ground.fleet.slots()
        return len(slots) == 2 and len({slot.generation for slot in slots}) == 1

    await ground.until(lambda: settled() and ground.fleet._reload is not None and
                       ground.fleet._reload.step.value == "over", "peace")  # fmt: skip
    assert [await _version(ground, slot) for slot in await ground.ready()] == [5, 5]


@with_fleet(slots=2, app="shop", started=False)
async def test_a_stop_during_a_reload(ground: Ground) -> None:
    """Everything of both generations is gone."""
    await _start(ground)
    ground.fleet.reload()
    await ground.until(lambda: len(ground.fleet.slots()) > 2, "an heir is asked for")
    await ground.fleet.end()
    assert ground.fleet.empty
