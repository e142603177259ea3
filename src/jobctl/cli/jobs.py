"""`jobctl jobs`: list, show, wait, retry."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Any

import click
from click.core import ParameterSource

from jobctl.cli import bulk, database, graph
from jobctl.cli.bulk import Deed
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.how_far import words
from jobctl.cli.kinds import ID
from jobctl.cli.moments import DURATION, coarse, iso, since
from jobctl.cli.nouns import Noun
from jobctl.cli.options import Chosen, database_options, filter_options, state_words
from jobctl.cli.output import Output, Row, json_text, output_option, say
from jobctl.cli.table import STATE_COLOURS, paint, safe, safe_lines
from jobctl.store import operating, reading
from jobctl.store.reading import Connection
from jobctl.store.states import State
from jobctl.supervisor.settings_sources import Loaded

TITLES = ("ID", "TYPE", "QUEUE", "STATE", "ATTEMPT", "WHEN", "KEY", "ERROR")
#: How often `wait` looks: soon at first, then calmly.
FIRST_LOOK, LAST_LOOK = 0.05, 1.0


@click.group(cls=Noun)
def jobs() -> None:
    """Jobs, one by one and by the thousand."""


@jobs.command("list")
@filter_options(states=state_words())
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--after", type=ID, metavar="ID", help="Go on behind this job of a list before.")
@database_options
@output_option
def list_(loaded: Loaded, chosen: Chosen, limit: int, after: int | None, output: Output) -> None:
    """List jobs, newest first; dead ones by when they died."""
    if after is not None and chosen.words["state"] == State.DEAD:
        raise click.UsageError("Dead jobs are listed by when they died: go on with --until.")
    with database.connect(loaded) as connection:
        now = database.now(connection)
        rows = reading.find(connection, chosen.at(now), limit + 1, after=after)
    print_list(output, rows[:limit], now)
    if len(rows) > limit and output.is_table:
        last = rows[limit - 1]
        dead = chosen.words["state"] == State.DEAD
        go_on = f"--until {iso(last['dead_since'])}" if dead else f"--after {last['id']}"
        say(f"There are more: {go_on}")


def print_list(output: Output, rows: Sequence[Row], now: datetime) -> None:
    """Jobs as a table has room for them, or whole in JSON."""

    def cells(row: Row) -> list[object]:
        return [
            row["id"],
            row["type"],
            row["queue"],
            row["state"],
            f"{row['attempt']}/{row['max_attempts']}",
            _when(row, now),
            row["key"],
            error_of(row),
        ]

    output.rows(rows, name="id", titles=TITLES, cells=cells)


@jobs.command()
@click.argument("job_id", metavar="ID", type=ID)
@database_options
@output_option
def show(loaded: Loaded, job_id: int, output: Output) -> None:
    """Show everything that is known about a job."""
    with database.connect(loaded) as connection:
        now = database.now(connection)
        job = _existing(connection, job_id)
    output.one(job, name=job_id, text=lambda: _text(job, now))


@jobs.command()
@click.argument("job_ids", metavar="ID...", type=ID, nargs=-1, required=True)
@click.option("--timeout", type=DURATION, help="Give up after so long, with exit code 124.")
@database_options
@output_option
def wait(loaded: Loaded, job_ids: tuple[int, ...], timeout: float | None, output: Output) -> int:
    """Wait until jobs are finished. Exits with 0 if all have succeeded, 1 if one is dead,
    cancelled or discarded."""
    give_up = None if timeout is None else monotonic() + timeout
    look = FIRST_LOOK
    with database.connect(loaded) as connection:
        while True:
            found = {row["id"]: row for row in reading.jobs(connection, job_ids)}
            _require_all(job_ids, found)
            if all(_is_over(row["state"]) for row in found.values()):
                break
            if give_up is not None and monotonic() >= give_up:
                left = [f"#{row['id']} is {row['state']}" for row in found.values()]
                raise Failure(ExitCode.TIMED_OUT, f"Still waiting: {', '.join(left)}.")
            # Endings are not announced to whoever might wait: that would be a cost of every job.
            time.sleep(look if give_up is None else max(0.0, min(look, give_up - monotonic())))
            look = min(look * 1.5, LAST_LOOK)
    rows = [found[job_id] for job_id in job_ids]
    output.rows(
        rows,
        name="id",
        titles=("ID", "TYPE", "STATE", "ERROR"),
        cells=lambda row: [row["id"], row["type"], row["state"], error_of(row)],
    )
    succeeded = all(row["state"] == State.SUCCEEDED for row in rows)
    return ExitCode.DONE if succeeded else ExitCode.FAILED


@jobs.command()
@bulk.selection(states=("dead", "scheduled", "retrying"))
@database_options
@output_option
def retry(loaded: Loaded, wish: bulk.Wish, output: Output) -> int:
    """Run jobs again, now: dead ones with new budgets, scheduled and retrying ones before their
    time."""
    verbs = {"dead": operating.replay, "scheduled": operating.hasten, "retrying": operating.hasten}
    return bulk.move(loaded, wish, Deed("retry", "queued again", "queued", verbs), output)


#: What a cancel finds; what is over is not cancelled any more.
CANCELLABLE = ("scheduled", "queued", "retrying", "blocked", "running")
#: Answers that have done what was asked for.
CANCELLED = ("cancelled", "cancel_requested")
_TYPED = ParameterSource.COMMANDLINE


@jobs.command()
@bulk.selection(states=CANCELLABLE)
@click.option("--force", is_flag=True, help="Kill the process of what still runs after --grace.")
@click.option(
    "--grace", type=DURATION, default="10s", show_default=True,
    help="With --force: how long what runs has to end by itself.",
)  # fmt: skip
@database_options
@output_option
def cancel(loaded: Loaded, wish: bulk.Wish, force: bool, grace: float, output: Output) -> int:
    """Cancel jobs: what waits never runs; what runs is asked to end and is not tried again."""
    if not force and click.get_current_context().get_parameter_source("grace") is _TYPED:
        raise click.UsageError("--grace goes with --force: without it nothing is killed.")
    answers: dict[int, str] = {}

    def verb(connection: Connection, ids: Sequence[int], order: operating.Order) -> list[int]:
        said = operating.cancel(connection, ids, order, force_after=grace if force else None)
        answers.update(said)
        return [job_id for job_id, answer in said.items() if answer in CANCELLED]

    verbs = dict.fromkeys(CANCELLABLE, verb)
    deed = Deed("cancel", "cancelled or asked to end", "cancelled", verbs)
    code = bulk.move(loaded, wish, deed, output)
    asked = sum(answer == "cancel_requested" for answer in answers.values())
    if asked:
        killed = f", or is killed in {coarse(grace)}" if force else ""
        say(f"Of them {asked} had begun: each ends at its next safe point{killed}.")
    return code


def error_of(row: Row) -> str:
    """Class and first line of a job's last error."""
    first = (row["last_error"] or "").strip().split("\n", 1)[0]
    named = row["failure_class"] or row["last_error_code"]
    return ": ".join(part for part in (named, first) if part)


