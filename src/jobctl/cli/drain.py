"""`jobctl drain` and `undrain`: let hosts finish what they run, and take nothing more.

Without --host or --all it speaks to the supervisors of this host through their control sockets;
else it leaves a request in the database, which they read within moments.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import click

from jobctl.cli import database
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.moments import DURATION
from jobctl.cli.options import DATABASE_SETTINGS, settings_options
from jobctl.cli.output import Output, Row, output_option, say
from jobctl.store import operating
from jobctl.store.operating import Order
from jobctl.supervisor.control import ControlError, Peer, peers
from jobctl.supervisor.folders import runtime_folders
from jobctl.supervisor.settings_sources import Loaded

LOOK_SECONDS = 0.2
#: A host that was asked through the database has this long to say that it has heard.
HEARD_SECONDS = 10.0

drain_settings = settings_options(*DATABASE_SETTINGS, "runtime_dir")


@click.command()
@click.option("--host", metavar="HOST", help="The supervisors of this host, through the database.")
@click.option("--all", "every", is_flag=True, help="All supervisors, through the database.")
@click.option("--wait", "wait", is_flag=True, help="Return when nothing runs there any more.")
@click.option("--timeout", type=DURATION, help="With --wait: give up after so long, with 124.")
@click.option("--exit", "and_exit", is_flag=True, help="The supervisor leaves when it is drained.")
@click.option("--reason", metavar="TEXT", help="Why; kept in the audit log.")
@drain_settings
@output_option
def drain(
    loaded: Loaded, host: str | None, every: bool, wait: bool, timeout: float | None,
    and_exit: bool, reason: str | None, output: Output,
) -> int:  # fmt: skip
    """Claim nothing more and let running jobs finish; undrain undoes it."""
    _require_one(host, every)
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
@click.option("--host", metavar="HOST", help="The supervisors of this host, through the database.")
@click.option("--all", "every", is_flag=True, help="All supervisors, through the database.")
@click.option("--reason", metavar="TEXT", help="Why; kept in the audit log.")
@drain_settings
@output_option
def undrain(
    loaded: Loaded, host: str | None, every: bool, reason: str | None, output: Output
) -> int:
    """Claim again."""
    _require_one(host, every)
    if host is None and not every:
        told = _Told()
        for peer in _peers_here(loaded):
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
    told = _Told()
    for peer in _peers_here(loaded):
        told.ask(peer, "exit" if and_exit else "drain")
    if wait:
        left = _until_none(lambda: told.not_yet(and_exit=and_exit), give_up)
        if left:
            told.end(output)
            raise Failure(ExitCode.TIMED_OUT, *(_still(state) for state in left))
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

        left = _until_none(not_yet, give_up) if wait else []
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


@dataclass
class _Told:
    """What the supervisors of this host have said."""

    states: dict[Peer, dict[str, Any]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def ask(self, peer: Peer, command: str) -> None:
        try:
            self.states[peer] = peer.ask(command)
        except ControlError as error:
            self.errors.append(str(error))

    def not_yet(self, *, and_exit: bool) -> list[dict[str, Any]]:
        """Those that run something still, or (with `and_exit`) are there still."""
        left = []
        for peer in self.states:
            # One that has left has finished: a supervisor never leaves a job behind.
            with suppress(ControlError):
                self.states[peer] = state = peer.ask("status")
                if and_exit or not _is_drained(state):
                    left.append(state)
        return left

    def end(self, output: Output) -> int:
        rows = list(self.states.values())
        output.rows(
            rows,
            name="host",
            titles=("HOST", "PID", "STATE", "BUSY"),
            cells=lambda row: [row["host"], row["pid"], _word(row), row["busy"]],
        )
        for error in self.errors:
            say(error)
        if not self.errors:
            return ExitCode.DONE
        return ExitCode.PARTLY_DONE if rows else ExitCode.FAILED


def _peers_here(loaded: Loaded) -> list[Peer]:
    given = loaded.origins["runtime_dir"] != "default"
    folders = [loaded.settings.runtime_dir] if given else runtime_folders(os.environ)
    found = peers(folders)
    if not found:
        raise Failure(
            ExitCode.NO_SUCH_THING,
            f"No supervisor of this user runs on this host (looked in "
            f"{', '.join(str(folder) for folder in folders)}). For another host: --host HOST",
        )
    return found


def _is_drained(state: dict[str, Any]) -> bool:
    left = sum(int(state.get(what, 0)) for what in ("busy", "reserve", "unwritten"))
    return bool(state["draining"]) and left == 0


def _word(state: Row) -> str:
    if not state["draining"]:
        return "working"
    return "drained" if _is_drained(dict(state)) else "draining"


def _still(state: dict[str, Any]) -> str:
    return f"The supervisor {state['pid']} still runs {_jobs(state['busy'])}."


def _until_none(left: Callable[[], list[Any]], give_up: float | None) -> list[Any]:
    """Asks until nothing is left, or time is over; returns what is left then."""
    while rows := left():
        if give_up is not None and monotonic() >= give_up:
            return rows
        time.sleep(LOOK_SECONDS)
    return []


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


def _require_one(host: str | None, every: bool) -> None:
    if host is not None and every:
        raise click.UsageError("Give --host or --all, not both.")


def _require_some(asked: Sequence[Row], host: str | None) -> None:
    if not asked:
        which = "No supervisor is alive" if host is None else f"No live supervisor is on {host}"
        raise Failure(ExitCode.NO_SUCH_THING, f"{which}. See which there are: jobctl hosts")


def _ids_of(rows: Sequence[Row]) -> set[int]:
    return {row["id"] for row in rows}


def _jobs(many: int) -> str:
    return "1 job" if many == 1 else f"{many} jobs"
