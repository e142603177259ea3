"""One supervisor of the storm with a network of its own, and what can be done to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

import jobctl
from jobctl.store.cluster import DATABASE, PORT, ROLE
from tests.chaos.cables import MORTAL, Cable
from tests.chaos.history import History
from tests.network import Proxy, Weather
from tests.standby import Pair
from tests.system.host import Host, alive

APPS = Path(__file__).with_name("apps")
ROOT = Path(__file__).parents[2]


class StormHost:
    """Its DSN names both servers, each behind a proxy of its own; or it has a cable to both."""

    def __init__(
        self,
        name: str,
        pair: Pair,
        folder: Path,
        options: tuple[str, ...],
        product: Path | None,
        cable: Cable | None = None,
    ) -> None:
        self.name = name
        self.faulty = False  # something is being done to it
        self._folder = folder
        self._options = options
        ours = Path(jobctl.__file__).parents[1]
        self._paths = [str(path) for path in (product or ours, APPS, ROOT)]
        self.cable = cable
        self.networks: list[Proxy] = []
        if cable is not None:
            self._dsn = cable.dsn
        else:
            self.networks = [
                Proxy(folder / f"{name}-{letter}", server.cluster.socket)
                for letter, server in (("a", pair.first), ("b", pair.second))
            ]
            hosts = ",".join(str(network.folder) for network in self.networks)
            self._dsn = f"postgresql://{ROLE}@/{DATABASE}?host={hosts}&port={PORT},{PORT}"
        self.host = self._start()

    def _start(self) -> Host:
        environment: Mapping[str, str] = {
            "PYTHONPATH": os.pathsep.join(self._paths),
            "CHAOS_FOLDER": str(self._folder),
            "CHAOS_HOST": self.name,
        }
        return Host(
            self._dsn,
            self._folder,
            self.name,
            *self._options,
            app="storm",
            environ=environment,
            prefix=(*MORTAL, *(() if self.cable is None else self.cable.inside)),
        )

    def kill(self) -> None:
        self.host.kill()

    def restart(self) -> None:
        self.host = self._start()

    def freeze(self) -> None:
        """As when the machine is suspended: everybody on it stands still."""
        for pid in self._tree():
            _send(pid, signal.SIGSTOP)

    def thaw(self, history: History) -> None:
        """Slots first, which is the worse order."""
        history.say("thaw", host=self.name)
        for pid in reversed(self._tree()):
            _send(pid, signal.SIGCONT)

    def kill_a_slot(self, chance: Random) -> None:
        slots = [pid for pid in self._tree() if pid != self.host.pid]
        if slots:
            _send(chance.choice(slots), signal.SIGKILL)

    def network(self, weather: Weather, delay: float = 0.0) -> None:
        if self.cable is not None:
            # A kernel that can slow a device down is rare; a cable that is out is not.
            self.cable.change(Weather.BLACK_HOLE if delay else weather)
        for network in self.networks:
            network.change(weather, delay)

    def cut(self) -> None:
        if self.cable is not None:  # in and out again: what was on its way is sent once more
            self.cable.change(Weather.BLACK_HOLE)
            self.cable.change(Weather.FAIR)
        for network in self.networks:
            network.cut()

    def dead(self) -> bool:
        """Whether it has ended although nobody wanted it to."""
        return self.host.process.poll() is not None

    def end(self) -> int:
        code = self.host.stop(signal.SIGQUIT, within=60)
        for network in self.networks:
            network.close()
        if self.cable is not None:
            self.cable.end()
        return code

    def arrivals_in_the_worst_second(self) -> int:
        times = sorted(at for network in self.networks for at in network.arrivals)
        first, worst = 0, 0
        for last, at in enumerate(times):
            while at - times[first] > 1.0:
                first += 1
            worst = max(worst, last - first + 1)
        return worst

    def _tree(self) -> list[int]:
        """The supervisor and its children: template and slots."""
        children = Path(f"/proc/{self.host.pid}/task/{self.host.pid}/children")
        with suppress(OSError):
            return alive([self.host.pid, *map(int, children.read_text().split())])
        return []


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
