"""`jobctl limits`: how many jobs of a key may run at once, and how fast they may start.

Adding slots must not drown what the jobs call. A limit holds over all hosts and counts from the
moment it is set.
"""

from __future__ import annotations

from dataclasses import asdict

import click

from jobctl.cli import database
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.kinds import RATE, TEXT
from jobctl.cli.moments import coarse
from jobctl.cli.nouns import Noun
from jobctl.cli.options import database_options
from jobctl.cli.output import Output, Row, output_option, say
from jobctl.store import limits as store
from jobctl.store.operating import Order
from jobctl.supervisor.settings_sources import Loaded

reason_option = click.option(
    "--reason", type=TEXT, metavar="TEXT", help="Why; kept in the audit log."
)
key_argument = click.argument("key", metavar="KEY", type=TEXT)


@click.group(cls=Noun)
def limits() -> None:
    """Limits: how many jobs of a key may run at once, and how fast they may start."""


@limits.command("list")
@click.argument("key", metavar="[KEY]", required=False, type=TEXT)
@database_options
@output_option
def list_(loaded: Loaded, output: Output, key: str | None) -> None:
    """List limits: what they allow, how many places are held, who waits and for how long."""
    with database.connect(loaded) as connection:
        found = store.limits(connection, key)
    if key is not None and not found:
        raise _no_such(key)
    output.rows(
        [asdict(one) for one in found],
        name="limit_key",
        titles=("LIMIT", "RULE", "PLACES", "HELD", "WAITING", "OLDEST", "RATE", "NOTE"),
        cells=_cells,
    )


@limits.command("set")
@key_argument
@click.argument("places", metavar="[N]", required=False, type=click.IntRange(0, store.MOST_PLACES))
@click.option("--rate", type=RATE, metavar="N/s", help="Starts a second; N/m, N/h and N/d too.")
@click.option(
    "--burst", type=click.IntRange(1, store.MOST_PLACES), metavar="N",
    help="With --rate: so many may start at once after a pause. Default 1: evenly spaced.",
)  # fmt: skip
@click.option(
    "--brake", is_flag=True,
    help="Take places away while its jobs fail, and give them back while they do not.",
)  # fmt: skip
@reason_option
@database_options
def set_(
    loaded: Loaded,
    key: str,
    places: int | None,
    rate: float | None,
    burst: int | None,
    brake: bool,
    reason: str | None,
) -> None:
    """Let N jobs of KEY run at once, over all hosts; 0 stops them.

    A KEY that ends with * is a pattern, and gives each key that begins so N places of its own; the
    key's own limit counts first, then the longest pattern. It counts at once: what runs goes on to
    its end.
    """
    if not 0 < len(key) <= store.LONGEST_KEY:
        raise click.UsageError(f"A limit's key has 1 to {store.LONGEST_KEY} characters.")
    if "*" in key[:-1] or not key.isprintable():
        raise click.UsageError(
            "A limit's key is printable, and a * stands only at its end: all keys that begin so."
        )
    if places is None and rate is None:
        raise click.UsageError("Say how many may run at once (N), how fast (--rate), or both.")
    if burst is not None and rate is None:
        raise click.UsageError("--burst is part of a --rate.")
    if brake and not places:
        raise click.UsageError("--brake needs N, the places that it takes away and gives back.")
    spacing = None if rate is None else 1 / rate
    if spacing is not None and not 0 < spacing <= store.LONGEST_SPACING:
        raise click.UsageError("A rate is at least one in 365 days.")
    with database.connect(loaded) as connection:
        store.set_limit(
            connection, key, Order.by_me(reason, {}), max_running=places, per_seconds=spacing,
            burst=burst or 1, brake=brake,
        )  # fmt: skip
        held = sum(one.held for one in store.limits(connection, key))
    words = []
    if places is not None:
        words.append(f"{places} at once")
    if rate is not None:
        words.append(f"{_rate(rate)}, {burst or 1} at once after a pause")
    say(f"{key} is limited to {' and '.join(words)}; {held} of its jobs hold a place now.")


@limits.command()
@key_argument
@reason_option
@database_options
def remove(loaded: Loaded, key: str, reason: str | None) -> None:
    """Forget a limit: a pattern that fits counts instead, or nothing does."""
    with database.connect(loaded) as connection:
        if not store.remove(connection, key, Order.by_me(reason, {})):
            raise _no_such(key)
    say(f"The limit {key} is removed.")


@limits.command()
@key_argument
@reason_option
@database_options
def release(loaded: Loaded, key: str, reason: str | None) -> None:
    """Take off the brake of a key, and the wait that RetryAfter(hold_limit=True) has laid on it."""
    with database.connect(loaded) as connection:
        if not store.release(connection, key, Order.by_me(reason, {})):
            raise _no_such(key)
    say(f"{key} is released: its limit counts as it was set.")


def _cells(row: Row) -> list[object]:
    notes = []
    if row["braked_to"] is not None:
        notes.append(f"braked to {row['braked_to']}")
    elif row["brake"]:
        notes.append("brake set")
    if row["held_until"] is not None:
        notes.append(f"nobody starts before {row['held_until']:%H:%M:%S}")
    rate = "" if row["rate"] is None else _rate(row["rate"])
    return [
        row["limit_key"],
        row["rule"] if row["rule"] != row["limit_key"] else "",
        "any" if row["max_running"] is None else row["max_running"],
        row["held"],
        row["waiting"],
        "" if row["age"] is None else coarse(row["age"]),
        rate and f"{rate} (burst {row['burst']})",
        ", ".join(notes),
    ]


def _rate(rate: float) -> str:
    for letter, seconds in (("s", 1), ("m", 60), ("h", 3600)):
        if rate * seconds >= 1:
            return f"{rate * seconds:.10g}/{letter}"
    return f"{rate * 86_400:.10g}/d"


def _no_such(key: str) -> Failure:
    return Failure(
        ExitCode.NO_SUCH_THING,
        f"There is no limit {key}, and no job has come with it lately; nothing was changed. "
        "jobctl limits list shows what there is",
    )
