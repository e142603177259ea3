"""What slots print: whose it is, and that a flood is nobody else's problem."""

from __future__ import annotations

import time

from jobctl.supervisor.listener import Notice, Reason
from jobctl.supervisor.output import LINE_LIMIT
from tests.supervisor.fleets import Ground, with_fleet


@with_fleet(slots=2)
async def test_lines_belong_to_the_job_that_printed_them(ground: Ground) -> None:
    """Also when jobs follow each other at once, and when a line is not ended."""
    slots = await ground.ready()
    wanted = []
    for turn in range(40):
        slot = slots[turn % 2]
        text = f"turn {turn}" + ("\n" if turn % 3 else "")
        number = ground.give(slot, "say", text=text)
        await ground.end_of(number)
        wanted.append((slot.number, number, f"turn {turn}"))
    assert sorted(ground.lines) == sorted(wanted)


@with_fleet(slots=1)
async def test_lines_are_there_before_the_job_has_ended(ground: Ground) -> None:
    """Whoever hears of the end has heard all that was said."""
    (slot,) = await ground.ready()
    seen: list[int] = []
    ground.on_end = lambda slot: seen.append(len(ground.lines))
    await ground.end_of(ground.give(slot, "say", text="one\ntwo\nthree"))
    assert seen == [3]


@with_fleet(slots=1)
async def test_half_a_line_of_a_dying_process(ground: Ground) -> None:
    """It is not lost."""
    (slot,) = await ground.ready()
    number = ground.give(slot, "speak", text="no newline", newline=False)
    await ground.end_of(number)
    assert ground.lines == [(1, number, "no newline")]


@with_fleet(slots=1)
async def test_what_is_printed_is_not_text(ground: Ground) -> None:
    """Anything can be printed; a line is text all the same, and not too long."""
    (slot,) = await ground.ready()
    long = ground.give(slot, "speak", text="x" * (2 * LINE_LIMIT + 5))
    await ground.end_of(long)
    assert [len(line) for _, _, line in ground.lines] == [LINE_LIMIT, LINE_LIMIT, 5]
    ground.lines.clear()
    empty = ground.give(slot, "speak", text="\n\na", descriptor=2)
    await ground.end_of(empty)
    assert [line for _, _, line in ground.lines] == ["", "", "a"]


@with_fleet(slots=4)
async def test_floods_do_not_stall_the_others(ground: Ground) -> None:
    """With three slots printing without end, the fourth's jobs are quick, and kills are in time."""
    slots = await ground.ready()
    lines = ["x" * 80 + "\n", "\n", "no newline at all "]
    floods = [
        ground.give(slot, "flood", hard=2.0, started=ground.path(str(slot.number)), line=line)
        for slot, line in zip(slots[:3], lines, strict=True)
    ]
    for slot in slots[:3]:
        await ground.exists(ground.path(str(slot.number)))
    slowest = 0.0
    for _ in range(30):
        began = time.monotonic()
        await ground.end_of(ground.give(slots[3], "nothing"))
        slowest = max(slowest, time.monotonic() - began)
    assert slowest < 0.25
    for number in floods:
        told = await ground.end_of(number)
        assert told.detail.reason is Reason.TIMEOUT
    assert len(ground.lines) > 10_000
    assert {job for _, job, _ in ground.lines} == set(floods)


@with_fleet(slots=1)
async def test_floods_through_job_after_job(ground: Ground) -> None:
    """What cannot be handed on in time is dropped and counted, not kept without limit."""
    (slot,) = await ground.ready()
    number = 0
    for _ in range(200):
        number = ground.give(slot, "speak", text="\n" * 60_000)
        while ground.find(number) is None:
            slot.drain()  # as if nothing else of the loop ran
    assert ground.notices(Notice.OUTPUT_DROPPED)
    assert (await ground.end_of(number)).what == "done"
