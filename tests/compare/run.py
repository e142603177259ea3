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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from time import monotonic
from typing import Any

from jobctl.bench.processes import descendants
from tests.compare.apps.terms import Terms
from tests.compare.ground import RunError
from tests.compare.order import Order
from tests.compare.stories import tell
from tests.system.host import alive

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

NAP = 0.05
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
REDIS_READY = 20.0


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
        end = monotonic() + REDIS_READY
        while not _listens(port):
            if server.poll() is not None or monotonic() > end:
                raise RunError(f"redis-server did not start; see {terms.folder}/redis.log")
            time.sleep(NAP)
        yield replace(terms, redis=f"redis://127.0.0.1:{port}/0")
    finally:
        server.terminate()
        server.wait(timeout=REDIS_READY)


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
    for number in ENDS:
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        for number in ENDS:
            signal.signal(number, signal.SIG_IGN)
        while left := alive(descendants(os.getpid())):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(NAP)


def main() -> int:
    """Prints {"kind", "result"} or {"error"}."""
    order = Order.from_json(sys.argv[1])
    with _nothing_left(), ExitStack() as stack:
        try:
            terms = stack.enter_context(_redis(order))
            result = tell(replace(order, terms=terms))
        except RunError as error:
            answer: dict[str, Any] = {"error": str(error)}
        else:
            answer = {"kind": type(result).__name__, "result": asdict(result)}
        print(json.dumps(answer), flush=True)  # noqa: T201 - the answer
    return 0


if __name__ == "__main__":
    sys.exit(main())
