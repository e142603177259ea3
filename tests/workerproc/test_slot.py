"""What a slot looks like from inside, where strangers' code runs."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from tests.supervisor.fleets import Ground, with_fleet


async def _look(ground: Ground, index: int = 0) -> dict[str, Any]:
    slots = await ground.ready()
    told = await ground.end_of(ground.give(slots[index], "where"))
    found = json.loads(told.detail["result"])
    assert isinstance(found, dict)
    return found


@with_fleet(slots=2, kin="0")
async def test_descriptors(ground: Ground) -> None:
    """Its socket, its page, its two pipes and nothing of its siblings', parent's or template's."""
    first, second = await _look(ground, 0), await _look(ground, 1)
    for found in (first, second):
        kinds = sorted(re.sub(r"\d+", "N", what) for what in found["descriptors"].values())
        assert found["descriptors"]["0"] == "/dev/null"
        assert found["descriptors"]["1"] == found["descriptors"]["2"]
        named = [kind for kind in kinds if not kind.startswith(("/dev/null", "/proc"))]
        assert named == [
            "/memfd:jobctl-page-N:N:N:N (deleted)",
            "pipe:[N]", "pipe:[N]", "pipe:[N]", "socket:[N]",
        ]  # fmt: skip
    own, others = (set(found["descriptors"].values()) for found in (first, second))
    assert own & others <= {"/dev/null"} | {one for one in own if one.startswith("/proc")}


@with_fleet(slots=1, app="opens_things", started=False)
async def test_what_the_app_opened_when_it_was_imported(ground: Ground) -> None:
    """A log file stays; a socket, which all siblings would share, is a dead end."""
    (ground.folder / "opens_things.py").write_text(
        f"""
import os, socket
from jobctl.workerproc.job import job
log = open({ground.path("log")!r}, "a", buffering=1)
ours, theirs = socket.socketpair()
@job
def use(ctx):
    log.write("still here\\n")
    try:
        ours.send(b"x")
    except OSError:
        return os.readlink(f"/proc/self/fd/{{ours.fileno()}}")
"""
    )
    ground.fleet.start()
    (slot,) = await ground.ready()
    told = await ground.end_of(ground.give(slot, "use"))
    assert json.loads(told.detail["result"]) == "/dev/null"
    assert (ground.folder / "log").read_text() == "still here\n"


@with_fleet(
    slots=1,
    kin="0",
    environment={"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1", "LISTEN_FDS": "1", "KEPT": "yes"},
)
async def test_environment(ground: Ground) -> None:
    """Nothing that would let it speak for the supervisor; and the mark that finds its strays."""
    (slot,) = await ground.ready()
    found = await _look(ground)
    environment = found["environment"]
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS"} & environment.keys()
    assert environment["KEPT"] == "yes"
    assert environment["JOBCTL_SLOT"] == f"{os.getpid()}:1:{slot.life}:0" == slot.mark


@with_fleet(slots=1)
async def test_its_place_among_processes(ground: Ground) -> None:
    """The supervisor's own child, leader of a group and session, with a title that tells."""
    found = await _look(ground)
    assert found["parent"] == os.getpid()
    assert found["pid"] == found["session"] == found["group"]
    assert re.fullmatch(r"jobctl: slot 1 where #\d+", found["title"])
    assert found["threads"] == 1


@with_fleet(slots=1)
async def test_signals(ground: Ground) -> None:
    """None is blocked; TERM, INT and HUP are caught, not ignored; CHLD is the system's."""
    found = await _look(ground)
    masks = {
        name: int(value, 16)
        for name, value in re.findall(r"^(Sig\w+):\s+([0-9a-f]+)$", found["status"], re.M)
    }
    assert masks["SigBlk"] == 0

    def has(mask: str, signal: int) -> bool:
        return bool(masks[mask] >> (signal - 1) & 1)

    for signal in (15, 2, 1, 10, 12):  # TERM, INT, HUP, USR1, USR2
        assert has("SigCgt", signal) and not has("SigIgn", signal)
    assert not has("SigCgt", 17) and not has("SigIgn", 17)  # CHLD


@with_fleet(slots=1)
async def test_limits(ground: Ground) -> None:
    """It writes no core, and goes before its supervisor when memory runs out."""
    found = await _look(ground)
    own = int(open("/proc/self/oom_score_adj").read())  # noqa: SIM115, PTH123, ASYNC230
    assert found["oom_score_adj"] == min(own + 300, 1000)
    assert re.search(r"^Max core file size +0 ", found["core"], re.M)


@with_fleet(slots=2)
async def test_no_two_slots_throw_the_same_dice(ground: Ground) -> None:
    """Random numbers are seeded after the fork."""
    assert (await _look(ground, 0))["dice"] != (await _look(ground, 1))["dice"]


@with_fleet(slots=1)
async def test_large_arguments_and_results(ground: Ground) -> None:
    """What does not fit into a datagram travels all the same."""
    (slot,) = await ground.ready()
    told = await ground.end_of(ground.give(slot, "give_back", value=["x" * 1000] * 60))
    assert json.loads(told.detail["result"]) == ["x" * 1000] * 60
    told = await ground.end_of(ground.give(slot, "give_back", value="y" * 1_000_000))
    assert told.detail["error_class"] == "unstorable_result"
    assert told.detail["permanent"]
