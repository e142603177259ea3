"""The long form of what is shown about leaders and crons: `make cron-soak`.

    python -m tests.system.cron_soak [--minutes 5] [--only zones|storm|changes]

Three parts. *zones*: every IANA zone whose clocks change, three years, against another way of
working it out. *storm*: three supervisors and a usurper with the same crons of every second, while
leaders are killed, frozen, cut off, told to leave and doubled, and two hosts' clocks are wrong by
minutes. *changes*: how long it takes until somebody else leads. Prints figures; exits 0 only if
no planned time was fired twice or left out, and nobody had to be waited for longer than 30 s.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from zoneinfo import available_timezones

from jobctl.store.cluster import DATABASE, PORT, ROLE
from jobctl.store.embedded import EmbeddedPostgres
from jobctl.store.migrate import migrate
from jobctl.workerproc import linux
from tests.servers import FAST, chosen_bindir, guarded_folder
from tests.store import test_schedule, zones
from tests.system.cut import Cut
from tests.system.host import Host, Hosts, jobs_of
from tests.system.ledger import books
from tests.system.test_cron import USURPER, leaders
from tests.waiting import until

LONGEST_CHANGE = 30.0
#: A duration of the storm between two faults.
BETWEEN = 8.0
EXPRESSIONS = ("30 2 * * *", "0 0 L * *", "*/30 * * * *")
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
SETTINGS = {**FAST, "synchronous_commit": "on"}
SLOTS = ("--slots", "2")


def say(text: str) -> None:
    """One line."""
    print(text, flush=True)  # noqa: T201 - that is what it is run for


# Zones -------------------------------------------------------------------------------------------


def every_zone() -> list[str]:
    """Returns what is wrong: nothing, or it would have raised."""
    begun = monotonic()
    since, until_ = test_schedule.SINCE, test_schedule.UNTIL
    changing = zones.changing_zones(since, until_)
    kinds = zones.distinct(changing)
    with ProcessPoolExecutor() as processes:
        counts = list(processes.map(_one_zone, changing))
    fixed, half_hours = (sum(count) for count in zip(*counts, strict=True))
    say(
        f"zones: {len(changing)} of {len(available_timezones())} change their clocks in three "
        f"years, {len(kinds)} in ways of their own; in each of them {', '.join(EXPRESSIONS)} for "
        f"three years: {fixed + half_hours:,} times compared, {half_hours:,} of them half hours, "
        f"all equal ({monotonic() - begun:.0f} s)"
    )
    return []


def _one_zone(name: str) -> tuple[int, int]:
    """How many times at fixed hours, and how many half hours, were compared."""
    half_hours = test_schedule.compare_half_hours(name, test_schedule.SINCE, test_schedule.UNTIL)
    return test_schedule.compare_fixed_times(name), half_hours


# The storm ---------------------------------------------------------------------------------------


class Storm:
    """Hosts, and what is done to them."""

    def __init__(self, server: EmbeddedPostgres, folder: Path, chance: random.Random) -> None:
        self.server = server
        self.folder = folder
        self.chance = chance
        self.hosts = Hosts(server.dsn(), folder)
        self.fleet: dict[str, Host] = {}
        self.cuts: dict[str, Cut] = {}
        self.done: dict[str, int] = {}
        for name in ("fast", "slow", "right"):
            self.cuts[name] = Cut(folder / f"cut-{name}", server.cluster.run)
            self.start(name)

    def start(self, name: str) -> None:
        """This host, behind its own wire and with its own idea of the time."""
        skew = {"fast": "+7m", "slow": "-4m"}.get(name)
        environ = {}
        if skew is not None and FAKETIME.exists():
            environ = {
                "LD_PRELOAD": str(FAKETIME), "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_DISABLE_SHM": "1",
            }  # fmt: skip
        dsn = f"postgresql://{ROLE}@/{DATABASE}?host={self.folder / f'cut-{name}'}"
        self.fleet[name] = self.hosts.start(
            name, *SLOTS, "--lease", "20s", app="crons", environ=environ, dsn=dsn
        )

    def leader(self) -> str:
        """Who leads; waits until somebody does."""
        begun = monotonic()
        found: list[Host] = []

        def one_leads() -> bool:
            found[:] = leaders(list(self.fleet.values()))
            return bool(found)

        until(one_leads, within=LONGEST_CHANGE + 15, what="a leader")
        if monotonic() - begun > LONGEST_CHANGE:
            say(f"        nobody led for {monotonic() - begun:.1f} s")
        return found[0].name

    def fault(self, name: str) -> None:
        """One of them, from beginning to end."""
        leader = self.leader()
        say(f"        {name}: {leader}")
        self.done[name] = self.done.get(name, 0) + 1
        getattr(self, f"_{name}")(leader)

    def _killed(self, leader: str) -> None:
        self.fleet[leader].kill()
        sleep(self.chance.uniform(0, 6))
        self.start(leader)

    def _frozen(self, leader: str) -> None:
        self.fleet[leader].send(signal.SIGSTOP)
        sleep(self.chance.uniform(15, 30))
        self.fleet[leader].send(signal.SIGCONT)

    def _cut_off(self, leader: str) -> None:
        self.cuts[leader].hold()
        sleep(self.chance.uniform(15, 30))
        self.cuts[leader].release()

    def _told_to_leave(self, leader: str) -> None:
        self.fleet[leader].stop()
        self.start(leader)

    def _without_its_connection(self, leader: str) -> None:
        with jobs_of(self.server.dsn()) as jobs:
            jobs.connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name LIKE 'jobctl %% lead'"
            )

    def _doubled(self, leader: str) -> None:
        usurper = self.hosts.start("usurper", *SLOTS, app="crons", program=USURPER)
        sleep(self.chance.uniform(12, 20))
        usurper.stop() if self.chance.random() < 0.5 else usurper.kill()


FAULTS = ("doubled", "killed", "frozen", "cut_off", "without_its_connection", "told_to_leave")


def storm(minutes: float, seed: int) -> list[str]:
    """Returns what is wrong."""
    chance = random.Random(seed)
    say(f"storm: {minutes:g} minutes, seed {seed}")
    if not FAKETIME.exists():
        say("        clocks are not skewed: there is no libfaketime here")
    with _server("storm") as server, tempfile.TemporaryDirectory(prefix="jobctl-storm-") as folder:
        weather = Storm(server, Path(folder), chance)
        try:
            for host in weather.fleet.values():
                host.ready()
            until_ = monotonic() + minutes * 60
            order: list[str] = []
            while monotonic() < until_:
                if not order:
                    order = chance.sample(FAULTS, len(FAULTS))
                weather.fault(order.pop())
                sleep(chance.uniform(BETWEEN / 2, BETWEEN))
            weather.leader()
            sleep(BETWEEN)  # whatever was held up arrives, and is too late
            skews = [host.said("ready")[-1]["time"] for host in weather.fleet.values()]
            say(f"        the hosts' own clocks at their last start: {', '.join(skews)}")
            with jobs_of(server.dsn()) as jobs:
                for host in weather.fleet.values():
                    host.stop()
                jobs.nothing_is_misplaced()
        finally:
            weather.hosts.end()
            for cut in weather.cuts.values():
                cut.close()
        faults = ", ".join(f"{times} {name}" for name, times in sorted(weather.done.items()))
        say(f"        faults: {faults}")
        found = [books(server.dsn(), name) for name in ("tick", "tock")]
    for book in found:
        say(f"        {book}")
    return [sentence for book in found for sentence in book.wrong]


# Changes of the leader ---------------------------------------------------------------------------


def changes(times: int) -> list[str]:
    """Returns what is wrong."""
    say(f"changes of the leader ({times} each, two hosts, lease 60 s):")
    ways: dict[str, Callable[[Host], object]] = {
        "told to leave": lambda host: host.send(signal.SIGTERM),
        "kill -9": lambda host: host.process.kill(),
        "SIGSTOP": lambda host: host.send(signal.SIGSTOP),
    }
    wrong = []
    with _server("changes") as server:
        for name, way in ways.items():
            took = [_change(server.dsn(), way) for _ in range(times)]
            wrong += _told(name, took)
    if "JOBCTL_SOAK_NET" in os.environ:
        return wrong
    # A network of our own, in which there is nobody else.
    ended = subprocess.run(
        ["unshare", "--net", sys.executable, "-m", "tests.system.cron_soak", "--only", "cable",
         "--times", str(times)],
        env={**os.environ, "JOBCTL_SOAK_NET": "1"},
        check=False,
    )  # fmt: skip
    return [*wrong, *(["the cable, see above"] if ended.returncode == 1 else [])]


def cable(times: int) -> list[str]:
    """In a network namespace of its own: a second one for the host, and a wire between them."""
    took = []
    with ExitStack() as stack:
        try:
            inside, up = stack.enter_context(_wire())
        except (OSError, AssertionError, subprocess.CalledProcessError) as error:
            say(f"    cable pulled       not measured: no network namespace here ({error})")
            return []
        roots = stack.enter_context(guarded_folder())
        hba = roots / "hba"
        hba.write_text(f"local all all peer map={ROLE}\nhost all all 10.77.0.0/24 trust\n")
        hba.chmod(0o644)
        server = EmbeddedPostgres(
            roots / "cable",
            bindir=chosen_bindir(),
            settings={**SETTINGS, "listen_addresses": "10.77.0.1", "hba_file": str(hba)},
        )
        migrate(server.start())
        far = f"postgresql://{ROLE}@10.77.0.1:{PORT}/{DATABASE}"
        program = (*inside, sys.executable, "-m", "jobctl")
        for _ in range(times):
            up(True)
            took.append(
                _change(server.dsn(), lambda host: up(False), far={"dsn": far, "program": program})
            )
        up(True)
    return _told("cable pulled", took)


def _change(dsn: str, way: Callable[[Host], object], far: dict[str, object] | None = None) -> float:
    """Seconds from what is done to the leader until the other one leads."""
    with tempfile.TemporaryDirectory(prefix="jobctl-change-") as folder:
        hosts = Hosts(dsn, Path(folder))
        try:
            first = hosts.start("first", *SLOTS, app="crons", **(far or {})).ready()
            until(lambda: leaders([first]), what="the first to lead")
            second = hosts.start("second", *SLOTS, app="crons").ready()
            # It knows by now that somebody leads.
            until(lambda: second.said("session_registered"), what="the second")
            sleep(random.uniform(1, 4))
            begun = monotonic()
            way(first)
            until(lambda: leaders([second]), within=2 * LONGEST_CHANGE, what="the second to lead")
            took = monotonic() - begun
            if far is not None:
                first.kill()
            return took
        finally:
            hosts.end()


def _told(name: str, took: list[float]) -> list[str]:
    shown = ", ".join(f"{seconds:.1f}" for seconds in took)
    say(f"    {name:18} {shown} s")
    late = [seconds for seconds in took if seconds > LONGEST_CHANGE]
    return [f"{name}: {late} s until somebody else led"] if late else []


@contextmanager
def _wire() -> Iterator[tuple[tuple[str, ...], Callable[[bool], None]]]:
    """A namespace with a wire to it: the words to run something inside, and the wire's switch.

    Raises what `ip` or the kernel says against it.
    """
    holder = subprocess.Popen(
        ["unshare", "--net", "sleep", "3600"], preexec_fn=linux.die_with_parent
    )
    try:
        inside = ("nsenter", "--target", str(holder.pid), "--net")
        ours = Path("/proc/self/ns/net").readlink()
        until(lambda: Path(f"/proc/{holder.pid}/ns/net").readlink() != ours, within=5, what="it")
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "jobctl0", "type", "veth", "peer", "jobctl1", "netns", str(holder.pid))
        _ip("addr", "add", "10.77.0.1/24", "dev", "jobctl0")
        _ip("addr", "add", "10.77.0.2/24", "dev", "jobctl1", inside=inside)
        _ip("link", "set", "lo", "up", inside=inside)
        _ip("link", "set", "jobctl1", "up", inside=inside)
        yield inside, lambda on: _ip("link", "set", "jobctl0", "up" if on else "down")
    finally:
        holder.kill()
        holder.wait()


def _ip(*words: str, inside: tuple[str, ...] = ()) -> None:
    subprocess.run([*inside, "ip", *words], check=True, capture_output=True)


@contextmanager
def _server(name: str) -> Iterator[EmbeddedPostgres]:
    with guarded_folder() as roots:
        server = EmbeddedPostgres(roots / name, bindir=chosen_bindir(), settings=SETTINGS)
        migrate(server.start())
        yield server


def main() -> int:
    """0: all of it holds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", choices=("zones", "storm", "changes", "cable"))
    asked = parser.parse_args()
    parts: dict[str, Callable[[], list[str]]] = {
        "zones": every_zone,
        "storm": partial(storm, asked.minutes, asked.seed),
        "changes": partial(changes, asked.times),
        "cable": partial(cable, asked.times),
    }
    chosen = [asked.only] if asked.only else ["storm", "changes", "zones"]
    wrong = [sentence for name in chosen for sentence in parts[name]()]
    for sentence in wrong:
        say(f"WRONG: {sentence}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
