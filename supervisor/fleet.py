"""The fleet: as many slots as are wanted, whatever happens to them.

No event starts a child: `launch_missing` compares want with have. Nothing in here waits for a
child, for SQL or for anybody else; every step is a callback of the loop that returns at once. A
dead slot's replacement is asked for before anyone is told of the death.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any, Final

from jobctl.supervisor import strays
from jobctl.supervisor.burial import NO_REMAINS, certify, reap
from jobctl.supervisor.declarations import Declarations
from jobctl.supervisor.groups import Findings, Groups
from jobctl.supervisor.kill import Kill, Patience
from jobctl.supervisor.listener import Death, Listener, LoadFailure, Notice, Reason
from jobctl.supervisor.mourning import Mourning
from jobctl.supervisor.nursery import Nursery, Upbringing, load_failure
from jobctl.supervisor.reload import Progress, Reload, Step
from jobctl.supervisor.seat import Seat
from jobctl.supervisor.seating import Seating
from jobctl.supervisor.slot import Running, Slot, Stage, open_ends
from jobctl.supervisor.sweep import Sweep
from jobctl.supervisor.template import CHANNEL_GRACE, Template, read_declared
from jobctl.workerproc import frames, launch, linux
from jobctl.workerproc.launch import Share

#: Reasons that are about what a slot runs, not about the slot.
_ABOUT_THE_JOB: Final = frozenset(
    {Reason.TIMEOUT, Reason.CPU, Reason.CANCEL, Reason.LOST, Reason.INTERRUPT, Reason.LEASE}
)
#: Kills that cannot wait for a stack, or to which it would add nothing.
_WITHOUT_DUMP: Final = frozenset({Reason.LOST, Reason.STOP, Reason.CRASH})
#: The template forks in this time, or it hangs.
_SPAWN_TIMEOUT: Final = 15.0
#: A slot that runs nothing has this long to go when it is told to.
_LEAVE_TIMEOUT: Final = 5.0


@dataclass(frozen=True)
class FleetSettings:
    """What the fleet needs to know. Times in seconds."""

    app: str
    pools: Mapping[str, int]  # pool name -> slots; slot numbers count through all of them, from 1
    shares: Mapping[str, Share] = field(default_factory=dict)  # pool name -> of the processors
    preload: bool = True
    max_jobs_per_slot: int | None = None  # recycled after so many, give or take a tenth
    load_timeout: float = 120.0
    boot_timeout: float = 60.0
    dump_grace: float = 1.0
    dump_quiet: float = 0.05
    unkillable_after: float = 5.0
    healthy_after: float = 10.0
    environment: Mapping[str, str] = field(default_factory=dict)  # added to the template's
    kin: str = "0"  # hexadecimal; what all lives of one supervisor have in common
    access: Mapping[str, str] | None = field(default=None, repr=False)  # see TemplateOrder


class Fleet:
    """All slots and the template that they are forked from. Lives in the running event loop."""

    def __init__(self, settings: FleetSettings, listener: Listener) -> None:
        self._settings = settings
        self._listener = listener
        self._elders: Collection[int] = ()  # children that this process had before
        self._loop = asyncio.get_running_loop()
        self._patience = Patience(
            settings.dump_grace, settings.dump_quiet, settings.unkillable_after
        )
        self._nursery = Nursery(
            Upbringing(
                settings.app,
                settings.preload,
                settings.environment,
                settings.load_timeout,
                settings.dump_grace,
                settings.healthy_after,
                settings.access,
            ),
            self,
            self._loop,
        )
        self._inbox = frames.Inbox(1)
        self._groups: Groups | None = None
        self._lives = 0
        self._slots: dict[int, Slot] = {}  # by life; all that are not gone
        self._early: dict[int, dict[str, Any]] = {}  # READY frames that outran the pid
        self._kills: dict[int, Kill] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}  # what a slot must do by when
        self._declarations = Declarations(self._loop, listener)
        self._mourning = Mourning(
            self._loop, listener, self._own_pids, self._retire_group, self.say,
            self._look_if_empty,
        )  # fmt: skip
        self._sweep = Sweep(
            self._loop, self._slots, self._own_pids, self._nursery.expects_births,
            self._on_outlived,
        )  # fmt: skip
        self._reload: Reload | None = None
        self._reloads_asked = 0
        self._stopping = False
        self._closed = False
        self._emptied = asyncio.Event()
        self._seating = Seating(
            settings.pools, settings.healthy_after, self._loop, self._launch, self.say
        )

    # What the supervisor asks -------------------------------------------------------------------

    def start(self) -> None:
        """Becomes the subreaper of everything below and asks for the template and the slots."""
        self._elders = strays.children()
        linux.adopt_orphans()
        self._groups = Groups(self._settings.kin)
        abandoned = self._groups.killed + len(strays.kill_abandoned(self._settings.kin))
        if abandoned:
            sentence = (
                f"{abandoned} processes that jobs of a supervisor before this one had started "
                "were still there, and were killed"
            )
            self.say(Notice.LEAKED, None, sentence)
        self._nursery.start()
        self._sweep.start(self._groups)

    def idle_slots(self, pool: str | None = None) -> list[Slot]:
        """Those that can be given a job now, of this pool or of all."""
        return self._seating.idle_slots(pool)

    def busy(self) -> list[Slot]:
        """Those that run something, until its end or their death has been told."""
        slots = (*self._slots.values(), *self._mourning.mourned)
        return [slot for slot in slots if slot.running is not None]

    def slots(self) -> list[Slot]:
        """All that are not gone."""
        return list(self._slots.values())

    @property
    def wanted(self) -> int:
        """How many slots there should be."""
        return 0 if self._stopping else self._seating.wanted

    @property
    def degraded(self) -> bool:
        """Slots die before they have done anything, again and again: claiming is pointless."""
        if self._nursery.failures >= self._seating.patience and not self._slots:
            return True
        return self._seating.is_hopeless()

    @property
    def groups(self) -> Findings | None:
        """What control groups there are for slots; None before the start."""
        return None if self._groups is None else self._groups.findings

    @property
    def seats(self) -> list[Seat]:
        """Where slots sit."""
        return self._seating.seats

    @property
    def empty(self) -> bool:
        """No slot is left, and nothing of theirs."""
        return not self._slots and not self._mourning.mourned

    def kill(self, slot: Slot, reason: Reason, *, token: int | None = None, why: str = "") -> bool:
        """Ends a slot by force; `on_death` follows within moments. True if it is being killed.

        First reads what the slot has already said: if the outcome of what it ran is there and the
        reason is about the job, not the slot (TIMEOUT, CPU, CANCEL, LOST, INTERRUPT, LEASE), the
        outcome counts - it has been delivered when this returns False - and the slot lives on. With
        `token`, kills only while that claim is what runs. `why` goes on: "because it ...".
        """
        if slot.is_being_killed:
            return slot.stage is Stage.KILLING
        running = slot.running
        if token is not None and (running is None or running.token != token):
            return False
        if running is not None:
            if reason not in _ABOUT_THE_JOB:
                slot.leaving = slot.leaving or reason  # it gets no other job meanwhile
            slot.drain()
            if slot.is_being_killed:
                return True
            if slot.running is not running and reason in {*_ABOUT_THE_JOB, Reason.MEMORY}:
                return False
        self._begin_kill(slot, reason, why)
        return True

    def soft_timeout(self, slot: Slot, token: int) -> None:
        """Raises SoftTimeout in the handler, if it still runs that claim. Advisory."""
        if slot.running is not None and slot.running.token == token:
            slot.aim_soft_timeout(token)

    def ask_to_cancel(self, slot: Slot, token: int) -> None:
        """Tells the handler, if it still runs that claim. Advisory."""
        if slot.running is not None and slot.running.token == token and not slot.is_being_killed:
            slot.running.cancel_asked = True
            slot.aim_cancel(token)

    def leave(self, slot: Slot, reason: Reason = Reason.RECYCLE) -> None:
        """Ends a slot without force: at once if idle, else when its job has ended."""
        if slot.stage in (Stage.STARTING, Stage.IDLE, Stage.BUSY):
            slot.leaving = slot.leaving or reason
            if slot.stage is Stage.IDLE:
                slot.stop()

    def resize(self, pool: str, slots: int) -> None:
        """Wants another number of slots; surplus ones leave when their job has ended."""
        for slot in self._seating.resize(pool, slots):
            self.leave(slot)
        self.launch_missing()

    def reload(self) -> None:
        """Starts a new generation from the code on disk; see `reload.py`.

        Asked for while another reload is being tried, it happens once that is decided.
        """
        if self._stopping:
            return
        self._reloads_asked += 1
        self._reload_if_asked()

    def reload_progress(self) -> Progress:
        """How far the last reload is."""
        asked, reload = self._reloads_asked, self._reload
        if reload is None:
            return Progress(asked)
        return Progress(asked, reload.number, reload.step, reload.failed, reload.old())

    def quiet_stop(self) -> None:
        """Starts nothing any more; idle slots leave now and busy ones when their job has ended."""
        self._stopping = True
        self._nursery.close()
        for slot in self.slots():
            if slot.stage is Stage.STARTING:
                self.kill(slot, Reason.STOP)
            else:
                self.leave(slot, Reason.STOP)
        self._look_if_empty()

    def kill_all(self, reason: Reason) -> None:
        """Ends every slot by force. They are replaced, unless `quiet_stop` was called."""
        for slot in self.slots():
            self.kill(slot, reason)

    async def wait_empty(self) -> None:
        """Returns when no slot is left. For the end of a stop; nothing else waits."""
        self._look_if_empty()
        await self._emptied.wait()

    async def end(self) -> None:
        """Kills and reaps what is left and gives everything back. Takes seconds at the most."""
        self.quiet_stop()
        self.kill_all(Reason.STOP)
        try:
            async with asyncio.timeout(self._settings.unkillable_after + 2.0):
                await self.wait_empty()
        except TimeoutError:
            pass  # they were reported as unkillable; PDEATHSIG and systemd come after us
        self.close()

    def close(self) -> None:
        """Gives everything back. What is left of the processes dies with this one."""
        self._closed = self._stopping = True
        self._nursery.close()
        self._seating.rest()
        self._sweep.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._mourning.close()
        for slot in self._slots.values():
            slot.strike()
            slot.close()
            slot.forget_process()
        self._slots.clear()
        if self._groups is not None:
            self._groups.close()

    async def leave_nobody(self, within: float = 2.0) -> None:
        """After `close`: ends whatever the app has started and left below us.

        Not what was there before the fleet: an embedded PostgreSQL outlives its supervisor.
        """
        end = self._loop.time() + within
        while not self._nobody_is_left() and self._loop.time() < end:  # noqa: ASYNC110 - see below
            # Nothing tells when the kernel has handed the orphans of the killed over to us.
            await asyncio.sleep(0.01)

    def _nobody_is_left(self) -> bool:
        left = strays.kill_everything(self._elders)
        return (self._groups is None or self._groups.close()) and not left

    def note_kernel_kills(self) -> None:
        """Every few seconds, so that a death can be laid at the out-of-memory killer's door."""
        self._mourning.note_kernel_kills()

    def watch(self, running: Running) -> None:
        """A job was given. `Deadlines` puts itself here."""

    # Want and have ------------------------------------------------------------------------------

    def launch_missing(self) -> None:
        """Asks for a slot for every seat that is empty and may be filled now."""
        template = self._nursery.current
        if self._stopping or template is None:
            self._seating.rest()
        else:
            self._seating.fill(template)

    def launch_heir(self, seat: Seat, template: Template) -> bool:
        """Asks for a slot that will take this seat from an older one."""
        seat.heir = self._launch(seat, template)
        return seat.heir is not None

    def take_seat(self, seat: Seat) -> None:
        """The seat's heir, which is ready, sits down and may be given work."""
        heir, seat.heir = seat.heir, None
        seat.slot = heir
        if heir is not None:
            self._loop.call_soon(self._offer, heir)

    def _launch(self, seat: Seat, template: Template) -> Slot | None:
        self._lives += 1
        life = self._lives
        mark = launch.marker(os.getpid(), seat.number, life, self._settings.kin)
        try:
            ends, theirs = open_ends(mark)
        except OSError as error:
            self.say(Notice.SLOT_DELAYED, None, f"slot {seat.number} cannot be started: {error}")
            return None
        slot = Slot(
            self,
            self._listener,
            self._loop,
            self._inbox,
            number=seat.number,
            pool=seat.pool,
            generation=template.generation,
            life=life,
            mark=mark,
            group=None if self._groups is None else self._groups.make(seat.number, life),
            ends=ends,
        )
        slot.retire_after = self._service()
        members = "" if slot.group is None else slot.group.members
        share = self._settings.shares.get(seat.pool, Share())
        asked = template.spawn(seat.number, life, mark, members, share, theirs)
        frames.close_descriptors(theirs)
        if not asked:  # it is dying: its successor comes back here
            slot.close()
            self._retire_group(slot)
            return None
        self._slots[life] = slot
        self._set_timer(slot, _SPAWN_TIMEOUT, template.strike)
        return slot

    def _service(self) -> int:
        """Jobs until a slot is recycled, spread so that they do not all leave at once."""
        most = self._settings.max_jobs_per_slot
        if most is None:
            return 0
        return max(1, round(most * random.uniform(0.9, 1.1)))  # noqa: S311 - spreads a load

    # A slot is born -----------------------------------------------------------------------------

    def slot_spawned(self, life: int, pid: int, why: str) -> None:
        """Told by the template, through the nursery, before the slot is ready."""
        slot = self._slots.get(life)
        if slot is None:  # given up meanwhile; the next sweep finds the process by its mark
            return
        try:
            if not pid:
                raise OSError(why)
            slot.spawned(pid)
        except OSError as error:
            self._never_born(slot, f"slot {slot.number} could not be started: {error}")
            return
        if slot.stage is Stage.KILLING:
            self._kills[life].strike()
        else:
            self._set_timer(slot, self._settings.boot_timeout, self._boot_hangs, slot)
            body = self._early.pop(life, None)
            if body is not None:
                try:
                    self.became_ready(slot, body)
                except frames.FrameError as error:
                    self.distrust(slot, str(error))
        self.launch_missing()

    def became_ready(self, slot: Slot, body: dict[str, Any]) -> None:
        """Told by the slot."""
        if not slot.pid:  # its word was quicker than the template's
            self._early[slot.life] = body
            return
        if body.get("pid") != slot.pid or body.get("life") != slot.life:
            raise frames.FrameError("a slot said that it was another one")
        if "types" in body and self._declarations.wants(slot.generation):
            self._declarations.learn(slot.generation, read_declared(body))
        self._clear_timer(slot)
        if "outside" in body:
            why = str(body["outside"])[:200]
            sentence = f"slot {slot.number} could not join its control group: {why}"
            self.say(Notice.OUTSIDE_GROUP, slot, sentence)
        slot.ready_ns = monotonic_ns()
        took = (slot.ready_ns - slot.since_ns) / 1e9
        self.say(Notice.SLOT_READY, slot, f"slot {slot.number} is ready after {took:.3f} s")
        for seat in self.seats:
            if seat.heir is slot and self._reload is not None:
                self._reload.heir_ready(seat)
                return
        self.announce(slot.generation)
        self._loop.call_soon(self._offer, slot)  # after its types are told

    def could_not_load(self, slot: Slot, body: dict[str, Any]) -> None:
        """Told by the slot, which is about to leave."""
        is_heir = any(seat.heir is slot for seat in self.seats)
        self.load_failed(load_failure(slot.generation, body, is_heir))

    def announce(self, generation: int) -> None:
        """Tells of the types of a generation, once, when they are known."""
        self._declarations.announce(generation)

    def _offer(self, slot: Slot) -> None:
        if slot.stage is not Stage.STARTING:  # it has died, or is about to
            return
        if slot.leaving is not None:
            slot.stop()
        else:
            slot.offer()

    # A slot leaves, or is made to ---------------------------------------------------------------

    def told_to_leave(self, slot: Slot) -> None:
        """Told by the slot when it has sent STOP."""
        self._set_timer(slot, _LEAVE_TIMEOUT, self._leaves_too_slowly, slot)

    def lost_channel(self, slot: Slot) -> None:
        """Told by the slot: most often it is dying, and its pidfd is about to say so."""
        if slot.stage is Stage.IDLE:
            slot.stage = Stage.LEAVING
        self._set_timer(slot, CHANNEL_GRACE, self._outlived_channel, slot)

    def distrust(self, slot: Slot, why: str) -> None:
        """Told by the slot when the process spoke nonsense."""
        if not slot.is_being_killed:
            self._begin_kill(slot, Reason.CRASH, f"spoke nonsense: {why}")

    def _begin_kill(self, slot: Slot, reason: Reason, why: str) -> None:
        self._clear_timer(slot)
        kill = Kill(slot, reason, why, self._loop, self._patience, self._give_up)
        self._kills[slot.life] = kill
        hangs = slot.running is not None or slot.stage is Stage.STARTING
        kill.begin(dump=hangs and reason not in _WITHOUT_DUMP)

    def _boot_hangs(self, slot: Slot) -> None:
        took = f"{self._settings.boot_timeout:g} s"
        self._begin_kill(slot, Reason.BOOT, f"had not imported the app after {took}")

    def _leaves_too_slowly(self, slot: Slot) -> None:
        self._begin_kill(slot, slot.leaving or Reason.STOP, "was told to leave and did not")

    def _outlived_channel(self, slot: Slot) -> None:
        program = strays.program_instead(slot.pid, slot.mark)
        if program is None:
            why = "closed its channel and went on"
        else:
            why = f"let its job execute another program in its place, {program}"
        self._begin_kill(slot, Reason.CRASH, why)

    # A slot is gone -----------------------------------------------------------------------------

    def exited(self, slot: Slot) -> None:
        """Told by its pidfd. The order is `burial.py`'s; a full outcome in its socket counts."""
        slot.strike()
        if self._mourning.died_after_all(slot):
            return
        kill = self._kills.pop(slot.life, None)
        if kill is None:
            slot.leaving = slot.leaving or Reason.CRASH  # so that it is given nothing more
            if slot.stage is Stage.IDLE:
                slot.stage = Stage.LEAVING
            slot.drain()
            kill = self._kills.pop(slot.life, None)  # what it said last was nonsense
        if kill is not None:
            kill.over()
        running = slot.running
        remains = reap(slot.pid, killed=kill is not None)
        starved = kill is None and self._mourning.starved(slot, remains)
        death = certify(slot, running, kill, remains, starved=starved)
        self._remove(slot)
        slot.forget_process()
        self._vacate(slot, death.reason, with_job=running is not None)
        self._mourning.bury(slot, slot.pid, running, death)

    def _give_up(self, slot: Slot) -> None:
        """It does not die. It is replaced all the same, and reaped if it ever does."""
        kill = self._kills.pop(slot.life)
        running = slot.running
        death = certify(slot, running, kill, NO_REMAINS)
        self._remove(slot)
        self._vacate(slot, death.reason, with_job=running is not None)
        self._mourning.give_up(slot, running, death, self._settings.unkillable_after)

    def _never_born(self, slot: Slot, why: str) -> None:
        """It has no process, or none whose number is known; then it is found by its mark."""
        kill = self._kills.pop(slot.life, None)
        if kill is not None:
            kill.over()
        self._remove(slot)
        self._vacate(slot, Reason.BOOT, with_job=False)
        self.say(Notice.SLOT_DELAYED, slot, why)
        death = Death(Reason.BOOT, NO_REMAINS.exit, why, None, 0, 0.0, False, 0)
        self._mourning.bury(slot, -1, None, death)

    def _remove(self, slot: Slot) -> None:
        self._clear_timer(slot)
        self._early.pop(slot.life, None)
        slot.close()
        slot.stage = Stage.GONE
        self._slots.pop(slot.life, None)

    def _vacate(self, slot: Slot, reason: Reason, *, with_job: bool) -> None:
        """The seat is free; how soon it is taken again depends on why."""
        for seat in self.seats:
            if seat.slot is slot:
                self._seating.vacate(seat, slot, reason, with_job=with_job)
                if seat.heir is not None and seat.heir.ready_ns:
                    self.take_seat(seat)
            elif seat.heir is slot:
                seat.heir = None
                if self._reload is not None:
                    self._reload.heir_died(seat)
        self._seating.remove_unwanted()
        if self._reload is not None:
            self._reload.look_again()
        self._reload_if_asked()
        self.launch_missing()

    def _retire_group(self, slot: Slot) -> None:
        if slot.group is not None and self._groups is not None:
            self._groups.retire(slot.group)

    # Templates ----------------------------------------------------------------------------------

    def template_ready(self, template: Template) -> None:
        """Told by the nursery."""
        if template.declared is not None:
            self._declarations.learn(template.generation, template.declared)
        if template is self._nursery.next and self._reload is not None:
            self._reload.template_ready(template)
            self._reload_if_asked()
            return
        self.announce(template.generation)
        if self._reload is not None:
            self._reload.look_again()
        self.launch_missing()

    def template_gone(self, template: Template) -> None:
        """Told by the nursery. What it was asked for and did not answer may exist or not."""
        for life in template.pending:
            if (slot := self._slots.get(life)) is not None and not slot.pid:
                self._never_born(slot, f"slot {slot.number} lost its template while it was born")
        template.pending.clear()
        reload = self._reload
        if reload is not None and template is self._nursery.next:
            reload.fail(f"its template {template.exit.sentence}")
            self._reload_if_asked()
        self._look_if_empty()

    def template_printed(self, line: str) -> None:
        """Told by the nursery."""
        self._listener.on_output(None, None, line)

    def load_failed(self, failure: LoadFailure) -> None:
        """Told by the nursery, or by a slot."""
        self._loop.call_soon(self._listener.on_load_failed, failure)

    def say(self, notice: Notice, slot: Slot | None, sentence: str) -> None:
        """Something worth logging happened. Told soon: this is called in the middle of things."""
        self._loop.call_soon(self._listener.on_notice, notice, slot, sentence)

    def _reload_if_asked(self) -> None:
        reload = self._reload
        decided = reload is None or reload.step in (Step.RELIEVING, Step.OVER)
        done = 0 if reload is None else reload.number
        if decided and done < self._reloads_asked and not self._stopping:
            self._reload = Reload(self, self._nursery, self._reloads_asked)

    # ----------------------------------------------------------------------------------------------

    def _own_pids(self) -> set[int]:
        slots = (*self._slots.values(), *self._mourning.unkillable)
        return {slot.pid for slot in slots if slot.pid} | set(self._nursery.pids())

    def _on_outlived(self, slot: Slot, pids: list[int]) -> None:
        if slot.leaving is None and not slot.is_being_killed:
            sentence = (
                f"processes {pids[:10]} have outlived the job in slot {slot.number} that had "
                "started them: its process is replaced as soon as it runs nothing, and they "
                "die with it"
            )
            self.say(Notice.OUTLIVED, slot, sentence)
            self.leave(slot, Reason.RECYCLE)

    def _look_if_empty(self) -> None:
        if self._stopping and self.empty and self._nursery.empty:
            self._emptied.set()

    def _set_timer(
        self, slot: Slot, seconds: float, then: Callable[..., None], *arguments: Any
    ) -> None:
        self._clear_timer(slot)
        self._timers[slot.life] = self._loop.call_later(seconds, then, *arguments)

    def _clear_timer(self, slot: Slot) -> None:
        timer = self._timers.pop(slot.life, None)
        if timer is not None:
            timer.cancel()
