"""`jobctl drain` and `undrain`: let hosts finish what they run, and take nothing more.

Without --host or --all it speaks to the supervisors of this host through their control sockets;
else it leaves a request in the database, which they read within moments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import click

from jobctl.cli import database
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.here import State, Told, is_drained, peers_here
from jobctl.cli.kinds import TEXT
from jobctl.cli.moments import DURATION
from jobctl.cli.options import DATABASE_SETTINGS, settings_options
from jobctl.cli.output import Output, Row, output_option, say
from jobctl.cli.progress import Progress
from jobctl.cli.table import safe
from jobctl.store import operating
from jobctl.store.durations import format_duration
from jobctl.store.operating import Order
from jobctl.supervisor.settings_sources import Loaded

LOOK_SECONDS = 0.2
#: A host that was asked through the database has this long to say that it has heard.
HEARD_SECONDS = 10.0
#: So many jobs that still run are listed when time is over.
LISTED = 20
GOES_ON = "Claims stay stopped there and these jobs go on. To claim again: jobctl undrain{where}"

drain_settings = settings_options(*DATABASE_SETTINGS, "runtime_dir")


@click.command()
@click.option(
    "--host", type=TEXT, metavar="HOST", help="The supervisors of this host, through the database."
)
@click.option("--all", "every", is_flag=True, help="All supervisors, through the database.")
@click.option("--wait", "wait", is_flag=True, help="Return when nothing runs there any more.")
@click.option("--timeout", type=DURATION, help="With --wait: give up after so long, with 124.")
@click.option("--exit", "and_exit", is_flag=True, help="The supervisor leaves when it is drained.")
@click.option(
    "--reason", type=TEXT, metavar="TEXT", help="With --host or --all: why; kept in the audit log."
)
@drain_settings
@output_option
def drain(
    loaded: Loaded, host: str | None, every: bool, wait: bool, timeout: float | None,
    and_exit: bool, reason: str | None, output: Output,
) -> int:  # fmt: skip
    """Claim nothing more and let running jobs finish; undrain undoes it."""
    _require_one(host, every, reason)
    if timeout is not None and not wait:
        raise click.UsageError("--timeout says how long to --wait.")
    give_up = None if timeout is None else monotonic() + timeout
    if host is None and not every:
        return _drain_here(loaded, wait, and_exit, give_up, output)
    if and_exit:
        raise click.UsageError(
            "--exit works on the supervisor's own host, through its control socket."
        )
    return _drain_there(loaded, host, wait, give_up, reason, output)


@click.command()
@click.option(
    "--host", type=TEXT, metavar="HOST", help="The supervisors of this host, through the database."
)
@click.option("--all", "every", is_flag=True, help="All supervisors, through the database.")
@click.option(
    "--reason", type=TEXT, metavar="TEXT", help="With --host or --all: why; kept in the audit log."
)
@drain_settings
@output_option
def undrain(
    loaded: Loaded, host: str | None, every: bool, reason: str | None, output: Output
) -> int:
    """Claim again."""
    _require_one(host, every, reason)
    if host is None and not every:
        told = Told()
        for peer in peers_here(loaded):
            told.ask(peer, "undrain")
        return told.end(output)
    with database.connect(loaded) as connection:
        asked = operating.drain(connection, host, Order.by_me(reason, {}), undo=True)
        _require_some(asked, host)
        sessions = [row["id"] for row in asked]

        def still_draining() -> list[Row]:
            rows = operating.drained(connection, sessions)
            return [row for row in rows if row["draining"] and row["alive"]]

        left = _until_none(still_draining, monotonic() + HEARD_SECONDS)
    rows = [
        {"host": row["host"], "session": row["id"], "draining": row["id"] in _ids_of(left)}
        for row in asked
    ]
    _print_hosts(output, rows)
    for row in left:
        say(
            f"{row['host']} goes on draining: it was drained on the host itself. Run there: "
            "jobctl undrain"
        )
    return ExitCode.PARTLY_DONE if left else ExitCode.DONE


def _drain_here(
    loaded: Loaded, wait: bool, and_exit: bool, give_up: float | None, output: Output
) -> int:
    told = Told()
    for peer in peers_here(loaded):
        told.ask(peer, "exit" if and_exit else "drain")

    def not_yet() -> list[State]:
        # One that has left has finished: a supervisor never leaves a job behind.
        return [state for state in told.look_again() if and_exit or not is_drained(state)]

    if wait:
        left = _until_none(not_yet, give_up, _how_far_here)
        if left:
            told.end(output)
            raise Failure(ExitCode.TIMED_OUT, *_still_here(left, and_exit=and_exit))
    return told.end(output)


def _drain_there(
    loaded: Loaded, host: str | None, wait: bool, give_up: float | None, reason: str | None,
    output: Output,
) -> int:  # fmt: skip
    with database.connect(loaded) as connection:
        asked = operating.drain(connection, host, Order.by_me(reason, {}))
        _require_some(asked, host)
        sessions = [row["id"] for row in asked]
        lost: list[Row] = []

        def not_yet() -> list[Row]:
            rows = operating.drained(connection, sessions)
            lost[:] = [row for row in rows if not row["alive"]]
            return [r for r in rows if r["alive"] and not (r["draining"] and not r["claims"])]

        left = _until_none(not_yet, give_up, _how_far_there) if wait else []
        held = operating.held(connection, [row["id"] for row in left], LISTED) if left else []
        states = {row["id"]: row for row in operating.drained(connection, sessions)}
    rows = [
        {
            "host": row["host"],
            "session": row["id"],
            "draining": states[row["id"]]["draining"] if row["id"] in states else True,
            "claims": states[row["id"]]["claims"] if row["id"] in states else 0,
        }
        for row in asked
    ]
    _print_hosts(output, rows)
    if left:
        raise Failure(
            ExitCode.TIMED_OUT,
            *(f"{row['host']} still holds {_jobs(row['claims'])}." for row in left),
            *_listed(held, sum(row["claims"] for row in left)),
            GOES_ON.format(where=" --all" if host is None else f" --host {host}"),
        )
    if lost:
        raise Failure(
            ExitCode.FAILED,
            *(
                f"{row['host']} has gone silent while it drained; its {_jobs(row['claims'])} "
                "will be run by others when its lease is over."
                for row in lost
            ),
        )
    if not wait:
        say("Asked. See how far they are: jobctl hosts")
    return ExitCode.DONE


def _until_none(
    left: Callable[[], list[Any]],
    give_up: float | None,
    words: Callable[[list[Any]], str] | None = None,
) -> list[Any]:
    """Asks until nothing is left, or time is over; returns what is left then."""
    with Progress() as progress:
        while rows := left():
            if give_up is not None and monotonic() >= give_up:
                return rows
            if words is not None:
                progress.show(words(rows))
            time.sleep(LOOK_SECONDS)  # hosts are asked, they do not call
    return []


def _how_far_here(states: Sequence[State]) -> str:
    busy = sum(state["busy"] for state in states)
    running = _running(states)
    if not running:
        return "Nothing runs any more; waiting for what ended to be written."
    longest = max(running, key=lambda row: row["seconds"])
    return (
        f"{_jobs(busy)} still {'runs' if busy == 1 else 'run'}; the longest is {_named(longest)}."
    )


def _how_far_there(rows: Sequence[Row]) -> str:
    unheard = [row["host"] for row in rows if not row["draining"]]
    held = sum(row["claims"] for row in rows)
    words = f"{_jobs(held)} still held by {', '.join(row['host'] for row in rows)}"
    return f"{words}; not heard yet by {', '.join(unheard)}." if unheard else f"{words}."


def _still_here(states: Sequence[State], *, and_exit: bool) -> list[str]:
    running = _running(states)
    sentences = [
        f"The supervisor {state['pid']} still runs {_jobs(state['busy'])}." for state in states
    ]
    sentences += _listed(running[:LISTED], sum(state["busy"] for state in states))
    return sentences if and_exit else [*sentences, GOES_ON.format(where="")]


def _running(states: Sequence[State]) -> list[Row]:
    """What runs here, the longest first, as `operating.held` has it of other hosts."""
    rows = [
        {"id": slot["job"], "type": slot["type"], "host": state["host"], "slot": slot["slot"],
         "seconds": slot["seconds"]}
        for state in states
        for slot in state.get("slots", ())
        if slot["job"] is not None
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row["seconds"])


def _listed(rows: Sequence[Row], all_of_them: int) -> list[str]:
    lines = [f"  {_named(row)}" for row in rows]
    if all_of_them > len(rows) > 0:
        lines.append(f"  and {all_of_them - len(rows)} more")
    return lines


def _named(row: Row) -> str:
    where = row["host"] if row["slot"] is None else f"{row['host']}:{row['slot']}"
    took = format_duration(round(row["seconds"]))
    return safe(f"{row['type'] or 'a job'} #{row['id']} on {where}, for {took}")


def _print_hosts(output: Output, rows: Sequence[Row]) -> None:
    claims = any("claims" in row for row in rows)
    output.rows(
        rows,
        name="host",
        titles=("HOST", "SESSION", "DRAINING", *(("CLAIMS",) if claims else ())),
        cells=lambda row: [
            row["host"], str(row["session"]), "yes" if row["draining"] else "no",
            *((row["claims"],) if claims else ()),
        ],
    )  # fmt: skip


def _require_one(host: str | None, every: bool, reason: str | None) -> None:
    if host is not None and every:
        raise click.UsageError("Give --host or --all, not both.")
    if reason is not None and host is None and not every:
        raise click.UsageError(
            "--reason goes with --host or --all. This host's supervisor is asked through its "
            "control socket, which needs no database, and so the audit log does not hear of it."
        )


def _require_some(asked: Sequence[Row], host: str | None) -> None:
    if not asked:
        which = "No supervisor is alive" if host is None else f"No live supervisor is on {host}"
        raise Failure(ExitCode.NO_SUCH_THING, f"{which}. See which there are: jobctl hosts")


def _ids_of(rows: Sequence[Row]) -> set[int]:
    return {row["id"] for row in rows}


def _jobs(many: int) -> str:
    return "1 job" if many == 1 else f"{many} jobs"
