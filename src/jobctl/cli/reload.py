"""`jobctl reload`: the supervisors of this host take the code that is on disk now.

It returns when that is decided: 0 when the new code has been imported and a slot of it is ready, 1
when it could not be and the old code goes on. Slots that are busy follow when their job has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from time import monotonic

import click

from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.here import State, Told, peers_here
from jobctl.cli.moments import DURATION
from jobctl.cli.options import settings_options
from jobctl.cli.output import Output, Row, output_option, say
from jobctl.cli.progress import Progress
from jobctl.cli.table import safe
from jobctl.supervisor.control import Peer
from jobctl.supervisor.settings_sources import Loaded

LOOK_SECONDS = 0.1


@click.command()
@click.option("--wait", "wait", is_flag=True, help="Return when no slot runs older code any more.")
@click.option("--timeout", type=DURATION, help="Give up after so long, with 124.")
@settings_options("runtime_dir")
@output_option
def reload(loaded: Loaded, wait: bool, timeout: float | None, output: Output) -> int:
    """Load new code, slot by slot; keep the old code if the new one cannot be imported."""
    give_up = None if timeout is None else monotonic() + timeout
    told = Told()
    for peer in peers_here(loaded):
        told.ask(peer, "reload")
    # Several may have asked: ours is decided with any that was asked for as late as it was.
    asked = {peer: state["reload"]["asked"] for peer, state in told.states.items()}

    left = _until(lambda: _undecided(told, asked), give_up)
    if not left and wait:
        left = _until(lambda: _relieving(told), give_up)
    _print(output, told)
    if left:
        raise Failure(
            ExitCode.TIMED_OUT,
            *(_unfinished(state) for state in left),
            "It goes on. See how far it is: jobctl reload --wait does it once more, or the log.",
        )
    failed = [state for state in told.states.values() if state["reload"]["failed"]]
    for state in failed:
        say(_not_taken(state))
    for pid in sorted(peer.pid for peer in told.gone):
        told.errors.append(f"The supervisor {pid} left before it was decided.")
    code = told.code()
    return ExitCode.FAILED if failed else code


def _undecided(told: Told, asked: dict[Peer, int]) -> list[State]:
    told.look_again()
    return [
        state
        for peer, state in told.states.items()
        if peer not in told.gone
        and not (state["reload"]["number"] >= asked[peer] and state["reload"]["decided"])
    ]


def _relieving(told: Told) -> list[State]:
    there = told.look_again()
    return [state for state in there if not state["reload"]["failed"] and state["reload"]["old"]]


def _until(left: Callable[[], Sequence[State]], give_up: float | None) -> Sequence[State]:
    with Progress() as progress:
        while states := left():
            if give_up is not None and monotonic() >= give_up:
                return states
            progress.show(" ".join(_unfinished(state) for state in states))
            time.sleep(LOOK_SECONDS)  # hosts are asked, they do not call
    return []


def _print(output: Output, told: Told) -> None:
    output.rows(
        [
            {"host": state["host"], "pid": state["pid"], **state["reload"]}
            for state in told.states.values()
        ],
        name="host",
        titles=("HOST", "PID", "NEW CODE", "OLD SLOTS"),
        cells=lambda row: [row["host"], row["pid"], _word(row), row["old"]],
    )


def _word(row: Row) -> str:
    if row["failed"]:
        return "not taken"
    return "taken" if row["decided"] else "loading"


def _not_taken(state: State) -> str:
    why = state["reload"]["error"] or state["reload"]["failed"]
    return safe(
        f"{state['host']}: the new code was not taken, the old code goes on: {why}. Mend it and "
        "reload again; the stack is in the supervisor's log"
    )


def _unfinished(state: State) -> str:
    if not state["reload"]["decided"]:
        return f"{state['host']}: the new code is not imported yet."
    return f"{state['host']}: {state['reload']['old']} slots still run older code."
