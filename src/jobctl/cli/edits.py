"""Other arguments for jobs that are run again: typed as JSON, checked before anything changes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.kinds import TEXT, read_json
from jobctl.cli.table import safe
from jobctl.store import operating, reading
from jobctl.store.operating import Edit, Order, Verb
from jobctl.store.reading import Connection

#: A function with click's options on it.
Command = Callable[..., Any]


def edit_options(command: Command) -> Command:
    """Adds --set, --unset, --args and --new; the command gets the verb that replays like this as
    `replay`, and whether all arguments are typed as `is_whole`."""

    @click.option(
        "--set", "changes", type=TEXT, multiple=True, metavar="NAME=VALUE",
        help="With this argument changed; VALUE is JSON, or text. Again for others.",
    )  # fmt: skip
    @click.option(
        "--unset", "removals", type=TEXT, multiple=True, metavar="NAME", help="Without this one."
    )
    @click.option("--args", type=TEXT, metavar="JSON", help="With these arguments, of one job.")
    @click.option("--new", is_flag=True, help="--set may add arguments that a job has not got.")
    @wraps(command)
    def wrapped(
        *args_: Any,
        changes: Sequence[str],
        removals: Sequence[str],
        args: str | None,
        new: bool,
        **kwargs: Any,
    ) -> Any:
        if args is not None and (changes or removals):
            raise click.UsageError("Give --args, which is all of them, or --set and --unset.")
        edit = Edit(_object(args), dict(map(_change, changes)), tuple(removals))
        edit.parameters()  # refuses what cannot be stored
        return command(*args_, replay=_verb(edit, new), is_whole=args is not None, **kwargs)

    return wrapped


def _verb(edit: Edit, new: bool) -> Verb:
    def replay(connection: Connection, ids: Sequence[int], order: Order) -> list[int]:
        if edit.unset or (edit.set and not new):
            _require_names(connection, ids, edit, new)
        return operating.replay(connection, ids, order, edit)

    return replay


def _require_names(connection: Connection, ids: Sequence[int], edit: Edit, new: bool) -> None:
    """A name that is misspelt would be one more argument, and the job would die of it."""
    wanted = [*edit.unset, *(() if new else edit.set)]
    for row in reading.jobs(connection, ids):
        has = row["args"] if isinstance(row["args"], dict) else {}
        for name in wanted:
            if name in has:
                continue
            close = difflib.get_close_matches(name, has, n=1)
            hint = f"did you mean {safe(close[0])}?" if close else f"it has {_names(has)}"
            add = "" if name in edit.unset else " To add one, say --new."
            raise Failure(
                ExitCode.FAILED,
                f"#{row['id']} has no argument {safe(name)}; {hint}{add} "
                "This job, and those after it, are as they were.",
            )


def _names(arguments: dict[str, Any]) -> str:
    shown = [safe(name)[:60] for name in list(arguments)[:20]]
    return (", ".join(shown) or "none") + "."


def _change(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.UsageError(f"--set {safe(text)}: write NAME=VALUE, such as invoice_id=7.")
    try:
        return name, read_json(value)
    except ValueError:
        return name, value


def _object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        arguments = read_json(text)
    except ValueError as error:
        raise click.UsageError(f"--args is not JSON: {error}.") from error
    if not isinstance(arguments, dict):
        raise click.UsageError("--args must be a JSON object, such as '{\"invoice_id\": 1842}'.")
    return arguments
