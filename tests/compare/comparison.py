"""Works off the runs of a comparison, a few side by side, each in a process of its own.

It ends by itself: every run has its limit, and all together have theirs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import psycopg
from psycopg import sql

from jobctl.store.embedded import EmbeddedPostgres
from tests.compare.ground import ROOT
from tests.compare.order import Order
from tests.compare.result import KINDS, Result
from tests.compare.scenarios import hard_limit

NAP = 0.1
TOTAL = 23 * 60.0
LEAVE = 30.0


@dataclass
class Running:
    """A run in its own process (run.py)."""

    order: Order
    process: subprocess.Popen[str]
    begun: float


class Comparison:
    """Works off the runs, a few at a time, and keeps what they have shown."""

    def __init__(self, server: EmbeddedPostgres, at_once: int) -> None:
        self._server = server
        self._at_once = at_once
        self._begun = monotonic()
        self._running: list[Running] = []
        self.results: dict[str, dict[str, Result]] = {}
        self.failures: list[str] = []

    def work_off(self, orders: Sequence[Order]) -> None:
        """Returns when all have ended or the time is over."""
        waiting = list(orders)
        try:
            while waiting or self._running:
                if monotonic() - self._begun > TOTAL:
                    left = [*waiting, *(each.order for each in self._running)]
                    self.failures += [f"{_name(each)}: the time was over" for each in left]
                    return
                while waiting and len(self._running) < self._at_once:
                    self._start(waiting.pop(0))
                self._collect()
                time.sleep(NAP)
        finally:
            self._end_all()

    def _start(self, order: Order) -> None:
        order.terms.folder.mkdir(parents=True)
        name = re.sub(r"\W", "_", _name(order))
        with psycopg.connect(self._server.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        order = replace(order, terms=replace(order.terms, dsn=self._server.dsn(name)))
        command = [sys.executable, "-m", "tests.compare.run", order.to_json()]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        self._running.append(Running(order, process, monotonic()))

    def _collect(self) -> None:
        for each in list(self._running):
            terms, scenario, system = each.order.terms, each.order.scenario, each.order.system
            if each.process.poll() is not None:
                self._running.remove(each)
                self._keep(each)
            elif monotonic() - each.begun > hard_limit(system, scenario, terms):
                self._running.remove(each)
                self._end(each)
                self._fail(each.order, "it did not end and was ended")

    def _keep(self, each: Running) -> None:
        assert each.process.stdout is not None
        told = each.process.stdout.read().strip()
        answer: dict[str, Any] = json.loads(told) if told else {"error": "its run broke off"}
        if "error" in answer:
            self._fail(each.order, answer["error"])
            return
        result = KINDS[answer["kind"]](**answer["result"])
        system = each.order.system.name
        self.results.setdefault(system, {})[each.order.scenario.name] = result
        self._say(f"{_name(each.order)}: done in {monotonic() - each.begun:.0f} s")

    def _fail(self, order: Order, why: str) -> None:
        self.failures.append(f"{_name(order)}: {why}")
        self._say(self.failures[-1])

    def _say(self, text: str) -> None:
        print(f"{monotonic() - self._begun:6.0f} s  {text}", file=sys.stderr, flush=True)  # noqa: T201

    def _end(self, each: Running) -> None:
        each.process.terminate()  # it ends all that it has started
        try:
            each.process.wait(timeout=LEAVE)
        except subprocess.TimeoutExpired:
            each.process.kill()
            each.process.wait()

    def _end_all(self) -> None:
        for each in self._running:
            each.process.terminate()
        for each in self._running:
            self._end(each)


def _name(order: Order) -> str:
    return f"{order.system.name}: {order.scenario.name}"
