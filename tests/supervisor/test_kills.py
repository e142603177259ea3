"""Incidents in which a process is killed, or dies with its job, and what is known about it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from jobctl.supervisor.exits import ExitKind
from jobctl.supervisor.listener import Notice, Reason
from jobctl.supervisor.slot import Slot, Stage
from jobctl.supervisor.strays import kill_abandoned
from tests.supervisor.fleets import (
    Ground,
    Told,
    exists,
    number_in,
    play_until_killed,
    with_fleet,
)
from tests.waiting import until


@with_fleet(slots=3)
async def test_a_job_hangs_in_c_code_that_holds_the_interpreter(ground: Ground) -> None:
    """It is killed at its deadline, the stack names the line, and its siblings work on."""
    first, second, third = await ground.ready()
    began = time.monotonic()
    number = ground.give(first, "hang_in_c", hard=0.5)
    busy = [0, 0]
    siblings = [second, third]

    def feed(slot: Slot) -> None:
        if slot in siblings:
            busy[siblings.index(slot)] += 1
            if ground.find(number) is None:
                ground.give(slot, "nothing")

    ground.on_end = feed
    for slot in siblings:
        ground.give(slot, "nothing")
    told = await ground.end_of(number)
    took = time.monotonic() - began
    assert told.what == "death" and told.slot is first
    assert told.detail.reason is Reason.TIMEOUT
    assert told.detail.started
    assert "in hang_in_c" in told.detail.stack
    assert told.detail.sentence == "killed at its hard deadline of 0.5 s"
    assert 0.5 <= took < 3.0
    assert told.detail.peak_memory_bytes > 1_000_000
    assert min(busy) > 20
    assert [exists(slot.pid) for slot in siblings] == [True, True]
    assert not exists(first.pid)
    replacement = (await ground.ready(1))[0]
    assert (replacement.number, replacement.life) > (1, 0)


@with_fleet(slots=1)
async def test_a_job_hears_no_signal(ground: Ground) -> None:
    """No stack can be had, and that delays the kill by no more than the grace."""
    (slot,) = await ground.ready()
    began = time.monotonic()
    number = ground.give(slot, "hang_deaf", hard=0.2, started=ground.path("started"))
    told = await ground.end_of(number)
    assert told.detail.reason is Reason.TIMEOUT
    assert told.detail.stack is None
    assert time.monotonic() - began < 3.0


@with_fleet(slots=1)
async def test_a_job_is_stopped_by_somebody(ground: Ground) -> None:
    """A slot under SIGSTOP is killed like any other."""
    (slot,) = await ground.ready()
    number = ground.give(slot, "hang_politely", hard=0.3, started=ground.path("started"))
    await ground.exists(ground.path("started"))
    os.kill(slot.pid, signal.SIGSTOP)
    assert (await ground.end_of(number)).detail.reason is Reason.TIMEOUT


@with_fleet(slots=1)
async def test_the_kill_wakes_the_job(ground: Ground) -> None:
    """The signal for the stack ends the call that hung; the "done" that follows comes too late."""
    (slot,) = await ground.ready()
    number = ground.give(slot, "late_word", hard=0.3, started=ground.path("started"))
    told = await ground.end_of(number)
    assert told.what == "death" and told.detail.reason is Reason.TIMEOUT


@with_fleet(slots=2, dump_quiet=0.005)
async def test_deadlines_that_come_when_the_job_ends(ground: Ground) -> None:
    """A success that is already in the socket counts; every job ends exactly once."""
    rounds, ends = 300, []
    slots = await ground.ready()
    for turn in range(rounds):
        slot = (await ground.ready(1))[0]
        number = ground.give(slot, "nothing")
        running = slot.running
        assert running is not None
        # From "not even read" to "long answered", also where slots get the processor late: the
        # loop does not read the socket meanwhile.
        time.sleep((turn % 10) * (1 + turn // 30) * 50e-6)  # noqa: ASYNC251 - just that
        killed = ground.fleet.kill(slot, Reason.TIMEOUT, token=running.token)
        assert killed != (ground.find(number) is not None)
        ends.append(number)
    told = [await ground.end_of(number) for number in ends]
    done = sum(one.what == "done" for one in told)
    dead = sum(one.what == "death" for one in told)
    assert done + dead == rounds
    assert done > 0 and dead > 0, (done, dead)
    assert len(slots) == 2


@with_fleet(slots=2)
async def test_a_real_deadline_races_the_job(ground: Ground) -> None:
    """The same with the deadlines' own alarm."""
    ended = []
    for turn in range(60):
        slot = (await ground.ready(1))[0]
        ended.append(ground.give(slot, "nothing", hard=0.0001 + turn * 0.00001))
    for number in ended:
        told = await ground.end_of(number)
        assert told.what == "done" or told.detail.reason is Reason.TIMEOUT


