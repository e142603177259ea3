"""Where one job stands among the others, and who could take it: the facts, read in one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobctl.store import limits, queues, reading
from jobctl.store.reading import Connection, Row, one_moment
from jobctl.store.statements import sql

#: Nobody counts further to say how many are ahead.
MOST_AHEAD = 10_000


@dataclass(frozen=True)
class Standing:
    """`place` is the row of `read_standing`, empty for a job that is over; `busy` is what each
    session holds, by type."""

    now: datetime
    job: Row
    place: Row
    pause: queues.Pause | None
    hosts: list[Row]  # with a lease that is not over
    silent: list[Row]
    busy: list[Row]
    limit: limits.Limit | None = None  # that it waits for
    holders: Sequence[limits.Holder] = ()  # of its places

    def serving(self) -> list[Row]:
        """The hosts that take jobs from its queue."""
        queue = self.job["queue"]
        return [row for row in self.hosts if row["queues"] is None or queue in row["queues"]]


def read(connection: Connection, job_id: int) -> Standing | None:
    """None if there is no such job. Raises what psycopg raises."""
    with one_moment(connection):
        found = reading.jobs(connection, [job_id])
        if not found:
            return None
        places = _rows(connection, "read_standing", id=job_id, most=MOST_AHEAD + 1)
        hosts = reading.hosts(connection)
        key = places[0]["limit_key"] if places else None
        kept = (
            [one for one in limits.limits(connection, key) if one.limit_key == key] if key else []
        )
        return Standing(
            now=reading.clock(connection),
            job=found[0],
            place=places[0] if places else {},
            pause=queues.known(connection).get(found[0]["queue"]),
            hosts=[row for row in hosts if row["state"] not in ("dead", "silent")],
            silent=[row for row in hosts if row["state"] == "silent"],
            busy=_rows(connection, "read_busy"),
            limit=kept[0] if kept else None,
            holders=limits.holders(connection, key, most=5) if key else (),
        )


def _rows(connection: Connection, statement: str, **parameters: Any) -> list[Row]:
    return connection.execute(sql(statement), parameters).fetchall()