def _existing(connection: Connection, job_id: int) -> dict[str, Any]:
    job = reading.job(connection, job_id)
    if job is None:
        raise Failure(ExitCode.NO_SUCH_THING, no_such_job(job_id))
    return job


def _require_all(wanted: Sequence[int], found: Mapping[int, Row]) -> None:
    missing = [job_id for job_id in wanted if job_id not in found]
    if missing:
        raise Failure(ExitCode.NO_SUCH_THING, *(no_such_job(job_id) for job_id in missing))


def no_such_job(job_id: int) -> str:
    """What to say of a number that nothing has."""
    return f"There is no job #{job_id}. Finished jobs are forgotten after history_keep."


def _is_over(state: str) -> bool:
    return State(state).is_final or state == State.DEAD


def _when(row: Row, now: datetime) -> str:
    """What matters about the job's time in its state."""
    match row["state"]:
        case State.SCHEDULED | State.RETRYING:
            due = (row["run_at"] - now).total_seconds()
            return f"in {coarse(due)}" if due > 0 else "due"
        case State.QUEUED:
            return f"due {since(now, row['run_at'])} ago"
        case State.RUNNING:
            return f"for {since(now, row['started_at'])}"
        case State.DEAD:
            return f"{since(now, row['dead_since'])} ago"
        case State.BLOCKED:
            return f"for {since(now, row['created_at'])}"
        case _:
            return f"{since(now, row['finished_at'])} ago"


#: The lines of `show`, in the order of a life; absent when there is nothing to say.
_LINES = (
    "queue", "priority", "key", "limit_key", "subject", "link", "owner", "schema_version",
    "created_at", "run_at", "started_at", "finished_at", "dead_since", "locked_by", "locked_until",
    "cancel_requested_at", "stuck_because", "crashes", "failure_class", "last_error_code",
    "first_failed_at", "last_failed_at",
)  # fmt: skip


def _text(job: dict[str, Any], now: datetime) -> str:
    state = paint(job["state"], STATE_COLOURS.get(job["state"]))
    tries = f"attempt {job['attempt']} of {job['max_attempts']}"
    number = paint(f"#{job['id']}", "bold")
    lines = [f"{number} {safe(job['type'])}  {state}  {tries}", ""]
    for name in _LINES:
        value = job[name]
        if value is None or value is False or (name == "crashes" and not value):
            continue
        shown = safe(str(value))
        if isinstance(value, datetime):
            ago = since(now, value)
            shown = f"{iso(value)}  ({ago if ago.startswith('in ') else f'{ago} ago'})"
        lines.append(f"{name:<20} {shown}")
    if job["progress"] is not None:
        lines.append(f"{'progress':<20} {safe(words(job['progress'], now))}")
    for name in ("args", "result"):
        if job[name] is not None:
            lines.append(f"{name:<20} {safe(json_text(job[name]))}")
    if job["last_error"]:
        lines += ["", "last_error", *(f"  {line}" for line in safe_lines(job["last_error"]))]
    if job["graph"]:
        lines += ["", *graph.lines(job["graph"], job["id"])]
    for attempt in job["attempts"]:
        lines += ["", *_attempt_lines(attempt)]
    return "\n".join(lines)


def _attempt_lines(attempt: Row) -> list[str]:
    place = attempt["host"] or "an unknown host"
    if attempt["host"] and attempt["slot"] is not None:
        place = f"{place}:{attempt['slot']}"
    begun, ended = attempt["started_at"], attempt["ended_at"]
    took = f" after {coarse((ended - begun).total_seconds())}" if begun else ""
    title = (
        f"attempt {attempt['attempt']}  {attempt['outcome']}{took} on {safe(place)}, {iso(ended)}"
    )
    lines = [paint(title, "bold")]
    if attempt["progress"] is not None:
        lines.append(f"  it had come to: {safe(words(attempt['progress']))}")
    error = ": ".join(part for part in (attempt["error_class"], attempt["error"]) if part)
    for text in (error, attempt["exit_reason"], attempt["stack"]):
        if text:
            lines += [f"  {line}" for line in safe_lines(text)]
    return lines