FREEZER = Path("/sys/fs/cgroup/freezer")
ENDS = {
    "leave 0": ("leave", {"code": 0}, ExitKind.EXITED, 0, "exited with code 0 in the middle"),
    "leave 9": ("leave", {"code": 9}, ExitKind.EXITED, 9, "exited with code 9 in the middle"),
    "abort": ("abort", {}, ExitKind.SIGNALLED, signal.SIGABRT, "SIGABRT"),
    "fault": ("fault", {}, ExitKind.SIGNALLED, signal.SIGSEGV, "a memory fault in C code"),
    "kill": ("kill_itself", {}, ExitKind.SIGNALLED, signal.SIGKILL, "out-of-memory"),
    "exec": ("become_another", {}, ExitKind.SIGNALLED, signal.SIGKILL, "execute another program"),
}


@with_fleet(slots=6)
async def test_processes_that_end_in_the_middle_of_a_job(ground: Ground) -> None:
    """None is a success, and each is told for what it was."""
    slots = await ground.ready()
    numbers = {
        name: ground.give(slot, ENDS[name][0], **ENDS[name][1])
        for name, slot in zip(ENDS, slots, strict=True)
    }
    for name, number in numbers.items():
        _, _, kind, value, words = ENDS[name]
        told = await ground.end_of(number)
        death = told.detail
        assert told.what == "death" and death.reason is Reason.CRASH, name
        assert death.exit.kind is kind, name
        assert (death.exit.code if kind is ExitKind.EXITED else death.exit.signal) == value, name
        assert words in death.sentence, name
        assert death.started, name
    stacks = {name: (await ground.end_of(number)).detail.stack for name, number in numbers.items()}
    assert "in fault" in stacks["fault"] and "in abort" in stacks["abort"]
    await ground.ready()


@with_fleet(slots=1)
async def test_a_handler_calls_sys_exit(ground: Ground) -> None:
    """That is a failure of the job, not the death of a process."""
    (slot,) = await ground.ready()
    told = await ground.end_of(ground.give(slot, "call_exit"))
    assert told.what == "ended"
    assert told.detail["error_class"] == "SystemExit"
    assert exists(slot.pid) and slot.stage is Stage.IDLE


@with_fleet(slots=1)
async def test_a_handler_closes_every_descriptor(ground: Ground) -> None:
    """Its own crash, and nobody else's."""
    (slot,) = await ground.ready()
    told = await ground.end_of(ground.give(slot, "close_everything"))
    assert told.what == "death" and told.detail.reason is Reason.CRASH
    await ground.ready()


@pytest.mark.parametrize("how", ["exec", "fork"])
def test_a_job_leaves_a_daemon(tmp_path: Path, how: str) -> None:
    """A process in a session of its own dies with the slot that started it, before it is told."""

    @with_fleet(slots=1)
    async def story(ground: Ground) -> None:
        (slot,) = await ground.ready()
        pid_file = ground.path("daemon")
        number = ground.give(slot, "leave_daemon", hard=0.5, pid_file=pid_file, how=how)
        await ground.exists(pid_file)
        daemon = number_in(pid_file)
        assert os.getsid(daemon) == daemon
        told = await ground.end_of(number)
        assert told.what == "death" and told.detail.reason is Reason.TIMEOUT
        assert not exists(daemon)

    story(tmp_path)


@with_fleet(slots=1)
async def test_a_child_holds_the_output_of_a_dead_slot(ground: Ground) -> None:
    """Neither the death nor the replacement waits for it; it dies with the slot's group."""
    (slot,) = await ground.ready()
    number = ground.give(slot, "hold_output", pid_file=ground.path("child"))
    told = await ground.end_of(number)
    assert told.detail.exit.code == 0
    child = number_in(ground.path("child"))
    await ground.until(lambda: not exists(child), "the child's end")
    await ground.ready()


@with_fleet(slots=1)
async def test_a_slot_is_killed_the_moment_it_exists(ground: Ground) -> None:
    """Only that slot dies: the group of a child that is being born is not taken for ours."""
    for turn in range(40):
        await ground.until(ground.fleet.slots, "one is asked for")
        (slot,) = ground.fleet.slots()
        while turn % 2 and not slot.pid:  # noqa: ASYNC110 - no event is as early
            await asyncio.sleep(0)
        assert ground.fleet.kill(slot, Reason.MEMORY)
        assert (await ground.death_of(slot)).reason is Reason.MEMORY


