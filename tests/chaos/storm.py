"""One run from nothing to a verdict."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psycopg

from jobctl.supervisor.duties import AMNESTY_SECONDS, GRACE_SECONDS
from jobctl.supervisor.leader import CALM_SECONDS
from tests.chaos import audit, cables
from tests.chaos.checker import Evidence, Verdict, check
from tests.chaos.history import History, read
from tests.chaos.hosts import ROOT, StormHost
from tests.chaos.nemesis import EVERYTHING, Nemesis
from tests.standby import Pair
from tests.waiting import until

#: What is enqueued, and how often.
KINDS: Mapping[str, int] = {
    "quick": 55, "slow": 14, "fail": 12, "crash": 5, "effect": 8, "leak": 4, "hang": 2,
}  # fmt: skip
#: What the handlers themselves may need once nothing disturbs them: retries, hangs, backoff.
HANDLERS_SECONDS = 20.0


@dataclass(frozen=True)
class Plan:
    """What a run is like. `bound`: how long after the last fault work may be unfinished."""

    seconds: float
    seed: int = 1
    hosts: int = 3
    cabled: int = 0  # of these, so many in network namespaces of their own, if that is possible
    slots: int = 2
    lease: float = 4.0
    enqueuers: int = 3
    pace: float = 0.5  # seconds between the transactions of one enqueuer
    kinds: Mapping[str, int] | None = None  # None: all
    longest_job: float = 2.5
    profile: Mapping[str, int] | None = None  # None: everything
    at_once: int = 2  # so many hosts at most have something done to them at a time
    promotion: bool = True
    bound: float | None = None

    def longest(self) -> float:
        """A host that is lost at the very end, and was the leader, after PostgreSQL was away."""
        if self.bound is not None:
            return self.bound
        leaderless = self.lease + CALM_SECONDS
        reaped = self.lease + GRACE_SECONDS + self.lease + AMNESTY_SECONDS
        return leaderless + reaped + HANDLERS_SECONDS


def run(plan: Plan, folder: Path, product: Path | None = None) -> Verdict:
    """The verdict; `product` is a folder with another `jobctl` in it (controls.py).

    `folder` must be short, for the sockets in it, and open to the server's user.
    """
    with _servers(folder, plan) as pair:
        audit.install(pair.primary.dsn())
        history = History(folder, "nemesis")
        hosts = _hosts(plan, pair, folder, product)
        try:
            verdict = _storm(plan, pair, folder, history, hosts)
        finally:
            codes = [host.end() for host in hosts]
        verdict.violations += [f"a host ended with {code}" for code in codes if code not in (0, 5)]
    return verdict


def _storm(
    plan: Plan, pair: Pair, folder: Path, history: History, hosts: list[StormHost]
) -> Verdict:
    profile = EVERYTHING if plan.profile is None else plan.profile
    nemesis = Nemesis(pair, hosts, plan.lease, history, Random(plan.seed), profile, plan.at_once)
    with _enqueuers(plan, pair, folder):
        nemesis.rage(plan.seconds, plan.promotion)
    nemesis.calm()
    died = [f"the supervisor of {host.name} died by itself" for host in hosts if host.dead()]
    calm_at = time.monotonic()
    with psycopg.connect(pair.primary.dsn(), autocommit=True) as connection:
        with suppress(AssertionError):  # the checker says which
            until(lambda: not audit.unfinished(connection), within=plan.longest(), what="all work")
        took = time.monotonic() - calm_at
        read_at, entries = audit.entries(connection)
        evidence = Evidence(
            read(folder),
            entries,
            audit.standings(connection),
            audit.misplaced(connection),
            read_at,
        )
    verdict = check(evidence)
    verdict.violations += died
    verdict.figures.update({f"fault: {what}": times for what, times in nemesis.done.items()})
    verdict.figures["milliseconds from the last fault to the last job"] = int(took * 1000)
    verdict.figures["connections in the worst second of a host"] = max(
        host.arrivals_in_the_worst_second() for host in hosts
    )
    return verdict


@contextmanager
def _servers(folder: Path, plan: Plan) -> Iterator[Pair]:
    if plan.cabled and cables.are_possible():
        pair = Pair(folder / "pg", addresses=cables.ADDRESSES, visitors=cables.VISITORS)
    else:
        pair = Pair(folder / "pg")
    try:
        yield pair
    finally:
        pair.destroy()


def _hosts(plan: Plan, pair: Pair, folder: Path, product: Path | None) -> list[StormHost]:
    options = ("--slots", str(plan.slots), "--lease", f"{plan.lease:g}s", "--kill-grace", "1s")
    cabled = plan.cabled if cables.are_possible() else 0
    hosts = [
        StormHost(
            f"h{number}", pair, folder, options, product,
            cables.Cable(number) if number < cabled else None,
        )
        for number in range(plan.hosts)
    ]  # fmt: skip
    for host in hosts:
        host.host.ready()
    return hosts


@contextmanager
def _enqueuers(plan: Plan, pair: Pair, folder: Path) -> Iterator[None]:
    environment = {
        **os.environ,
        "CHAOS_DSN": f"{pair.dsn()}&target_session_attrs=read-write",
        "CHAOS_FOLDER": str(folder),
        "CHAOS_SEED": str(plan.seed),
        "CHAOS_PACE": str(plan.pace),
        "CHAOS_KINDS": json.dumps(dict(plan.kinds or KINDS)),
        "CHAOS_LONGEST": str(plan.longest_job),
        "PYTHONPATH": str(ROOT),
    }
    processes = [
        subprocess.Popen(
            [*cables.MORTAL, sys.executable, "-m", "tests.chaos.enqueuer", f"e{number}"],
            env=environment,
        )
        for number in range(plan.enqueuers)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(30)
