"""Who does all this: picks faults by chance, from a seed, and takes each back in time."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

from jobctl.supervisor.duties import GRACE_SECONDS
from tests.chaos.history import History
from tests.chaos.hosts import StormHost
from tests.network import Weather
from tests.standby import Pair

#: What may happen, and how often. Each run has a profile; this is the whole of it.
EVERYTHING: Mapping[str, int] = {
    "kill": 10,
    "kill a slot": 15,
    "freeze": 8,
    "cut": 8,
    "black hole": 8,
    "deaf": 6,
    "refuse": 4,
    "slow": 10,
    "restart postgresql": 5,
    "outage": 2,
}
_OF_NETWORKS = frozenset({"cut", "black hole", "deaf", "refuse", "slow"})


class Nemesis:
    """Call `rage` once; then `calm`."""

    def __init__(
        self,
        pair: Pair,
        hosts: list[StormHost],
        lease: float,
        history: History,
        chance: Random,
        profile: Mapping[str, int],
        at_once: int,
    ) -> None:
        self.done: Counter[str] = Counter()
        self._pair = pair
        self._hosts = hosts
        self._lease = lease
        self._history = history
        self._chance = chance
        self._profile = profile
        self._at_once = at_once  # so many hosts at most have something done to them
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def rage(self, seconds: float, promotion: bool) -> None:
        begun = time.monotonic()
        promote_at = begun + seconds / 2 if promotion else float("inf")
        while (now := time.monotonic()) < begun + seconds:
            if now >= promote_at:
                promote_at = float("inf")
                self._promote()
            elif self._undo and self._undo[0][0] <= now:
                heapq.heappop(self._undo)[2]()
            elif self._profile:
                self._strike()
            next_undo = self._undo[0][0] if self._undo else float("inf")
            pause = self._chance.uniform(0.2, 1.5)
            time.sleep(max(0.0, min(pause, next_undo - time.monotonic())))

    def calm(self) -> None:
        while self._undo:
            heapq.heappop(self._undo)[2]()
        self._history.say("calm")

    def _strike(self) -> None:
        (fault,) = self._chance.choices(list(self._profile), list(self._profile.values()))
        if fault in ("restart postgresql", "outage"):
            self._postgresql(fault)
            return
        healthy = [host for host in self._hosts if not host.faulty]
        if len(self._hosts) - len(healthy) >= self._at_once:
            return
        self.done[fault] += 1
        host = self._chance.choice(healthy)
        if host.cable is not None and fault in _OF_NETWORKS:
            self.done[f"{fault}, on a cable"] += 1
        self._to(host, fault)

    def _postgresql(self, fault: str) -> None:
        self.done[fault] += 1
        self._history.say("fault", what=fault)
        self._pair.stop_primary()
        if fault == "outage":  # longer than a lease and the reaper's grace
            time.sleep(self._lease + GRACE_SECONDS + self._chance.uniform(1, 4))
        else:
            time.sleep(self._chance.uniform(0, 1.0))
        self._pair.primary.start()
        self._history.say("healed", what=fault)

    def _promote(self) -> None:
        self.done["promotion"] += 1
        self._history.say("fault", what="promotion")
        self._pair.promote()
        self._history.say("healed", what="promotion")

    def _to(self, host: StormHost, fault: str) -> None:
        chance, lease = self._chance, self._lease
        self._history.say("fault", what=fault, host=host.name)
        short = chance.uniform(0.3, lease / 2)
        long = lease + GRACE_SECONDS + chance.uniform(1, 10)
        match fault:
            case "kill":
                host.kill()
                self._later(host, chance.uniform(0, 3), host.restart)
            case "kill a slot":
                host.kill_a_slot(chance)
                self._later(host, 0.0, lambda: None)
            case "freeze":
                host.freeze()
                self._later(host, chance.choice([short, long]), lambda: host.thaw(self._history))
            case "cut":
                host.cut()
                self._later(host, 0.0, lambda: None)
            case "black hole" | "deaf" | "refuse":
                weather = {
                    "black hole": Weather.BLACK_HOLE,
                    "deaf": Weather.DEAF,
                    "refuse": Weather.REFUSING,
                }[fault]
                host.network(weather)
                fair = lambda: host.network(Weather.FAIR)  # noqa: E731 - said once, used once
                self._later(host, chance.choice([short, long]), fair)
            case "slow":
                host.network(Weather.FAIR, chance.uniform(0.02, 0.15))
                self._later(host, short * 2, lambda: host.network(Weather.FAIR))

    def _later(self, host: StormHost, seconds: float, undo: Callable[[], None]) -> None:
        host.faulty = True

        def healed() -> None:
            undo()
            host.faulty = False
            self._history.say("healed", host=host.name)

        entry = (time.monotonic() + seconds, next(self._order), healed)
        heapq.heappush(self._undo, entry)
