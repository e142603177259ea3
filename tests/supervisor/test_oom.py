"""The out-of-memory killer strikes: whose death is laid at its door, and whose is not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from jobctl.supervisor.listener import Reason
from jobctl.supervisor.oom import KernelKills
from tests.supervisor.fleets import Ground, with_fleet


def count(file: Path, kills: int) -> None:
    file.write_text(f"pgfault 17\noom_kill {kills}\noom_kill_else 9\n")


def test_a_count_that_grew_lately_is_told_once(tmp_path: Path) -> None:
    """One victim is one death; what was counted long ago is nobody's here."""
    file = tmp_path / "vmstat"
    count(file, 5)
    kills = KernelKills(file)
    assert not kills.struck()
    count(file, 6)
    assert kills.struck()
    assert not kills.struck()
    count(file, 8)  # somebody else's, and nobody of ours dies
    kills.note()
    assert kills.struck()  # the kill may have been noted before the death was seen
    kills.note()
    kills.note()
    assert not kills.struck()


def test_a_kernel_that_does_not_count(tmp_path: Path) -> None:
    """Then nothing is laid at its door."""
    kills = KernelKills(tmp_path / "missing")
    kills.note()
    assert not kills.struck()


@with_fleet(slots=2)
async def test_the_kernel_kills_a_slot_for_memory(ground: Ground) -> None:
    """SIGKILL that nobody here sent, and the kernel's count has grown: that was memory. Without
    the count it was somebody."""
    file = Path(ground.path("vmstat"))
    count(file, 5)
    ground.fleet._mourning._kernel_kills = KernelKills(file)
    first, second = await ground.ready()
    number = ground.give(first, "hang_politely", started=ground.path("first"))
    await ground.exists(ground.path("first"))
    count(file, 6)
    os.kill(first.pid, signal.SIGKILL)
    death = (await ground.end_of(number)).detail
    assert death.reason is Reason.MEMORY
    assert "the kernel's out-of-memory killer; it had held up to" in death.sentence
    number = ground.give(second, "hang_politely", started=ground.path("second"))
    await ground.exists(ground.path("second"))
    os.kill(second.pid, signal.SIGKILL)
    death = (await ground.end_of(number)).detail
    assert death.reason is Reason.CRASH
    assert "nobody here sent it" in death.sentence