@with_fleet(slots=1)
async def test_cancel_by_force(ground: Ground) -> None:
    """The claim that is meant is killed; another one is not."""
    (slot,) = await ground.ready()
    number = ground.give(slot, "hang_politely", started=ground.path("started"))
    await ground.exists(ground.path("started"))
    assert not ground.fleet.kill(slot, Reason.CANCEL, token=number + 1)
    assert ground.fleet.kill(slot, Reason.CANCEL, token=number)
    assert ground.fleet.kill(slot, Reason.CANCEL, token=number)  # again: nothing more happens
    told = await ground.end_of(number)
    assert told.detail.reason is Reason.CANCEL
    assert "in hang_politely" in told.detail.stack


@with_fleet(slots=2)
async def test_soft_time_outs(ground: Ground) -> None:
    """Raised in the handler, again if it was swallowed, never in the job after."""
    first, second = await ground.ready()
    plain = ground.give(first, "hang_politely", soft=0.2, started=ground.path("one"))
    awaiting = ground.give(second, "hang_async", soft=0.2, started=ground.path("two"))
    for number in (plain, awaiting):
        told = await ground.end_of(number)
        assert told.what == "ended", number
        assert told.detail["outcome"] == "timeout"
        assert told.detail["error_class"] == "SoftTimeout"
    assert "in hang_politely" in (await ground.end_of(plain)).detail["stack"]
    assert "in hang_async" in (await ground.end_of(awaiting)).detail["stack"]
    told = await ground.end_of(ground.give(first, "swallow", soft=0.1, times=2))
    assert json.loads(told.detail["result"]) == "swallowed 2"
    # A signal that comes late is meant for nobody.
    gate = ground.gate()
    number = ground.give(first, "wait", started=ground.path("three"), gate=gate)
    await ground.exists(ground.path("three"))
    first.send_signal(signal.SIGUSR1)
    await ground.open_gate(gate)
    assert json.loads((await ground.end_of(number)).detail["result"]) == "go"


@with_fleet(slots=1)
async def test_a_soft_time_out_is_swallowed_for_ever(ground: Ground) -> None:
    """The hard deadline is the contract."""
    (slot,) = await ground.ready()
    number = ground.give(slot, "swallow", soft=0.1, hard=0.5, times=100)
    assert (await ground.end_of(number)).detail.reason is Reason.TIMEOUT


@with_fleet(slots=1)
async def test_a_handler_lies_about_its_start(ground: Ground) -> None:
    """A scribbled page does not move the deadline."""
    (slot,) = await ground.ready()
    number = ground.give(slot, "lie_about_start", hard=0.4, started=ground.path("started"))
    assert (await ground.end_of(number)).detail.reason is Reason.TIMEOUT


NONSENSE = {
    "an unknown kind": "ff",
    "half a frame": "02010203",
    "no JSON": "03ffff",
    "no object": "035b5d",
    "deep": "03" + (b"[" * 50_000).hex(),
    "another claim": "03" + json.dumps({"token": 99, "outcome": "succeeded"}).encode().hex(),
    "a kind of the supervisor's": "01" + "00" * 80,
    "a large frame without a file": "0b",
    "a second READY": "047b7d",
}


@with_fleet(slots=3)
async def test_slots_that_speak_nonsense(ground: Ground) -> None:
    """Each is killed as a crash of its job; the supervisor reads on."""
    for words, data in NONSENSE.items():
        slot = (await ground.ready(1))[0]
        told = await ground.end_of(ground.give(slot, "send_raw", data=data))
        assert told.what == "death" and told.detail.reason is Reason.CRASH, words
        assert "spoke nonsense" in told.detail.sentence, words


