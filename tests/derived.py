"""The parts of README.md and of the operator's page that the code says: tables, made, never typed.

`python -m tests.derived` writes them into the files, between `<!-- derived: NAME -->` and
`<!-- end -->`; `test_readme.py` compares. The words here are only those that the code has no reason
to hold; what happens is found by asking it. It also writes the digest of store/functions into the
header of the newest migration that brings them, if that is not released yet.
"""

from __future__ import annotations

import ast
import inspect
import logging
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from jobctl.cli import manual
from jobctl.cli.app import app
from jobctl.cli.endings import ExitCode
from jobctl.store import rights, states
from jobctl.store.migration_files import digest, functions_text, load
from jobctl.store.rights import LETTERS, USUAL_NAMES, Kind
from jobctl.store.states import Outcome, State
from jobctl.supervisor import outcomes, settings
from jobctl.supervisor import supervisor as supervisor_module
from jobctl.supervisor.events import Event
from jobctl.supervisor.log import Log
from jobctl.supervisor.outcomes import UNREGISTERED, Cause, Ending, decide
from jobctl.supervisor.signals import TABLE as SIGNALS
from jobctl.supervisor.signals import Intent
from tests.exposed import families, new_metrics

README = Path(__file__).parents[1] / "README.md"
DEPLOYING = README.parent / "examples" / "deploy" / "README.md"
#: The newest migration that somebody's database may have.
RELEASED = 12
_PART = re.compile(r"(<!-- derived: ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.S)


def parts(text: str) -> dict[str, str]:
    """The derived parts of a text, by name, as they stand there."""
    return {found[2]: found[3] for found in _PART.finditer(text)}


def renewed(text: str) -> str:
    """The text with every derived part as the code says it now."""
    return _PART.sub(lambda found: found[1] + DERIVED[found[2]]() + found[4], text)


# What ended it, and what that costs -----------------------------------------------------------

_LATER = 60.0
#: How an attempt can end, in words, beside returning.
_CAUSES: tuple[tuple[str, Cause], ...] = (
    ("the handler raised", outcomes.Failed("Error", "")),
    ("it raised `RetryAfter`", outcomes.Failed("RetryAfter", "", retry_after=_LATER)),
    ("it raised `Permanent`, or a class that its type lists as permanent; its arguments do not "
     "fit the function; its result is not JSON, or too large; PostgreSQL refuses a job that it "
     "enqueued with `ctx.enqueue`",
     outcomes.Failed("Permanent", "", permanent=True)),
    ("it let `SoftTimeout` through", outcomes.TimedOut("soft", "")),
    ("it ran into its hard deadline, or its ceiling of CPU time, and was killed",
     outcomes.TimedOut("hard", "")),
    ("its process died: a signal, an exit of any code, another program in its place, the "
     "out-of-memory killer, its ceiling of memory",
     outcomes.Crashed("")),
    ("its supervisor is gone, or could not renew its lease and is given up by the others",
     outcomes.Lost("")),
    ("it raised `Snooze`", outcomes.Snoozed(_LATER)),
    ("it raised `Cancelled`", outcomes.Cancelled()),
    ("it was cancelled by force, and its process killed", outcomes.Cancelled(forced=True)),
    ("a stop ran out of patience, or its host ended it because the lease was about to be over",
     outcomes.Interrupted("")),
    ("it was claimed and had not started", outcomes.HandedBack()),
    ("this host's code does not know the type, or is older than the arguments",
     outcomes.Unrunnable()),
)  # fmt: skip

_PLACES = {
    "retry": "`retrying`, after the backoff",
    "snooze": "`scheduled`, for as long as it said",
    "front": "`queued`, at the front",
    "lane": "`queued`, for hosts that can run it",
    "dead": "`dead`",
    "cancelled": "`cancelled`",
    "compensate": "`cancelled`; with an `on_cancel` hook, `queued` for that first",
}


@dataclass(frozen=True)
class _Job:
    """What `decide` must know of a job."""

    attempt: int = 0
    crashes: int = 0
    max_attempts: int | None = None
    schema_version: int = 1


def outcome_table() -> str:
    """Asks `decide` about every cause: with budgets that are whole, and with each one used up."""
    succeeded = Outcome.SUCCEEDED
    assert succeeded.spends_attempt
    rows = [("the handler returned", f"`{succeeded}`", "spent", "", f"`{State.SUCCEEDED}`")]
    for words, cause in _CAUSES:
        ending = _decided(cause)
        against = [name for name, used_up in _USED_UP.items() if used_up(cause).place == "dead"]
        if ending.place == "dead":
            against = []
        then = _PLACES[ending.place]
        if isinstance(cause, outcomes.Failed) and ending.delay == _LATER:
            then = "`retrying`, after as long as it said"
        if against:
            then += "; with a budget used up, `dead`"
        spent = "spent" if ending.spent else "given back"
        outcome = f"`{ending.outcome}`" if ending.outcome else "none is recorded"
        rows.append((words, outcome, spent, ", ".join(f"`{name}`" for name in against), then))
    return _table(("what ended the attempt", "outcome", "attempt", "counts against", "then"), rows)


_POLICY = replace(UNREGISTERED, max_attempts=10, max_crashes=10, max_elapsed_seconds=3600.0)


def _decided(cause: Cause, job: _Job = _Job(), elapsed: float = 0.0) -> Ending:
    return decide(1, 1, 1, job, _POLICY, cause, elapsed, chance=lambda: 1.0)


_USED_UP: dict[str, Callable[[Cause], Ending]] = {
    "max_attempts": lambda cause: _decided(cause, _Job(attempt=9)),
    "max_crashes": lambda cause: _decided(cause, _Job(crashes=9)),
    "max_elapsed": lambda cause: _decided(cause, elapsed=3600.0),
}


# States -----------------------------------------------------------------------------------------


def state_picture() -> str:
    """The drawing in the docstring of `states.py`."""
    lines = (states.__doc__ or "").splitlines()
    drawn = [at for at, line in enumerate(lines) if line.startswith("    ")]
    picture = textwrap.dedent("\n".join(lines[drawn[0] : drawn[-1] + 1]))
    return f"```text\n{picture.rstrip()}\n```\n"


def state_table() -> str:
    """What each state means, and where it stands, from its docstring."""
    rows = []
    for name, words in _docstrings(State).items():
        meaning = re.split(r"(?<=\.) ", words, maxsplit=1)[0]
        rows.append((f"`{State[name]}`", meaning, words.partition(" Place: ")[2].rstrip(".")))
    return _table(("state", "what it says", "table"), rows)


def _docstrings(enumeration: type) -> dict[str, str]:
    """What stands below each member; Python itself forgets it."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(enumeration))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for member, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(member, ast.Assign) and isinstance(below, ast.Expr):
            assert isinstance(member.targets[0], ast.Name)
            assert isinstance(below.value, ast.Constant)
            found[member.targets[0].id] = " ".join(str(below.value.value).split())
    return found


# Commands, signals, exit codes ------------------------------------------------------------------


def command_table() -> str:
    """From the command line itself."""
    return _table(("command", ""), _commands(app, "jobctl"))


def _commands(group: click.Group, name: str) -> Iterator[tuple[str, str]]:
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, f"{name} {word}")
        else:
            yield f"`{name} {word}`", command.get_short_help_str(limit=200)


_INTENTS = {
    Intent.DRAIN_AND_EXIT: "drain: claim nothing more, let running jobs end for up to "
    "`drain_timeout`, then leave",
    Intent.STOP_NOW: "leave now: what runs is killed and queued again, and costs no attempt",
    Intent.RELOAD: "reload: import the code anew and replace the slots one by one; keep the old "
    "ones if that fails",
    Intent.SAY_STATE: "log everything that the supervisor knows of itself, in one line",
}


def signal_table() -> str:
    """From the supervisor's own table."""
    rows = [
        (f"`{number.name}`", _INTENTS[first], "the same" if again is first else _INTENTS[again])
        for number, (first, again) in SIGNALS.items()
    ]
    return _table(("signal", "the first time", "again"), rows)


_CODES = {
    ExitCode.DONE: "done; for `jobctl run`: stopped as asked",
    ExitCode.FAILED: "failed; `jobctl jobs wait`: a job is dead, cancelled or discarded; "
    "`jobctl run`: a part of it failed in a way that nobody planned for",
    ExitCode.USAGE: "it was typed wrongly",
    ExitCode.NOT_HEALTHY: "what was asked about does not run, or is not as it should be",
    ExitCode.NO_SUCH_THING: "there is no such job, host or supervisor",
    ExitCode.PARTLY_DONE: "partly done; `jobctl run`: stopped as asked, but jobs were interrupted "
    "(the log says of each what became of it)",
    ExitCode.DATABASE_UNREACHABLE: "PostgreSQL cannot be reached; try again",
    ExitCode.CONFIGURATION: (
        "a setting or the schema is wrong, or the app does not exist; trying again does not help"
    ),
    ExitCode.TIMED_OUT: "`--timeout` ran out",
    ExitCode.INTERRUPTED: "Ctrl-C, or no to a question",
}


def exit_code_table() -> str:
    """Of every command; those of the supervisor are the same numbers."""
    ours = {
        name: value for name, value in vars(supervisor_module).items() if name.startswith("EXIT_")
    }
    assert set(ours.values()) <= set(ExitCode), ours
    return _table(("code", "meaning"), [(str(int(code)), _CODES[code]) for code in ExitCode])


# Metrics, events --------------------------------------------------------------------------------


def metric_table() -> str:
    """From a real /metrics, of a supervisor that leads and of one that does not."""
    everywhere = {family.name for family in families(new_metrics(leads=False)) if family.samples}
    rows = []
    for family in sorted(families(new_metrics()), key=lambda family: family.name):
        if family.name.startswith("process_"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        shown = ", ".join(f"`{label}`" for label in sorted(labels))
        words = family.documentation
        if family.name not in everywhere:
            words += " Only the leader has it."
        rows.append((f"`{name}`", family.type, shown, words))
    return _table(("metric", "type", "labels", ""), rows)


def event_table() -> str:
    """What is logged; events below the level of the log are left out."""
    least = inspect.signature(Log).parameters["level"].default
    rows = []
    for event in Event:
        words = event.value
        if words.level >= least:
            sentence = words.sentence.replace("\n", " ").replace("|", "\\|")
            rows.append((f"`{event.name.lower()}`", _level(words.level), sentence))
    return _table(("event", "level", "message"), rows)


def _level(number: int) -> str:
    return str(logging.getLevelName(number)).lower()


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


# Database roles ---------------------------------------------------------------------------------


def role_table() -> str:
    """The kinds, what each is for, and the name that a role of it has if nobody gives another."""
    rows = [
        (f"`{USUAL_NAMES[Kind[name]]}`", f"{Kind[name]}", words)
        for name, words in _docstrings(Kind).items()
    ]
    return _table(("role", "kind", "who, and what for"), rows)


def right_table() -> str:
    """Everything in the schema, and what each kind may do with it; functions with an asterisk act
    with the owner's rights."""
    words = {**LETTERS, "X": "EXECUTE"}
    doors = set(
        re.findall(
            r"FUNCTION (\w+)\((?:(?!\nAS|;|CREATE ).)*?SECURITY DEFINER",
            functions_text(README.parent / "store" / "functions"),
            re.S,
        )
    )
    rows = []
    for what, name, letters in rights.lines():
        star = "*" if what == "function" and name in doors else ""
        cells = []
        for kind in Kind:
            each, _, column = letters[kind].rstrip(")").partition("(")
            said = ", ".join(words[letter].lower() for letter in each)
            cells.append(said + (f" of {column}" if column else ""))
        rows.append((f"{what} `{name}`{star}", *cells))
    return _table(("", *Kind), rows)


#: Name of the part -> what makes it.
DERIVED: dict[str, Callable[[], str]] = {
    "roles": role_table,
    "rights": right_table,
    "outcomes": outcome_table,
    "state-picture": state_picture,
    "states": state_table,
    "commands": command_table,
    "signals": signal_table,
    "settings": settings.markdown_table,
    "exit-codes": exit_code_table,
    "metrics": metric_table,
    "events": event_table,
}


def renew_digest() -> None:
    """Writes what store/functions is into the header of the migration that brings it."""
    folder = README.parent / "store"
    promised = digest(functions_text(folder / "functions"))
    bringing = [one for one in load(folder / "migrations") if one.functions_digest]
    if bringing[-1].functions_digest != promised:
        if bringing[-1].number <= RELEASED:
            raise SystemExit(f"{bringing[-1].label} is released: the functions need a migration")
        path = folder / "migrations" / f"{bringing[-1].label}.sql"
        old = f"-- functions: {bringing[-1].functions_digest}"
        path.write_text(bringing[-1].text.replace(old, f"-- functions: {promised}", 1))


if __name__ == "__main__":
    renew_digest()
    manual.write()
    for page in (README, DEPLOYING):
        page.write_text(renewed(page.read_text()))
