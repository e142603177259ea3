"""The supervisors of this host, which are asked through their control sockets.

No database is needed for it, and none is asked: it must work while PostgreSQL is away.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.output import Output, Row, say
from jobctl.supervisor.control import ControlError, Peer, peers
from jobctl.supervisor.folders import folders_of_units, runtime_folders
from jobctl.supervisor.settings_sources import Loaded

State = dict[str, Any]


def peers_here(loaded: Loaded) -> list[Peer]:
    """Those of this user, or of all if root asks. Raises Failure when there is none."""
    given = loaded.origins["runtime_dir"] != "default"
    folders = [loaded.settings.runtime_dir] if given else runtime_folders(os.environ)
    units = [] if given else folders_of_units()
    found = peers(dict.fromkeys((*folders, *units)))
    if not found:
        raise Failure(
            ExitCode.NO_SUCH_THING,
            f"No supervisor of this user runs on this host (looked in "
            f"{', '.join(str(folder) for folder in folders)}).{_closed((*folders, *units))} "
            "For another host: --host HOST",
        )
    return found


def _closed(folders: tuple[Path, ...]) -> str:
    """What could not be looked into."""
    for folder in folders:
        with suppress(OSError):
            if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
                return f" {folder} is another user's: ask as that user, or with sudo."
    return ""


@dataclass
class Told:
    """What the supervisors of this host have said."""

    states: dict[Peer, State] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    gone: set[Peer] = field(default_factory=set)

    def ask(self, peer: Peer, command: str) -> None:
        """Sends one command."""
        try:
            self.states[peer] = peer.ask(command)
        except ControlError as error:
            self.errors.append(str(error))

    def look_again(self) -> list[State]:
        """Those that are still there, as they are now. One that leaves is in `gone`."""
        there = []
        for peer in self.states:
            try:
                self.states[peer] = state = peer.ask("status")
                there.append(state)
                self.gone.discard(peer)
            except ControlError:
                self.gone.add(peer)
        return there

    def end(self, output: Output) -> int:
        """Prints them; returns what to exit with."""
        rows = list(self.states.values())
        output.rows(
            rows,
            name="host",
            titles=("HOST", "PID", "STATE", "BUSY"),
            cells=lambda row: [row["host"], row["pid"], _word(row), row["busy"]],
        )
        return self.code()

    def code(self) -> int:
        """Says what went wrong; returns what to exit with."""
        for error in self.errors:
            say(error)
        if not self.errors:
            return ExitCode.DONE
        return ExitCode.PARTLY_DONE if self.states else ExitCode.FAILED


def is_drained(state: Row) -> bool:
    """Whether it holds nothing any more, and will not take anything."""
    left = sum(int(state.get(what, 0)) for what in ("busy", "reserve", "unwritten"))
    return bool(state["draining"]) and left == 0


def _word(state: Row) -> str:
    if not state["draining"]:
        return "working"
    return "drained" if is_drained(state) else "draining"
