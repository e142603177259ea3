"""A real fleet for a test: real templates, real slots, real signals.

The test's coroutine runs as the supervisor, in a process of its own: it becomes a subreaper, it
may be killed, and whatever it leaves is looked for afterwards.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import inspect
import itertools
import json
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from jobctl.store.cron_spec import CronSpec
from jobctl.store.job_type import JobType
from jobctl.supervisor.deadlines import Deadlines
from jobctl.supervisor.fleet import Fleet, FleetSettings
from jobctl.supervisor.listener import Death, LoadFailure, Notice, Reason
from jobctl.supervisor.slot import Running, Slot, Stage
from jobctl.workerproc.frames import Done, Job, pack_job
from tests.waiting import until

HERE = Path(__file__).parent
WITHIN = 20.0


@dataclass(frozen=True)
class Told:
    """One thing that the fleet told, in words that can be compared."""

    what: str
    slot: Slot | None = None
    running: Running | None = None
    detail: Any = None


class Ground:
    """A fleet and everything that it has told. The listener of the test."""

    def __init__(self, folder: Path, slots: int, app: str, **settings: Any) -> None:
        self.folder = folder
        self.told: list[Told] = []
        self.lines: list[tuple[int | None, int | None, str]] = []  # slot, job, line
        self.types: list[JobType] = []
        self.on_end: Callable[[Slot], None] | None = None
        self._news = asyncio.Event()
        self._numbers = itertools.count(1)
        environment = {
            "PYTHONPATH": f"{HERE}:{folder}:{os.environ.get('PYTHONPATH', '')}",
            # Two versions of one size within one second look alike to the cache.
            "PYTHONDONTWRITEBYTECODE": "1",
            **settings.pop("environment", {}),
        }
        # Tests run beside one another: none may sweep what another's supervisor has left.
        settings.setdefault("kin", f"{crc32(os.fsencode(folder)):x}")
        self.fleet = Fleet(
            FleetSettings(app, {"default": slots}, environment=environment, **settings),
            self,
        )
        self.deadlines = Deadlines(self.fleet)

    # What a test does ---------------------------------------------------------------------------

    def give(
        self, slot: Slot, name: str, *, hard: float = 60.0, soft: float = 0.0, **arguments: Any
    ) -> int:
        """Gives an idle slot a job; its number, which is also its token."""
        number = next(self._numbers)
        job = Job(
            number, 1, number, 1, 5, 1, hard, soft, name, "default", None, None,
            json.dumps(arguments).encode(),
        )  # fmt: skip
        assert slot.give(Running(number, number, hard, soft), pack_job(job)), slot.stage
        return number

    async def until(
        self, condition: Callable[[], Any], what: str = "it", within: float = WITHIN
    ) -> Any:
        """Waits for a fact. News of the fleet wake it; facts outside are asked for again."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        while not (fact := condition()):
            assert loop.time() < end, f"{what}: not within {within:g} s; told: {self.told[-20:]}"
            self._news.clear()
            try:
                async with asyncio.timeout(0.02):
                    await self._news.wait()
            except TimeoutError:
                continue
        return fact

    async def ready(self, count: int | None = None) -> list[Slot]:
        """The idle slots, once there are that many (all that are wanted)."""
        wanted = self.fleet.wanted if count is None else count
        await self.until(lambda: len(self.fleet.idle_slots()) >= wanted, f"{wanted} idle slots")
        return self.fleet.idle_slots()

    async def end_of(self, number: int) -> Told:
        """How that job ended: what was told of it."""
        told = await self.until(lambda: self.find(number), f"the end of job {number}")
        assert isinstance(told, Told)
        return told

    def find(self, number: int) -> Told | None:
        """How that job ended, if it has."""
        found = [
            told
            for told in self.told
            if told.what in ("done", "ended", "death")
            and told.running is not None
            and told.running.job_id == number
        ]
        assert len(found) <= 1, f"job {number} ended more than once: {found}"
        return found[0] if found else None

    async def death_of(self, slot: Slot) -> Death:
        """How that slot died."""
        deaths = await self.until(
            lambda: [told for told in self.all("death") if told.slot is slot], "a death"
        )
        assert len(deaths) == 1
        death = deaths[0].detail
        assert isinstance(death, Death)
        return death

    def all(self, what: str) -> list[Told]:
        """All that was told under this word."""
        return [told for told in self.told if told.what == what]

    def notices(self, notice: Notice) -> list[str]:
        """The sentences of one kind of notice."""
        return [told.detail for told in self.all(notice.value)]

    def path(self, name: str) -> str:
        """A file of the test's own."""
        return str(self.folder / name)

    def gate(self, name: str = "gate") -> str:
        """A FIFO that holds a handler."""
        path = self.path(name)
        os.mkfifo(path)
        return path

    async def open_gate(self, path: str, word: str = "go") -> None:
        """Lets the handler that waits there go on."""
        descriptor = await self.until(lambda: _writing_end(path), f"a reader of {path}")
        os.write(descriptor, word.encode())
        os.close(descriptor)

    async def exists(self, path: str) -> None:
        """Waits for a file."""
        await self.until(Path(path).exists, path)

    # What the fleet tells -----------------------------------------------------------------------

    def on_types(self, generation: int, types: list[JobType], crons: list[CronSpec]) -> None:
        self.types = types
        self._tell(Told("types", detail=generation))

    def on_idle(self, slot: Slot) -> None:
        assert slot.stage is Stage.IDLE
        self._tell(Told("idle", slot))

    def on_done(self, slot: Slot, running: Running, done: Done) -> None:
        self._tell(Told("done", slot, running, done))
        self._ended(slot)

    def on_ended(self, slot: Slot, running: Running, body: dict[str, Any]) -> None:
        self._tell(Told("ended", slot, running, body))
        self._ended(slot)

    def on_note(self, slot: Slot, running: Running | None, body: dict[str, Any]) -> None:
        self._tell(Told("note", slot, running, body))

    def on_death(self, slot: Slot, running: Running | None, death: Death) -> None:
        self._tell(Told("death", slot, running, death))

    def on_output(self, slot: Slot | None, job_id: int | None, line: str) -> None:
        self.lines.append((None if slot is None else slot.number, job_id, line))
        self._news.set()

    def on_load_failed(self, failure: LoadFailure) -> None:
        self._tell(Told("load_failed", detail=failure))

    def on_notice(self, notice: Notice, slot: Slot | None, sentence: str) -> None:
        self._tell(Told(notice.value, slot, detail=sentence))

    def _tell(self, told: Told) -> None:
        self.told.append(told)
        self._news.set()

    def _ended(self, slot: Slot) -> None:
        if self.on_end is not None:
            self.on_end(slot)


