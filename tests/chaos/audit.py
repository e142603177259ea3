"""PostgreSQL's own history: every claim, release, ending and burial that was committed.

Written by triggers in the transaction that does it, so that it is there exactly if that is; also
after a crash that has lost an asynchronous commit. For one job its order is the order of things:
a claim's row is locked by whoever ends it.
"""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

import psycopg
from psycopg.rows import class_row

INSTALL = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.audit (
    id      bigserial,
    xid     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    op      text NOT NULL,
    job     bigint,
    session bigint,
    token   bigint,
    detail  text
);
-- Sessions leave; whose they were must stay known.
CREATE TABLE chaos.host (session bigint PRIMARY KEY, host text NOT NULL);

CREATE FUNCTION chaos.claimed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.audit (op, job, session, token)
    VALUES ('claim', NEW.job_id, NEW.session_id, NEW.token);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.released() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.audit (op, job, session, token)
    VALUES ('release', OLD.job_id, OLD.session_id, OLD.token);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.finished() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.audit (op, job, session, token, detail)
    VALUES ('finished', NEW.id, NEW.session_id, NEW.token, NEW.state);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.attempted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.audit (op, job, session, token, detail)
    VALUES ('attempt', NEW.job_id, NEW.session_id, NEW.token, NEW.outcome);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.registered() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.host VALUES (NEW.id, NEW.host);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.buried() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.audit (op, session, detail) VALUES ('buried', NEW.id, NEW.dead_because);
    RETURN NULL;
END $$;

CREATE TRIGGER chaos AFTER INSERT ON jobctl.claim FOR EACH ROW EXECUTE FUNCTION chaos.claimed();
CREATE TRIGGER chaos2 AFTER DELETE ON jobctl.claim FOR EACH ROW EXECUTE FUNCTION chaos.released();
CREATE TRIGGER chaos AFTER INSERT ON jobctl.history FOR EACH ROW EXECUTE FUNCTION chaos.finished();
CREATE TRIGGER chaos AFTER INSERT ON jobctl.attempt FOR EACH ROW EXECUTE FUNCTION chaos.attempted();
CREATE TRIGGER chaos AFTER INSERT ON jobctl.session FOR EACH ROW
    EXECUTE FUNCTION chaos.registered();
CREATE TRIGGER chaos2 AFTER UPDATE ON jobctl.session FOR EACH ROW
    WHEN (NEW.dead AND NOT OLD.dead) EXECUTE FUNCTION chaos.buried();
"""


class Entry(NamedTuple):
    """One line of the audit. `ago`: seconds before it was read."""

    xid: int
    ago: float
    op: str
    job: int | None
    session: int | None
    token: int | None
    detail: str | None
    host: str | None


class Standing(NamedTuple):
    """Where a job stands at the end. `tag` is what its enqueuer called it."""

    job: int
    tag: str
    state: str


def install(dsn: str) -> None:
    """Into a migrated database that nobody works on yet."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(INSTALL)


def entries(connection: psycopg.Connection) -> tuple[float, list[Entry]]:
    """And the moment on this host's monotonic clock from which `ago` counts: both clocks are read
    in one short breath, because to read all the entries takes a busy machine a second."""
    before = monotonic()
    now = connection.execute("SELECT clock_timestamp()").fetchall()[0][0]
    read_at = (before + monotonic()) / 2
    with connection.cursor(row_factory=class_row(Entry)) as cursor:
        found = cursor.execute(
            """
            SELECT a.xid::text::bigint AS xid, a.op, a.job, a.session, a.token, a.detail, h.host,
                   extract(epoch FROM %(now)s - a.at)::float8 AS ago
            FROM chaos.audit a LEFT JOIN chaos.host h USING (session)
            ORDER BY a.id
            """,
            {"now": now},
        ).fetchall()
    return read_at, found


def standings(connection: psycopg.Connection) -> list[Standing]:
    with connection.cursor(row_factory=class_row(Standing)) as cursor:
        return cursor.execute(
            "SELECT id AS job, args ->> 'tag' AS tag, state FROM jobctl.jobs"
        ).fetchall()


def misplaced(connection: psycopg.Connection) -> list[str]:
    rows = connection.execute("SELECT job_id, problem FROM jobctl.placement_violations()")
    return [f"job {job} {problem}" for job, problem in rows]


def unfinished(connection: psycopg.Connection) -> int:
    """How many jobs have not ended yet; dead is an end."""
    row = connection.execute(
        "SELECT count(*) FROM jobctl.job j"
        " WHERE NOT EXISTS (SELECT FROM jobctl.dead d WHERE d.job_id = j.id)"
    ).fetchone()
    assert row is not None
    return int(row[0])