@with_fleet(slots=1)
async def test_a_job_is_given_to_a_dead_slot(ground: Ground) -> None:
    """Nothing reaches it, and the job is still the giver's."""
    (slot,) = await ground.ready()
    os.kill(slot.pid, signal.SIGKILL)
    os.waitid(os.P_PID, slot.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - before the loop sees
    with pytest.raises(AssertionError):  # `give` said no
        ground.give(slot, "nothing")
    assert slot.running is None
    told = await ground.until(lambda: ground.all("death"))
    assert isinstance(told[0], Told) and told[0].running is None


@with_fleet(slots=1)
async def test_the_supervisor_stood_still(ground: Ground) -> None:
    """After a pause of the whole machine nothing is killed before it could speak."""
    (slot,) = await ground.ready()
    gate = ground.gate()
    number = ground.give(slot, "wait", hard=0.5, started=ground.path("started"), gate=gate)
    await ground.exists(ground.path("started"))
    slot.send_signal(signal.SIGSTOP)
    # Nothing of this process runs meanwhile, as if it were stopped.
    time.sleep(3.0)  # noqa: ASYNC251
    slot.send_signal(signal.SIGCONT)
    await asyncio.sleep(0)
    await ground.open_gate(gate)
    assert (await ground.end_of(number)).what == "ended"


def test_the_supervisor_is_killed(tmp_path: Path) -> None:
    """Slots, busy and idle, and the template are gone within two seconds."""
    pids = tmp_path / "pids"

    async def story(ground: Ground) -> None:
        slots = await ground.ready()
        ground.give(slots[0], "hang_in_c", started=ground.path("c"))
        ground.give(slots[1], "hang_politely", started=ground.path("python"))
        await ground.exists(ground.path("c"))
        await ground.exists(ground.path("python"))
        template = ground.fleet._nursery.current
        assert template is not None
        pids.write_text(" ".join(str(pid) for pid in [*(s.pid for s in slots), template.pid]))
        os.kill(os.getpid(), signal.SIGKILL)

    play_until_killed(story, tmp_path, slots=3)
    everybody = [int(pid) for pid in pids.read_text().split()]
    assert len(everybody) == 4
    until(lambda: not any(exists(pid) for pid in everybody), within=2, what="all are gone")


@pytest.mark.parametrize("how", ["exec", "fork"])
def test_a_killed_supervisor_leaves_a_daemon(tmp_path: Path, how: str) -> None:
    """What a job had sent into a session of its own dies at the latest when that one starts again;
    the start of another, which works for another database say, is not its business."""

    async def first(ground: Ground) -> None:
        (slot,) = await ground.ready()
        ground.give(slot, "leave_daemon", pid_file=ground.path("daemon"), how=how)
        await ground.exists(ground.path("daemon"))
        os.kill(os.getpid(), signal.SIGKILL)

    @with_fleet(slots=1, kin="1")
    async def somebody_else(ground: Ground) -> None:
        await ground.ready()
        assert not ground.notices(Notice.LEAKED)

    @with_fleet(slots=1)
    async def second(ground: Ground) -> None:
        daemon = number_in(ground.path("daemon"))
        await ground.until(lambda: not exists(daemon), "the daemon's end", within=5)
        await ground.until(lambda: ground.notices(Notice.LEAKED), "it is told")
        await ground.ready()

    play_until_killed(first, tmp_path, slots=1)
    somebody_else(tmp_path)
    assert exists(number_in(str(tmp_path / "daemon")))
    second(tmp_path)


@with_fleet(slots=1)
async def test_another_supervisor_starts(ground: Ground) -> None:
    """Two on one machine do not take each other, or what the other's jobs started, for strays."""
    (slot,) = await ground.ready()
    ground.give(slot, "leave_daemon", pid_file=ground.path("daemon"), how="exec")
    await ground.exists(ground.path("daemon"))
    other = os.fork()
    if other == 0:
        try:
            kill_abandoned("0")
        finally:
            os._exit(0)
    os.waitpid(other, 0)  # noqa: ASYNC222 - it takes milliseconds
    assert exists(slot.pid) and exists(number_in(ground.path("daemon")))


@pytest.mark.skipif(not os.access(FREEZER, os.W_OK), reason="needs root and a freezer of cgroup v1")
@with_fleet(slots=2, unkillable_after=0.3)
async def test_a_process_that_cannot_be_killed(ground: Ground) -> None:
    """Its job ends and its seat is taken all the same; when it dies at last, it is reaped."""
    slots = await ground.ready()
    number = ground.give(slots[0], "hang_politely", hard=0.2, started=ground.path("started"))
    await ground.exists(ground.path("started"))
    group = FREEZER / f"jobctl-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(slots[0].pid))
        (group / "freezer.state").write_text("FROZEN")
        told = await ground.end_of(number)
        assert told.detail.reason is Reason.TIMEOUT
        assert told.detail.exit.kind is ExitKind.UNKNOWN
        assert exists(slots[0].pid)
        assert len(ground.notices(Notice.UNKILLABLE)) == 1
        await ground.ready()
    finally:
        (group / "freezer.state").write_text("THAWED")
        await ground.until(lambda: not exists(slots[0].pid), "its end")
        group.rmdir()
    await ground.until(lambda: not ground.fleet._mourning.unkillable, "it is reaped")