Story = Callable[..., Awaitable[None]]


def with_fleet(
    slots: int = 1, app: str = "fleet_app", *, started: bool = True, **settings: Any
) -> Callable[[Story], Callable[[Path], None]]:
    """Makes a test of a coroutine that takes a `Ground`: run in a process of its own."""

    def decorate(story: Story) -> Callable[[Path], None]:
        @functools.wraps(story)
        def test(tmp_path: Path) -> None:
            in_own_process(
                lambda: asyncio.run(_play(story, tmp_path, slots, app, started=started, **settings))
            )

        test.__signature__ = inspect.signature(_a_test)  # type: ignore[attr-defined]
        return test

    return decorate


def play_until_killed(story: Story, folder: Path, slots: int) -> None:
    """The same for a story that ends with SIGKILL for the supervisor; nothing is tidied up."""
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(_play(story, folder, slots, "fleet_app"))
        finally:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status


async def _play(
    story: Story, folder: Path, slots: int, app: str, *, started: bool = True, **settings: Any
) -> None:
    ground = Ground(folder, slots, app, **settings)
    loop = asyncio.get_running_loop()
    faults: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: faults.append(context))
    if started:
        ground.fleet.start()
    await story(ground)
    await ground.fleet.end()
    assert not faults, faults
    ground.deadlines.close()


def _a_test(tmp_path: Path) -> None:
    """What pytest sees of a test made by `with_fleet`."""


def in_own_process(act: Callable[[], None]) -> None:
    """Runs it in a fork; fails as it failed; nothing of it is left afterwards."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            os.close(reading)
            act()
        except BaseException:
            said = traceback.format_exc()
        finally:
            os.write(writing, said.encode()[-60_000:])
            os._exit(1 if said else 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read().decode()
    _, status = os.waitpid(child, 0)
    if said or status:  # a failed test may have left what nobody hunts any more
        for pid in living(child):
            os.kill(pid, signal.SIGKILL)
    assert not said, said
    assert status == 0, f"the test's process ended with status {status}"
    until(lambda: not living(child), within=5, what=f"no processes of {child}")


def _writing_end(path: str) -> int | None:
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def living(session: int) -> list[int]:
    """Processes that some slot of that supervisor had started, or that are slots of it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            marked = f"JOBCTL_SLOT={session}:".encode() in (entry / "environ").read_bytes()
            if marked or f"/memfd:jobctl-page-{session}:" in (entry / "maps").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def exists(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def descriptors() -> int:
    """How many descriptors this process holds."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def number_in(path: str) -> int:
    """What a handler wrote there."""
    return int(Path(path).read_text())


__all__ = [
    "HERE", "Death", "Ground", "Reason", "Stage", "Told",
    "descriptors", "exists", "in_own_process", "living", "number_in", "play_until_killed",
    "with_fleet",
]  # fmt: skip
