"""The supervisor: one process a host that keeps all the others honest.

What it never does: it never imports, runs or decodes the application's code. It never waits for
one child. It never waits for PostgreSQL before it kills. It never dies because the database, a log
pipe or one bad row is in the way. And it never goes on half-alive: if a part of it fails in a way
that nobody planned for, it kills its slots and leaves, and its lease tells the others.

It is one event loop. What must be quick happens in callbacks (`attempts.py`); what talks to
PostgreSQL is four tasks with a connection each (`dispatch.py`, `settle.py`, `leases.py`,
`leader.py`); and once a turn the loop below compares want with have.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import sys
import traceback
from collections.abc import Coroutine, Mapping, Sequence
from time import monotonic, monotonic_ns
from typing import Any

import psycopg

from jobctl.store.cron_spec import CronSpec
from jobctl.store.dsn import DsnError, conninfo
from jobctl.store.errors import SchemaError
from jobctl.store.job_type import JobType
from jobctl.store.link import DISPATCH_SETTINGS, Link, Row, patience_of
from jobctl.supervisor.alarm import Alarm
from jobctl.supervisor.annotate import Annotations
from jobctl.supervisor.attempts import Attempts
from jobctl.supervisor.cancels import Cancels
from jobctl.supervisor.ceilings import Ceilings
from jobctl.supervisor.code import Code
from jobctl.supervisor.condition import Condition
from jobctl.supervisor.control import ControlServer, Refusal
from jobctl.supervisor.cron import Cron
from jobctl.supervisor.crons import Crons
from jobctl.supervisor.deadlines import Deadlines
from jobctl.supervisor.dispatch import Dispatcher
from jobctl.supervisor.draining import Draining
from jobctl.supervisor.duties import all_duties
from jobctl.supervisor.events import Event
from jobctl.supervisor.fleet import Fleet, FleetSettings
from jobctl.supervisor.hands import HostHands
from jobctl.supervisor.http import HttpServer, health
from jobctl.supervisor.identity import Identity, kin_of
from jobctl.supervisor.leader import FROZEN_AFTER, Leader
from jobctl.supervisor.leading import Leading
from jobctl.supervisor.leases import Lease, boottime
from jobctl.supervisor.listener import Death, LoadFailure, Notice, Reason
from jobctl.supervisor.log import LEVELS, Log, first_line
from jobctl.supervisor.metrics import Metrics
from jobctl.supervisor.notify import Notify
from jobctl.supervisor.pool_spec import PoolSpec, all_pools, queues_of
from jobctl.supervisor.reclaim import reclaim
from jobctl.supervisor.relay import Relay
from jobctl.supervisor.remarks import Remarks
from jobctl.supervisor.report import Report
from jobctl.supervisor.service import Service
from jobctl.supervisor.settings import Settings
from jobctl.supervisor.settle import Settler
from jobctl.supervisor.signals import Intent, Signals
from jobctl.supervisor.slot import Running, Slot
from jobctl.supervisor.stopping import Phase, Stop
from jobctl.workerproc.frames import Done

#: The loop turns at least this often, whatever happens.
LONGEST_TURN = 0.25
#: And at least this often while nothing runs.
LONGEST_REST = 1.0

#: What the fleet remarks without any reason to worry.
_NO_WARNINGS = {Notice.SLOT_READY: Event.SLOT_READY, Notice.RELOADED: Event.RELOADED}

EXIT_DONE, EXIT_FAILED, EXIT_PARTLY, EXIT_CONFIGURATION = 0, 1, 5, 78


def run(
    settings: Settings,
    dsn: str,
    crons: Sequence[CronSpec] = (),
    pools: Sequence[PoolSpec] = (),
    notify: Notify | None = None,
) -> int:
    """Runs a supervisor until it is told to stop; returns what to exit with. `crons` and `pools`
    are those of its file; `notify` is the way to the service manager that has started us, if one
    has.

    0: stopped as asked. 5: so too, but jobs were interrupted. 1: a part of it
    failed. 78: a configuration that no restart will mend.
    """
    # The watchdog's SIGABRT leaves a stack that says where it was stuck. By number: sys.stderr may
    # be something in memory, or nothing.
    faulthandler.enable(2)
    everything = all_pools(settings.slots, settings.queues, pools)
    return asyncio.run(_run(settings, dsn, crons, everything, notify or Notify()))


async def _run(
    settings: Settings,
    dsn: str,
    crons: Sequence[CronSpec],
    pools: Sequence[PoolSpec],
    notify: Notify,
) -> int:
    return await Supervisor(settings, dsn, crons, pools, notify).run()


class Supervisor:
    """Owns the parts and stands between them; each of its groups of methods is one part's ear."""

    def __init__(
        self,
        settings: Settings,
        dsn: str,
        crons: Sequence[CronSpec],
        pools: Sequence[PoolSpec],
        notify: Notify,
    ) -> None:
        assert settings.app is not None  # noqa: S101 - the command line asks for it
        self._settings = settings
        self._wanted = sum(pool.slots for pool in pools)
        self._identity = Identity.of_this_process(settings.host)
        self._log = Log(settings.log_format, level=LEVELS[settings.log_level])
        self._metrics = Metrics(self._identity.version)
        self._alarm = Alarm()
        self._signals = Signals(
            self._alarm.set, terminal=sys.stdin is not None and sys.stdin.isatty()
        )
        self._stop = Stop()
        self._exit_code = EXIT_DONE
        self._condition = Condition(turned_at=monotonic(), away_at=boottime())
        self._code = Code()
        self._crons = Crons(crons)
        self._hand_back_at = 0.0
        self._turn = LONGEST_TURN
        self._was_ready = False
        self._some_ready = False

        def link(name: str, **options: str) -> Link:
            where = conninfo(
                dsn, schema=settings.schema, application_name=f"jobctl {settings.host} {name}"
            )
            patience = patience_of(settings.lease)
            return Link(name, where, options, self._on_statement, self._on_link, patience)

        self._links = {
            "claim": link("claim", **DISPATCH_SETTINGS, synchronous_commit="off"),
            "settle": link("settle", **DISPATCH_SETTINGS),
            "lease": link("lease"),
            "lead": link("lead", idle_session_timeout=FROZEN_AFTER),
        }
        self._attempts = Attempts(
            settings.host, self._code, self._metrics, self._log,
            say_successes=settings.log_attempts == "all",
        )  # fmt: skip
        self._settler = Settler(self._links["settle"], self._attempts)
        self._attempts.settler = self._settler
        self._lease = Lease(
            self._links["lease"], self, self._identity, settings.lease, self._wanted,
            queues_of(pools), settings.schema,
        )  # fmt: skip
        self._fleet = Fleet(
            FleetSettings(
                app=settings.app,
                pools={pool.name: pool.slots for pool in pools},
                shares={pool.name: pool.share for pool in pools},
                preload=settings.preload,
                load_timeout=settings.boot_timeout,
                boot_timeout=settings.boot_timeout,
                max_jobs_per_slot=settings.max_jobs_per_slot,
                kin=kin_of(settings.host, settings.schema, dsn),
                # What handlers enqueue goes where their own jobs are.
                environment={"JOBCTL_SCHEMA": settings.schema},
                access={"dsn": dsn, "schema": settings.schema, "host": settings.host},
            ),
            self,
        )
        hands = HostHands(
            self._fleet, self._lease, self._attempts, self._settler, self._condition,
            self._metrics, self._log, self._alarm,
        )  # fmt: skip
        self._dispatcher = Dispatcher(
            self._links["claim"], hands, self._code, pools, settings.max_reserve
        )
        self._attempts.dispatcher = self._dispatcher
        self._draining = Draining(
            self._condition, self._dispatcher, self._fleet, self._lease, self._metrics,
            self._log, self._alarm,
        )  # fmt: skip
        self._leading = Leading(self._settler, self._condition, self._metrics, self._log)
        self._cron = Cron(self._leading)
        duties = all_duties(
            self._leading, self._cron, settings.lease, settings.history_keep, settings.effect_keep
        )
        self._metrics.know_duties(duty.name for duty in duties)
        self._leader = Leader(
            self._links["lead"],
            duties,
            on_change=self._on_leading,
            on_done=self._metrics.duty_done,
            on_error=self._on_duty_failed,
            session=lambda: 0 if self._condition.leaving else self._lease.session_id,
            somebody_leads=lambda: self._condition.another_leads,
        )
        self._metrics.know_pools(pool.name for pool in pools)
        self._metrics.watch_slots(lambda: [(one.pool, one.stage) for one in self._fleet.slots()])
        self._deadlines = Deadlines(self._fleet)
        self._cancels = Cancels(self._fleet, self._dispatcher, self._deadlines, self._log)
        self._ceilings = Ceilings(self._fleet, settings.max_rss_per_slot)
        self._remarks = Remarks(self._log)
        self._relay = Relay(self._log)
        self._allowance = settings.kill_grace + settings.lease
        self._annotations = Annotations(self._fleet, self._allowance)
        self._report = Report(
            self._identity, self._condition, self._fleet, self._lease, self._leader,
            self._dispatcher, self._settler, self._stop,
        )  # fmt: skip
        self._notify = notify
        self._service = Service(
            notify, self._report, self._stop, settings.boot_timeout, monotonic()
        )
        self._control = ControlServer(
            settings.runtime_dir,
            {
                "status": self._status,
                "drain": self._drain,
                "undrain": self._undrain,
                "exit": self._exit,
                "reload": self._reload,
            },
        )
        self._http = None
        if settings.metrics_listen is not None:
            self._http = HttpServer(
                settings.metrics_listen,
                {
                    "/metrics": self._metrics.page,
                    "/livez": health("live", self._report.not_live),
                    "/healthz": health("live", self._report.not_live),
                    "/readyz": health("ready", self._report.not_ready),
                },
            )

    # The day -------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Until it is told to stop. Returns the exit code."""
        await self._open()
        tasks = [
            self._part("the lease", self._lease.run()),
            self._part("dispatch", self._dispatcher.run()),
            self._part("settle", self._settler.run()),
            self._part("the leader", self._leader.run()),
        ]
        try:
            while self._stop.phase is not Phase.DONE:
                self._obey_signals()
                self._enforce_deadlines()
                self._keep_the_lease()
                self._hand_back_what_waits()
                self._annotate_what_lasts()
                self._advance_the_stop()
                self._note_the_turn()
                await self._alarm.wait(self._next_due())
        except Exception:
            self._on_part_failed("the loop")
        finally:
            await self._close(tasks)
        return self._exit_code

    def _obey_signals(self) -> None:
        for number, intent in self._signals.take():
            match intent:
                case Intent.DRAIN_AND_EXIT:
                    self._begin_stop(number.name, self._settings.drain_timeout)
                case Intent.STOP_NOW:
                    self._begin_stop(number.name, 0.0)
                case Intent.RELOAD:
                    self._begin_reload()
                case Intent.SAY_STATE:
                    self._log.say(Event.STATE, state=json.dumps(self._report.state()))

    def _enforce_deadlines(self) -> None:
        now_ns = monotonic_ns()
        self._deadlines.enforce(now_ns)
        self._ceilings.enforce(now_ns)

    def _keep_the_lease(self) -> None:
        """Kills what runs before anybody else may run it, whether PostgreSQL answers or not."""
        over = self._lease.session_id != 0 and self._lease.over()
        if over and not self._condition.fenced:
            self._log.say(Event.LEASE_OVER, busy=len(self._fleet.busy()))
            self._kill_what_runs(Reason.LEASE)
        self._condition.fenced = over
        self._metrics.database(self._report.database_seen())

    def _hand_back_what_waits(self) -> None:
        if len(self._dispatcher):
            self._hand_back_at = self._dispatcher.hand_back_stale()
        else:
            self._hand_back_at = float("inf")

    def _annotate_what_lasts(self) -> None:
        waiting = self._lease.has_errand("note_progress")
        for statement, parameters in self._annotations.due(waiting=waiting):
            self._lease.errand(statement, session=self._lease.session_id, **parameters)

    def _advance_the_stop(self) -> None:
        if not self._stop.begun:
            return
        before = self._stop.phase
        waiting = len(self._settler)
        phase = self._stop.advance(monotonic(), len(self._fleet.busy()), waiting)
        if phase is Phase.KILLING and before is not Phase.KILLING:
            self._kill_what_runs(Reason.INTERRUPT)

    def _note_the_turn(self) -> None:
        now = monotonic()
        self._metrics.lagged(max(0.0, now - self._condition.turned_at - self._turn))
        self._condition.turned_at = now
        self._attempts.say_unsaid()
        self._metrics.degraded(self._fleet.degraded)
        if not self._was_ready and not self._report.not_ready():
            self._was_ready = True
            self._log.say(Event.READY)
        some_ready = self._report.ready_slots() > 0
        if some_ready != self._some_ready:
            self._some_ready = some_ready
            self._lease.hurry()
        self._service.turned(now)

    def _next_due(self) -> float:
        """The next thing that is due although nothing happens."""
        self._condition.resting = not (self._fleet.busy() or self._stop.begun)
        self._turn = LONGEST_REST if self._condition.resting else LONGEST_TURN
        due = [monotonic() + self._turn, self._hand_back_at, self._service.next_due()]
        deadline = self._deadlines.next_due()
        if deadline is not None:
            due.append(deadline / 1e9)
        stop = self._stop.next_due()
        if stop is not None:
            due.append(stop)
        return min(due)

    # Opening and closing -------------------------------------------------------------------------

    async def _open(self) -> None:
        settings = self._settings
        self._log.say(
            Event.STARTED, host=settings.host, slots=self._wanted, version=self._identity.version
        )
        if self._http is not None:  # first, because it may refuse, and leaves nothing behind then
            await self._http.start()
            self._log.say(Event.LISTENING, address=str(self._http.address))
        await self._control.start()
        self._fleet.start()
        if (groups := self._fleet.groups) is not None:
            self._log.say(Event.CONTROL_GROUPS, sentence=groups.sentence)

    async def _close(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Leaves nothing behind: no process, no claim, no session, no lock, no socket."""
        self._signals.hold()
        self._service.closing()
        self._fleet.quiet_stop()
        self._fleet.kill_all(Reason.STOP)
        try:
            async with asyncio.timeout(10):
                await self._fleet.wait_empty()
        except TimeoutError:
            pass  # a process that even SIGKILL does not end is the kernel's
        self._fleet.close()
        await self._fleet.leave_nobody()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._service.closing()
        await self._end_session()
        for link in self._links.values():
            await link.close()
        await self._control.close()
        if self._http is not None:
            await self._http.close()
        if self._attempts.interrupted and self._exit_code == EXIT_DONE:
            self._exit_code = EXIT_PARTLY
        self._attempts.say_unsaid(last=True)
        self._log.say(
            Event.STOPPED, interrupted=self._attempts.interrupted,
            queued_again=self._attempts.queued_again,
        )  # fmt: skip
        self._log.close()
        self._notify.close()

    async def _end_session(self) -> None:
        """Only if all is written: a session that still holds claims must expire, not vanish."""
        if not self._lease.session_id or len(self._settler) or self._exit_code == EXIT_FAILED:
            return
        try:
            async with asyncio.timeout(5):
                await self._links["lease"].connect()
                await self._lease.end()
                if self._condition.led:
                    # The others need not find out by themselves that nobody leads.
                    await self._links["lease"].run("announce")
        except Exception as error:  # the lease ends by itself then
            self._log.say(Event.DATABASE_LOST, link="lease", error=str(error))

    def _part(self, name: str, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that must never end by itself. If it does, nothing here can be trusted."""

        async def watched() -> None:
            try:
                await part
            except (SchemaError, DsnError) as error:
                self._log.say(Event.CONFIGURATION_REFUSED, error=str(error))
                self._exit_code = EXIT_CONFIGURATION
                self._begin_stop("a configuration that cannot work", self._settings.drain_timeout)
            except Exception:
                self._on_part_failed(name)

        return asyncio.create_task(watched(), name=name)

    def _on_part_failed(self, part: str) -> None:
        self._log.say(Event.PART_FAILED, part=part, stack=traceback.format_exc())
        self._exit_code = EXIT_FAILED
        self._begin_stop(f"{part} failed", 0.0)

    def _begin_reload(self) -> None:
        self._condition.load_error = None
        self._log.say(Event.RELOADING)
        self._fleet.reload()
        self._alarm.set()

    def _begin_stop(self, because: str, patience: float) -> None:
        said = {
            "because": because, "busy": len(self._fleet.busy()), "patience": f"{patience:g} s",
        }  # fmt: skip
        before = self._stop.patience_ends
        if self._stop.begin(because, monotonic(), patience):
            self._log.say(Event.STOPPING, **said)
            self._draining.leave()
        elif self._stop.patience_ends < before and self._stop.phase is Phase.DRAINING:
            self._log.say(Event.STOPPING_SOONER, **said)
        else:
            self._log.say(Event.SIGNAL_REPEATED, signal=because)
        self._alarm.set()

    def _kill_what_runs(self, reason: Reason) -> None:
        self._dispatcher.hand_back_all()
        for slot in self._fleet.busy():
            self._fleet.kill(slot, reason)

    # What slots say (listener.py) ----------------------------------------------------------------

    def on_types(self, generation: int, types: list[JobType], crons: list[CronSpec]) -> None:
        self._code.learn(generation, types)
        self._condition.load_error = None
        self._dispatcher.backstop = self._code.longest_timeout() + self._allowance
        self._metrics.know(types)
        self._lease.errand("register_types", types=json.dumps([one.to_dict() for one in types]))
        self._crons.learn(crons)
        self._declare_crons()
        self._lease.hurry()
        self._dispatcher.start_over()

    def on_idle(self, slot: Slot) -> None:
        self._dispatcher.feed(slot)

    def on_done(self, slot: Slot, running: Running, done: Done) -> None:
        self._attempts.on_done(slot, running, done)
        if self._stop.begun:
            self._alarm.set()

    def on_ended(self, slot: Slot, running: Running, body: dict[str, Any]) -> None:
        self._attempts.on_ended(slot, running, body)
        if self._stop.begun:
            self._alarm.set()

    def on_note(self, slot: Slot, running: Running | None, body: dict[str, Any]) -> None:
        if "left" in body and running is not None:
            self._remarks.job_left(slot, running, body)

    def on_death(self, slot: Slot, running: Running | None, death: Death) -> None:
        wanted = death.reason in (Reason.RECYCLE, Reason.RELOAD, Reason.STOP)
        event = Event.SLOT_LEFT if wanted else Event.SLOT_DIED
        self._log.say(event, slot=slot.number, pid=slot.pid, sentence=death.sentence)
        self._metrics.slot_gone(slot.pool, death.reason)
        if running is not None:
            self._attempts.on_death(slot, running, death)
        self._alarm.set()

    def on_output(self, slot: Slot | None, job_id: int | None, line: str) -> None:
        self._relay.pass_on(slot, job_id, line)

    def on_load_failed(self, failure: LoadFailure) -> None:
        self._condition.load_error = failure.words
        self._log.say(
            Event.APP_FAILED,
            error_class=failure.error_class,
            error=failure.message,
            stack=failure.stack,
        )
        if failure.permanent and not failure.reloading and not self._code.known:
            self._exit_code = EXIT_CONFIGURATION
            self._begin_stop("an app that does not exist", 0.0)

    def on_notice(self, notice: Notice, slot: Slot | None, sentence: str) -> None:
        event = _NO_WARNINGS.get(notice, Event.FLEET_NOTICE)
        number = None if slot is None else slot.number
        self._log.say(event, notice=notice.value, slot=number, sentence=sentence)
        self._alarm.set()

    # What the lease tells (leases.py) ------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        return {
            "draining": self._condition.draining,
            "busy": len(self._fleet.busy()),
            "ready": self._report.ready_slots(),
            "leader": self._leader.leads,
            "types": sorted(self._code.types()),
        }

    def on_session(self, session_id: int) -> None:
        self._log.say(Event.SESSION_REGISTERED, session=session_id)
        self._condition.seen_at = monotonic()
        self._dispatcher.session_id = session_id
        self._dispatcher.start_over()
        self._declare_crons()

    def on_session_lost(self) -> None:
        self._log.say(Event.SESSION_LOST, busy=len(self._fleet.busy()))
        self._dispatcher.forget_all()
        for slot in self._fleet.busy():
            self._fleet.kill(slot, Reason.LOST)

    async def on_earlier_sessions_dead(self, count: int, link: Link) -> None:
        self._log.say(Event.EARLIER_SESSIONS_DEAD, count=count)
        await reclaim(link, self._leading.settle, self._leading.pending)

    def on_refused(self, statement: str, error: psycopg.Error) -> None:
        self._log.say(Event.DATABASE_REFUSED, statement=statement, error=first_line(error))

    def on_renewal(self, result: str) -> None:
        self._metrics.renewed(result)
        if result == "renewed":
            self._condition.seen_at = monotonic()
        self._alarm.set()

    def on_told(self, drain_requested: bool, another_leads: bool) -> None:
        led, self._condition.another_leads = self._condition.another_leads, another_leads
        if led and not another_leads:
            self._leader.try_now()
        self._draining.told(drain_requested)

    def on_cancels(self, rows: Sequence[Row]) -> None:
        self._cancels.learn(self._lease.session_id, rows)

    def on_ring(self) -> None:
        self._dispatcher.ring()

    def on_announcement(self) -> None:
        self._dispatcher.reread()
        self._lease.hurry()
        self._cron.look_again()
        self._leader.hurry("cron")

    # What the leader tells (leader.py) ------------------------------------------------------------

    def _declare_crons(self) -> None:
        """Once there is a session and the app is known, and whenever either is another."""
        session = self._lease.session_id
        if session and self._crons.known:
            crons = json.dumps([one.to_dict() for one in self._crons.declared()])
            self._lease.errand("declare_crons", session=session, crons=crons)

    def _on_leading(self, leads: bool) -> None:
        self._log.say(Event.LEADING if leads else Event.NOT_LEADING)
        self._metrics.leading(leads)
        self._lease.hurry()
        self._condition.backlog = None
        if not leads:
            self._condition.led = True

    def _on_duty_failed(self, duty: str, error: BaseException) -> None:
        self._metrics.duty_failed(duty)
        self._log.say(Event.DUTY_FAILED, duty=duty, error=first_line(error))

    # Links ---------------------------------------------------------------------------------------

    def _on_statement(self, statement: str, seconds: float) -> None:
        self._metrics.statement(statement, seconds)

    def _on_link(self, link: str, error: str | None) -> None:
        """A connection was lost, or (None) is there again."""
        self._condition.away_at = boottime()
        if error is None:
            self._condition.down.discard(link)
            self._log.say(Event.DATABASE_BACK, link=link)
        else:
            self._condition.down.add(link)
            self._log.say(Event.DATABASE_LOST, link=link, error=error)

    # What people ask (control.py, http.py) -------------------------------------------------------

    async def _drain(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self._draining.drain()
        return self._report.state()

    async def _undrain(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self._draining.undrain()
        return self._report.state()

    async def _exit(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self._begin_stop("jobctl drain --exit", self._settings.drain_timeout)
        return self._report.state()

    async def _reload(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._stop.begun:
            raise Refusal("it is stopping, and takes no new code")
        self._begin_reload()
        return self._report.state()

    async def _status(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._report.state()
