"""The template: imports the app once and forks slots from that.

One thread, no event loop, no database, nothing but this loop: a fork of it is a fork of something
still. It is started by exec and never by fork, so the first, its replacement and the next
generation are equally clean. It does not know what becomes of the slots: they are the
supervisor's children, and its own death harms none of them.

    python -m jobctl.workerproc.template '{"app": …, "generation": …, "preload": …,
                                           "supervisor": pid}'
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from setproctitle import setproctitle

from jobctl.workerproc import frames, launch, linux, loading
from jobctl.workerproc.access import Access
from jobctl.workerproc.frames import Kind
from jobctl.workerproc.registry import Registry
from jobctl.workerproc.slot import Birth, flush_output, live

#: How long the process between the template and a slot may take to do nothing.
_FORK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Order:
    """What the supervisor wants of this template."""

    app: str
    generation: int
    preload: bool
    supervisor: int  # its pid


def main() -> NoReturn:
    """Leaves by `os._exit` only: nobody's exit hooks run in a process that forks others."""
    code = launch.EXIT_INTERNAL
    try:
        order = Order(**json.loads(sys.argv[1]))
        del sys.argv[1:]
        code = _run(order, socket.socket(fileno=launch.TEMPLATE_CONTROL))
    except BrokenPipeError:
        code = launch.EXIT_ORPHANED
    except BaseException:  # the last door: nothing above is left to report to
        sys.excepthook(*sys.exc_info())
    finally:
        flush_output()
        os._exit(code)


def _run(order: Order, control: socket.socket) -> int:
    linux.die_with_parent()
    if os.getppid() != order.supervisor:
        return launch.EXIT_ORPHANED
    os.set_inheritable(launch.TEMPLATE_CONTROL, False)
    setproctitle("jobctl: template")
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _no_op)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2, all_threads=True, chain=False)
    launch.drop_supervisors_own(os.environ)
    registry: Registry | None = None
    if order.preload:
        try:
            registry = loading.load(order.app)
        except loading.LoadError as error:
            frames.send(control, frames.pack(Kind.FAILED, error.body))
            return error.exit_code
    threads = linux.thread_count()
    body = {**_declared(registry), "threads": threads, "preload": registry is not None}
    frames.send(control, frames.pack(Kind.LOADED, body))
    # A collection in a slot would write to every page that it shares with the template.
    gc.disable()
    gc.collect()
    gc.freeze()
    _serve(order, control, registry)
    return launch.EXIT_CLEAN


def _serve(order: Order, control: socket.socket, registry: Registry | None) -> None:
    """Forks a slot for each SPAWN until the supervisor closes the socket."""
    inbox = frames.Inbox(len(launch.SPAWN_DESCRIPTORS))
    access: dict[str, str] | None = None
    while True:
        frame, descriptors = inbox.receive(control)
        if not frame:
            return
        body = frames.unpack(frame)
        if frames.kind_of(frame) is Kind.ACCESS:
            access = body
            continue
        birth = Birth(
            app=order.app,
            registry=registry,
            supervisor=order.supervisor,
            generation=order.generation,
            number=body["slot"],
            life=body["life"],
            mark=body["mark"],
            group=body["group"],
            share=launch.Share(*body["share"]),
            access=_access(access, body["slot"]),
            **dict(zip(launch.SPAWN_DESCRIPTORS, descriptors, strict=True)),
        )
        try:
            spawned = {"life": birth.life, "pid": _spawn(birth), "why": ""}
        except OSError as error:
            spawned = {"life": birth.life, "pid": 0, "why": f"fork: {error}"}
        frames.close_descriptors(descriptors)
        frames.send(control, frames.pack(Kind.SPAWNED, spawned))


def _access(told: dict[str, str] | None, slot: int) -> Access | None:
    if told is None:
        return None
    return Access(told["dsn"], told["schema"], f"jobctl {told['host']}:{slot}")


def _spawn(birth: Birth) -> int:
    """Forks a slot by way of a process that ends at once, so that the supervisor adopts it.

    Raises OSError when the system has no process to give.
    """
    flush_output()  # what is in a buffer now would be printed by the slot as well
    answer, question = os.pipe()
    # No signal may reach the slot before its own handlers are in place.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        middle = os.fork()
        if middle == 0:
            _be_between(birth, question)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(question)
    try:
        return _pid_of_slot(middle, answer)
    finally:
        os.close(answer)


def _be_between(birth: Birth, question: int) -> NoReturn:
    """The process in between: its end makes the slot the supervisor's child."""
    code = launch.EXIT_INTERNAL
    try:
        slot = os.fork()
        if slot == 0:
            os.close(question)
            live(birth)
        os.write(question, slot.to_bytes(8, "little"))
        code = launch.EXIT_CLEAN
    except OSError as error:
        os.write(question, (-(error.errno or 1)).to_bytes(8, "little", signed=True))
    finally:
        os._exit(code)


def _pid_of_slot(middle: int, answer: int) -> int:
    """What the process in between says, once it is gone; if it hangs, it is killed."""
    until = time.monotonic() + _FORK_SECONDS
    pidfd = os.pidfd_open(middle)
    try:
        poll = select.poll()
        poll.register(answer, select.POLLIN)
        poll.poll(round(_FORK_SECONDS * 1000))
        if not linux.wait_for_exit(pidfd, max(until - time.monotonic(), 0.0)):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.waitpid(middle, 0)
        os.set_blocking(answer, False)
        try:
            said = int.from_bytes(os.read(answer, 8), "little", signed=True)
        except BlockingIOError:
            said = 0
        if said <= 0:
            raise OSError(-said, os.strerror(-said) if said else "the child did not answer")
        return said
    finally:
        os.close(pidfd)


def _declared(registry: Registry | None) -> dict[str, Any]:
    return {"types": [], "crons": []} if registry is None else registry.declared()


def _no_op(signum: int, frame: object) -> None:
    """A function, because SIG_IGN would be inherited by whatever the app executes."""


if __name__ == "__main__":
    main()
