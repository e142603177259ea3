"""The limit: a bare loop of the claim and settle statements, with nothing around them.

One connection for each, one batch after the other, no processes, no sockets, no deadlines: what
PostgreSQL and the driver allow with these statements and this size of batch.
"""

from __future__ import annotations

from time import monotonic

import psycopg

from jobctl.store.dsn import conninfo
from jobctl.store.link import DISPATCH_SETTINGS, Row
from jobctl.store.statements import sql


def drain(dsn: str, schema: str, queue: str, batch: int) -> float:
    """Drains what is queued in this queue, priority 0; returns jobs a second."""
    lanes = [(priority, name) for priority in (3, 2, 1, 0) for name in ("front", "")]
    with _connect(dsn, schema, "off") as claims, _connect(dsn, schema, "on") as settles:
        mark, token, done = 0, 1, 0
        begun = monotonic()
        while True:
            rows = claims.execute(
                sql("claim"),
                {
                    "queues": [queue] * len(lanes),
                    "priorities": [priority for priority, _ in lanes],
                    "lanes": [name for _, name in lanes],
                    "marks": [mark] * len(lanes),
                    "limits": [batch] * len(lanes),
                    "most": batch,
                    "session": 1,
                    "first_token": token,
                    "backstop": 60.0,
                },
            ).fetchall()
            if not rows:
                return done / (monotonic() - begun)
            mark = max(mark, *(row[3] for row in rows))
            token += len(rows)
            done += len(
                settles.execute(
                    sql("settle_succeeded"),
                    {
                        "jobs": [row[4] for row in rows],
                        "tokens": [row[5] for row in rows],
                        "results": [None] * len(rows),
                        "steps": [None] * len(rows),
                        "most_bytes": None,
                        "session": 1,
                        "progress": "{}",
                    },
                ).fetchall()
            )


def _connect(dsn: str, schema: str, synchronous: str) -> psycopg.Connection[Row]:
    where = conninfo(dsn, schema=schema, application_name="jobctl bench limit")
    connection = psycopg.connect(where, autocommit=True, prepare_threshold=0)
    for name, value in {**DISPATCH_SETTINGS, "synchronous_commit": synchronous}.items():
        connection.execute("SELECT set_config(%s, %s, false)", (name, value))
    return connection
