"""The nursery: keeps one template alive, whatever its app does when it is imported.

Slots live on without it, so nothing here is urgent: a template that dies is followed by another,
more and more rarely while they go on dying. Every template is a generation of its own, because it
may have imported newer code than the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from jobctl.supervisor.backoff import Backoff
from jobctl.supervisor.exits import ExitCode
from jobctl.supervisor.listener import LoadFailure, Notice
from jobctl.supervisor.slot import Slot
from jobctl.supervisor.template import Declared, Template, TemplateOrder, TemplateStage


@dataclass(frozen=True, slots=True)
class Upbringing:
    """How templates are started. Seconds."""

    app: str
    preload: bool
    environment: Mapping[str, str]
    load_timeout: float
    dump_grace: float
    healthy_after: float
    access: Mapping[str, str] | None = field(default=None, repr=False)


class Parent(Protocol):
    """Whom the nursery serves: the fleet."""

    def template_ready(self, template: Template) -> None:
        """Slots can be forked from it."""

    def template_gone(self, template: Template) -> None:
        """It will fork nothing more; what it had not answered for is in `pending`."""

    def slot_spawned(self, life: int, pid: int, why: str) -> None:
        """The process of a slot exists; pid 0: it could not be forked."""

    def load_failed(self, failure: LoadFailure) -> None:
        """The app could not be imported."""

    def say(self, notice: Notice, slot: Slot | None, sentence: str) -> None:
        """Something worth logging happened."""

    def template_printed(self, line: str) -> None:
        """A line of its output."""


class Nursery:
    """The current template, and while a reload is tried, the one that may follow it."""

    def __init__(
        self, upbringing: Upbringing, parent: Parent, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.current: Template | None = None
        self.next: Template | None = None  # of a reload that is not decided yet
        self.failures = 0  # imports that failed since the last one that did not
        self._upbringing = upbringing
        self._parent = parent
        self._loop = loop
        self._generation = 0
        self._preload = upbringing.preload
        self._known: Declared | None = None  # of an import that had to be done again
        self._backoff = Backoff()
        self._timer: asyncio.TimerHandle | None = None
        self._load_timer: asyncio.TimerHandle | None = None
        self._living: set[Template] = set()
        self._ready_at = 0.0
        self._closed = False

    def start(self) -> None:
        """Asks for the current template."""
        self._timer = None
        if self._closed or self.current is not None:
            return
        self.current = self._start()
        if self.current is None:
            self._start_later()

    def start_next(self) -> bool:
        """Asks for a template that may follow the current one. False if it cannot be started."""
        self._preload = self._upbringing.preload  # newer code may have no threads any more
        self.next = self._start()
        return self.next is not None

    def adopt_next(self) -> None:
        """The next template is the current one now; the one before has served."""
        former, self.current, self.next = self.current, self.next, None
        if former is not None:
            former.strike()

    def drop_next(self) -> None:
        """The reload failed."""
        former, self.next = self.next, None
        if former is not None:
            former.strike()

    def pids(self) -> list[int]:
        """Of all templates that are not reaped."""
        return [template.pid for template in self._living]

    def expects_births(self) -> bool:
        """Whether a slot's process may exist whose number has not been told yet."""
        return any(template.pending for template in self._living)

    def close(self) -> None:
        """Ends all templates; `template_gone` follows for each."""
        self._closed = True
        self._cancel_timers()
        for template in list(self._living):
            template.strike()

    @property
    def empty(self) -> bool:
        """No template process is left."""
        return not self._living

    def template_loaded(self, template: Template, threads: int) -> None:
        """Called by the template. With threads about, it must not fork: another imports nothing."""
        self._cancel_load_timer()
        if template.order.preload and threads > 1:
            self._preload = False
            self._known = template.declared
            self._parent.say(
                Notice.THREADS_AT_IMPORT,
                None,
                f"importing {template.order.app} left {threads - 1} more threads running, and a "
                "process with threads must not be forked: each slot imports it for itself instead, "
                "which costs time and memory. Start threads when the first job runs, or set "
                "preload = false to say that this is wanted",
            )
            self._replace(template)
            return
        if template.declared is None:
            template.declared, self._known = self._known, None
        self._ready_at = self._loop.time()
        self.failures = 0
        self._parent.template_ready(template)

    def template_failed(self, template: Template, body: dict[str, Any]) -> None:
        """Called by the template."""
        self._cancel_load_timer()
        self._report(template, load_failure(template.generation, body, template is self.next))

    def slot_spawned(self, template: Template, life: int, pid: int, why: str) -> None:
        """Called by the template."""
        self._parent.slot_spawned(life, pid, why)

    def template_exited(self, template: Template) -> None:
        """Called by the template."""
        self._living.discard(template)
        wanted = template is self.current or template is self.next
        if wanted and template is not self.next:
            self._miss(template)
        elif wanted and not template.failed:
            self._report(template, _death_at_load(template, reloading=True))
        if template is self.current:
            self.current = None
        self._parent.template_gone(template)
        if template is self.next:
            self.next = None
        if self.current is None:
            self._start_later()

    def template_printed(self, line: str) -> None:
        """Called by the template."""
        self._parent.template_printed(line)

    def _start(self) -> Template | None:
        self._generation += 1
        how = self._upbringing
        order = TemplateOrder(
            app=how.app,
            generation=self._generation,
            preload=self._preload,
            environment=how.environment,
            access=how.access,
        )
        try:
            template = Template(order, self, self._loop)
        except OSError as error:
            sentence = f"the template could not be started: {error}"
            self._parent.say(Notice.TEMPLATE_LOST, None, sentence)
            return None
        self._living.add(template)
        self._cancel_load_timer()
        self._load_timer = self._loop.call_later(how.load_timeout, self._load_hangs, template)
        return template

    def _replace(self, template: Template) -> None:
        """Another one in the same role."""
        successor = self._start()
        if template is self.next:
            self.next = successor
        else:
            self.current = successor
            if successor is None:
                self._start_later()
        template.strike()

    def _start_later(self) -> None:
        if self._closed or self._timer is not None:
            return
        if self._ready_at and self._loop.time() - self._ready_at > self._upbringing.healthy_after:
            self._backoff.reset()
        self._ready_at = 0.0
        self._timer = self._loop.call_later(self._backoff.next_delay(), self.start)

    def _miss(self, template: Template) -> None:
        """The current template is dead."""
        if template.failed or self._closed:
            return
        if template.declared is None and template.order.preload:
            self._report(template, _death_at_load(template, reloading=False))
            return
        self._parent.say(
            Notice.TEMPLATE_LOST,
            None,
            f"the template (process {template.pid}) {template.exit.sentence}; slots live on and "
            "another template is started",
        )

    def _report(self, template: Template, failure: LoadFailure) -> None:
        self.failures += 1
        self._parent.load_failed(failure)

    def _load_hangs(self, template: Template) -> None:
        """Its stacks go to its output, then it is killed."""
        self._load_timer = None
        if template.stage is TemplateStage.LOADING:
            template.too_slow = True
            template.dump()
            self._loop.call_later(self._upbringing.dump_grace, template.strike)

    def _cancel_load_timer(self) -> None:
        if self._load_timer is not None:
            self._load_timer.cancel()
            self._load_timer = None

    def _cancel_timers(self) -> None:
        self._cancel_load_timer()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def load_failure(generation: int, body: dict[str, Any], reloading: bool) -> LoadFailure:
    """A FAILED frame's body; it comes from a stranger, so every word is made one."""
    return LoadFailure(
        generation=generation,
        error_class=str(body.get("class", "Exception")),
        message=str(body.get("message", "")),
        stack=str(body.get("stack", "")),
        permanent=body.get("missing_app") is True,
        reloading=reloading,
    )


def _death_at_load(template: Template, *, reloading: bool) -> LoadFailure:
    message = (
        f"importing {template.order.app} took too long; where it was stands in the template's "
        "output"
        if template.too_slow
        else f"the template {template.exit.sentence} while it imported {template.order.app}"
    )
    return LoadFailure(
        generation=template.generation,
        error_class="ImportTimeout" if template.too_slow else "ImportCrash",
        message=message,
        stack="",
        permanent=template.exit.code == ExitCode.CONFIGURATION,
        reloading=reloading,
    )
