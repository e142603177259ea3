"""The health of the schema: is every job in exactly one place, is anybody there to run it?

Nothing is changed.
"""

from __future__ import annotations

from jobctl.store import reading
from jobctl.store.finding import Finding, finding
from jobctl.store.reading import Connection
from jobctl.store.statements import sql


def examine(connection: Connection) -> list[Finding]:
    """Everything that is looked at, fine or not. Raises what psycopg raises."""
    (row,) = connection.execute(sql("read_health"), {}).fetchall()
    stuck = reading.stuck(connection)
    strangers = reading.unrunnable(connection)
    return [
        finding(
            "placement",
            row["misplaced"] == 0,
            "every job is in exactly one place"
            if row["misplaced"] == 0
            else f"{row['misplaced']} jobs are in no place or in several: {row['examples']}",
            "this is a bug of jobctl's, or rows were changed by hand: please report it",
        ),
        finding(
            "history",
            row["partitions_ahead"],
            "partitions of history are made ahead"
            if row["partitions_ahead"]
            else "no partition of history exists for the day after tomorrow",
            "the leader makes them; see whether a supervisor runs, or run jobctl migrate",
        ),
        finding(
            "supervisors",
            row["ready"] > 0,
            f"{row['supervisors']} supervisors hold a lease, {row['ready']} have a ready slot",
            "start one: jobctl run --app ...; of one that is not ready, the log says why",
        ),
        finding(
            "leader",
            row["leaders"] == 1 or row["supervisors"] == 0,
            f"{row['leaders']} of them lead",
            "one should lead within half a minute; if not, see the log for duty_failed",
        ),
        finding(
            "stuck",
            not stuck,
            f"{len(stuck)} running jobs are looked after by nobody",
            "the leader reclaims them when their lease is over; see jobctl hosts",
        ),
        finding(
            "types",
            not strangers,
            "every waiting job's type is known to a supervisor"
            if not strangers
            else "no supervisor can run " + ", ".join(str(each["type"]) for each in strangers),
            "deploy code that has them",
        ),
    ]
