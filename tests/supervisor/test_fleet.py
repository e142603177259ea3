"""Incidents of slots and templates, and that the fleet is whole again afterwards."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from pathlib import Path

from jobctl.supervisor.exits import ExitKind
from jobctl.supervisor.listener import LoadFailure, Notice, Reason
from jobctl.supervisor.slot import Stage
from tests.supervisor.fleets import Ground, descriptors, exists, with_fleet


@with_fleet(slots=3)
async def test_slots_become_ready_and_run(ground: Ground) -> None:
    """Types are told before the first slot; every slot runs what it is given."""
    slots = await ground.ready()
    whats = [told.what for told in ground.told]
    assert whats.index("types") < whats.index("idle")
    assert "nothing" in [one.name for one in ground.types]
    assert sorted(slot.number for slot in slots) == [1, 2, 3]
    numbers = [ground.give(slot, "nothing") for slot in slots]
    for number in numbers:
        told = await ground.end_of(number)
        assert told.what == "done"
        assert told.slot is not None and told.slot.stage is Stage.IDLE


@with_fleet(slots=2)
async def test_the_template_dies(ground: Ground) -> None:
    """No slot notices; another template comes, and new slots are forked from that."""
    slots = await ground.ready()
    template = ground.fleet._nursery.current
    assert template is not None
    gate = ground.gate()
    number = ground.give(slots[0], "wait", started=ground.path("started"), gate=gate)
    await ground.exists(ground.path("started"))
    os.kill(template.pid, signal.SIGKILL)
    await ground.until(lambda: ground.notices(Notice.TEMPLATE_LOST), "the loss is told")
    assert "nobody here sent it" in ground.notices(Notice.TEMPLATE_LOST)[0]
    assert exists(slots[0].pid) and exists(slots[1].pid)
    await ground.until(lambda: len(ground.all("types")) == 2, "another template")
    await ground.open_gate(gate)
    assert (await ground.end_of(number)).what == "ended"
    os.kill(slots[1].pid, signal.SIGKILL)
    await ground.death_of(slots[1])
    after = await ground.ready()
    assert slots[0] in after
    assert max(slot.generation for slot in after) == 2


@with_fleet(slots=2)
async def test_an_idle_slot_is_killed(ground: Ground) -> None:
    """Another takes its seat soon; the one beside it keeps its process."""
    first, second = await ground.ready()
    os.kill(first.pid, signal.SIGKILL)
    death = await ground.death_of(first)
    assert death.reason is Reason.CRASH
    assert death.exit.kind is ExitKind.SIGNALLED and death.exit.signal == signal.SIGKILL
    assert "out-of-memory" in death.sentence
    assert not death.started
    after = await ground.ready()
    assert {slot.number for slot in after} == {1, 2}
    assert second in after and first not in after
    assert first.stage is Stage.GONE


@with_fleet(slots=16)
async def test_all_slots_die_at_once(ground: Ground) -> None:
    """Each end is attributed, none stays a zombie, and every seat is taken again."""
    slots = await ground.ready()
    pids = [slot.pid for slot in slots]
    for number, slot in enumerate(slots):
        os.kill(slot.pid, signal.SIGKILL if number % 2 else signal.SIGSEGV)
    for number, slot in enumerate(slots):
        death = await ground.death_of(slot)
        assert death.exit.signal == (signal.SIGKILL if number % 2 else signal.SIGSEGV)
    assert not zombies() and not any(exists(pid) for pid in pids)
    assert not set(await ground.ready()) & set(slots)


@with_fleet(slots=2, healthy_after=60.0)
async def test_slots_die_again_and_again(ground: Ground) -> None:
    """A loop of crashes starts few processes: the seats wait longer and longer."""
    until = time.monotonic() + 3.0
    crashes = 0

    def enough() -> bool:  # a busy machine makes few of them in that time
        return time.monotonic() > until and crashes >= 4

    while not enough():
        for slot in ground.fleet.idle_slots():
            os.kill(slot.pid, signal.SIGKILL)
            await ground.death_of(slot)
            crashes += 1
        await ground.until(lambda: ground.fleet.idle_slots() or enough())
    # Without any brake there would be some 150.
    assert 4 <= crashes <= 40
    assert len(ground.fleet.slots()) <= 2


@with_fleet(slots=1, app="dies_soon", started=False, healthy_after=60.0)
async def test_slots_that_die_right_after_they_are_ready(ground: Ground) -> None:
    """It escalates like a boot that fails, and the supervisor can see that it is pointless."""
    write_app(
        ground,
        "dies_soon",
        """
        import os, signal
        os.register_at_fork(after_in_child=lambda: signal.setitimer(signal.ITIMER_REAL, 0.05))
        """,
    )
    ground.fleet.start()
    await ground.until(lambda: ground.fleet.degraded, "degraded", within=30)
    deaths = [told.detail for told in ground.all("death")]
    assert {death.reason for death in deaths} <= {Reason.CRASH, Reason.BOOT}
    assert {death.exit.signal for death in deaths} == {signal.SIGALRM}


@with_fleet(slots=1, app="hangs", started=False, preload=False, boot_timeout=0.3)
async def test_a_boot_hangs(ground: Ground) -> None:
    """The slot is killed although it never was ready, and its stack names the line."""
    gate = ground.gate()
    write_app(ground, "hangs", f"open({gate!r}).read()  # here it hangs")
    ground.fleet.start()
    await ground.until(lambda: ground.all("death"), "a death")
    told = ground.all("death")[0]
    assert told.detail.reason is Reason.BOOT
    assert "had not imported the app after 0.3 s" in told.detail.sentence
    assert 'hangs.py", line 1 in <module>' in told.detail.stack
    await ground.until(lambda: ground.fleet.degraded, "degraded", within=30)


@with_fleet(slots=1, app="hangs", started=False, load_timeout=4.0)
async def test_the_templates_import_hangs(ground: Ground) -> None:
    """It is killed; where it was stands in its output."""
    gate = ground.gate()
    write_app(ground, "hangs", f"open({gate!r}).read()  # here it hangs")
    ground.fleet.start()
    await ground.until(lambda: ground.all("load_failed"), "a failure")
    failure = ground.all("load_failed")[0].detail
    assert isinstance(failure, LoadFailure)
    assert failure.error_class == "ImportTimeout"
    await ground.until(
        lambda: any('hangs.py", line 1' in line for _, _, line in ground.lines), "the stack",
        within=60,
    )  # fmt: skip


@with_fleet(slots=1, app="no_such_app")
async def test_the_app_does_not_exist(ground: Ground) -> None:
    """Only a new configuration helps, and that is said."""
    await ground.until(lambda: ground.all("load_failed"), "a failure")
    failure = ground.all("load_failed")[0].detail
    assert failure.permanent and not failure.reloading
    assert "no_such_app" in failure.message
    assert ground.fleet.slots() == []


@with_fleet(slots=1, app="broken", started=False)
async def test_the_app_cannot_be_imported_at_first(ground: Ground) -> None:
    """The supervisor goes on trying, and once the code is mended everything is well."""
    write_app(ground, "broken", "print('on the way')\nraise RuntimeError('not today')")
    ground.fleet.start()
    await ground.until(lambda: ground.all("load_failed"), "a failure")
    failure = ground.all("load_failed")[0].detail
    assert not failure.permanent
    assert "not today" in failure.message
    assert 'broken.py", line 2' in failure.stack
    # By a pipe of its own, so perhaps a moment later.
    await ground.until(lambda: (None, None, "on the way") in ground.lines, "what it printed")
    write_app(ground, "broken", "")
    await ground.ready()


@with_fleet(slots=1, app="leaves", started=False)
async def test_the_app_exits_when_imported(ground: Ground) -> None:
    """sys.exit() in a module is a failure, not the end of anything."""
    write_app(ground, "leaves", "import sys; sys.exit(0)")
    ground.fleet.start()
    await ground.until(lambda: len(ground.all("load_failed")) >= 2, "two failures")
    assert "SystemExit" in ground.all("load_failed")[0].detail.message


@with_fleet(slots=2, app="threaded", started=False)
async def test_the_app_starts_threads_when_imported(ground: Ground) -> None:
    """It is said, and every slot imports for itself: a process with threads is not forked."""
    write_app(
        ground,
        "threaded",
        """
        import threading
        from jobctl.workerproc.job import job
        forever = threading.Event()
        threading.Thread(target=forever.wait, daemon=True).start()
        @job
        def count(ctx): return threading.active_count()
        """,
    )
    ground.fleet.start()
    slots = await ground.ready()
    (sentence,) = ground.notices(Notice.THREADS_AT_IMPORT)
    assert "1 more thread" in sentence
    assert [one.name for one in ground.types] == ["count"]
    told = await ground.end_of(ground.give(slots[0], "count"))
    assert told.detail["result"] == "2"


@with_fleet(slots=2, preload=False)
async def test_without_preload_the_first_slot_tells_the_types(ground: Ground) -> None:
    """The template imports nothing of the app."""
    await ground.ready()
    assert "nothing" in [one.name for one in ground.types]
    assert len(ground.all("types")) == 1
    template = ground.fleet._nursery.current
    assert template is not None and template.declared is None


@with_fleet(slots=2)
async def test_more_and_fewer_slots(ground: Ground) -> None:
    """Surplus slots leave when their job has ended; nothing is killed."""
    slots = await ground.ready()
    gate = ground.gate()
    number = ground.give(slots[1], "wait", started=ground.path("started"), gate=gate)
    await ground.exists(ground.path("started"))
    ground.fleet.resize("default", 4)
    await ground.ready(3)
    ground.fleet.resize("default", 1)
    await ground.until(lambda: len(ground.fleet.slots()) == 2, "two leave")
    assert slots[1].stage is Stage.BUSY
    await ground.open_gate(gate)
    assert (await ground.end_of(number)).what == "ended"
    await ground.until(lambda: ground.fleet.slots() == [slots[0]], "one is left")
    assert {told.detail.reason for told in ground.all("death")} == {Reason.RECYCLE}


@with_fleet(slots=2, max_jobs_per_slot=3)
async def test_slots_are_recycled(ground: Ground) -> None:
    """No job is lost, and a slot serves as long as it should."""
    given: list[int] = []

    def feed(slot: object) -> None:
        for idle in ground.fleet.idle_slots():
            if len(given) < 60:
                given.append(ground.give(idle, "nothing"))

    ground.on_end = feed
    while len(given) < 60:
        await ground.ready(1)
        feed(None)
    for number in given:
        assert (await ground.end_of(number)).what == "done"
    deaths = ground.all("death")
    assert {told.detail.reason for told in deaths} == {Reason.RECYCLE}
    assert all(told.slot is not None and 2 <= told.slot.finished <= 4 for told in deaths)


@with_fleet(slots=3)
async def test_a_quiet_stop(ground: Ground) -> None:
    """Idle slots leave, the busy one ends its job first, and nothing is started any more."""
    slots = await ground.ready()
    gate = ground.gate()
    number = ground.give(slots[1], "wait", started=ground.path("started"), gate=gate)
    await ground.exists(ground.path("started"))
    ground.fleet.quiet_stop()
    await ground.until(lambda: ground.fleet.slots() == [slots[1]], "the idle ones leave")
    await ground.open_gate(gate)
    await ground.fleet.wait_empty()
    assert (await ground.end_of(number)).what == "ended"
    assert {told.detail.reason for told in ground.all("death")} == {Reason.STOP}
    assert {told.detail.exit.code for told in ground.all("death")} == {0}


@with_fleet(slots=4)
async def test_a_stop_at_any_moment_of_the_start(ground: Ground) -> None:
    """Slots that were asked for and are not there yet are not forgotten."""
    await ground.until(lambda: ground.fleet.slots(), "one is asked for")
    await ground.fleet.end()
    assert ground.fleet.empty


@with_fleet(slots=2)
async def test_orphans_of_jobs_are_reaped(ground: Ground) -> None:
    """A job's grandchild that died as an orphan does not stay a zombie."""
    slots = await ground.ready()
    for _ in range(3):
        await ground.end_of(ground.give(slots[0], "scatter"))
    await ground.until(lambda: not zombies(), "no zombies", within=5)


@with_fleet(slots=2)
async def test_descriptors_do_not_grow(ground: Ground) -> None:
    """However many slots come and go, the supervisor holds what it held."""
    await ground.ready()
    before = descriptors()
    for _ in range(8):
        slot = (await ground.ready(1))[0]
        assert ground.fleet.kill(slot, Reason.MEMORY)
        await ground.death_of(slot)
    await ground.ready()
    assert descriptors() == before


def zombies() -> list[int]:
    """Children of this process that are dead and not reaped."""
    own = os.getpid()
    children = Path(f"/proc/self/task/{own}/children").read_text().split()
    return [pid for pid in map(int, children) if not exists(pid)]


def write_app(ground: Ground, name: str, source: str) -> None:
    """An application of the test's own."""
    (ground.folder / f"{name}.py").write_text(textwrap.dedent(source))
