"""Who may do what in the schema: four kinds of database roles, and one definition of their rights.

The owner, who migrates, may do everything. Everybody else belongs to a role of one kind, which has
what stands below and nothing more; a role has no right on anything that is not listed here, and a
test fails for a table or function without a line. From the same lines come the SQL of `jobctl
grants`, what migrating grants anew, what `jobctl doctor` and a starting supervisor look for, and
the table in the docs.

Two ways to be let in, on purpose. Those who enqueue and those who operate come through functions
with the owner's rights (SECURITY DEFINER, search_path pinned, nothing for PUBLIC): so they need no
rights on jobs, claims and the audit log, and nothing that they can type reaches a table past the
checks. The supervisor's own statements are granted table by table instead: they are its hot path,
and whoever runs jobs decides their outcome anyway. What needs ownership (a new day's partition of
history) it too reaches by a function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import tuple_row

from jobctl.store.errors import SchemaError
from jobctl.store.statements import sql as statement


class Kind(StrEnum):
    """What a role is for."""

    PRODUCER = "producer"
    """Applications. Enqueues, asks what became of a job, waits for it, cancels it. Reads no table
    of jobs; of a job whose id it knows everything but the arguments."""

    WORKER = "worker"
    """Supervisors, and the handlers that they run. Claims, settles, keeps house and leads. Makes no
    tables, sets no limits, pauses nothing, and does not see the audit log."""

    OPERATOR = "operator"
    """People who intervene. Reads everything; enqueues, replays, discards, cancels, pauses, drains,
    sets limits and crons. Moves no job by hand, and adds to the audit log but cannot change it."""

    READ_ONLY = "read-only"
    """People and dashboards that look. Reads everything, the arguments of jobs too; changes
    nothing."""


class Right(NamedTuple):
    """One privilege on one thing of the schema. `column` only for UPDATE of a single one."""

    what: str  # table (views too), sequence, function
    name: str
    privilege: str
    column: str = ""

    def __str__(self) -> str:
        privilege = f"{self.privilege} ({self.column})" if self.column else self.privilege
        return f"{privilege} on {self.name}"


LETTERS = {"S": "SELECT", "I": "INSERT", "U": "UPDATE", "D": "DELETE", "N": "USAGE"}

#: S select, I insert, U update (also what locking a row asks for), D delete; N nextval.
_TABLES = """
table               producer  worker  operator              read-only
attempt             -         SID     S                     S
audit               -         -       SI                    S
blocked             -         SIUD    S                     S
claim               -         SIUD    S                     S
cron_declaration    -         SIUD    S                     S
cron_entry          -         SIUD    SIUD                  S
cron_fire           -         SIUD    S                     S
dead                -         SI      S                     S
effect              -         SIUD    S                     S
enqueue_mark        -         SU      S                     S
grantee             -         -       S                     S
history             -         SI      S                     S
job                 -         SUD     S                     S
job_edge            -         SIUD    S                     S
job_key             -         SUD     S                     S
job_type            -         SIU     S                     S
lane                -         SIUD    S                     S
limit_arrival       -         SIUD    S                     S
limit_rule          -         S       S                     S
limit_state         -         SIUD    S                     S
migration           S         S       S                     S
place               -         SIUD    S                     S
queue_pause         -         S       SID                   S
queue_seen          -         S       S                     S
ready               -         SIUD    S                     S
scheduled           -         SIUD    S                     S
session             -         SIUD    SU(drain_requested_at) S
attempts            -         -       S                     S
cron                -         -       S                     S
edges               -         -       S                     S
jobs                -         -       S                     S
limits              -         -       S                     S
queue               -         S       S                     S
"""
_SEQUENCES = """
sequence            producer  worker  operator  read-only
attempt_id_seq      -         -       -         -
audit_id_seq        -         -       -         -
job_id_seq          -         S       -         -
ready_seq           -         SN      -         -
ring_at             -         SU      SU        -
"""
_CALLS = """
function                producer  worker  operator  read-only
admit                   -         X       -         -
admit_arrivals          -         X       -         -
announce                -         X       X         -
apply_limit_rule        -         -       -         -
begin_effect            -         X       -         -
brake_limits            -         X       -         -
cancel                  X         X       X         -
cancel_children         -         X       -         -
cancel_many             X         X       X         -
cancel_one              -         -       -         -
channel                 -         X       X         -
claim_holds             -         X       -         -
cron_is_open            -         X       -         -
cron_job                -         X       -         -
dated_progress          -         X       -         -
declare_crons           -         X       -         -
discard_many            -         -       X         -
drop_effect             -         X       -         -
drop_history_partition  -         X       -         -
end_cancelled           -         -       -         -
enqueue                 X         X       X         -
enqueue_many            X         X       X         -
enqueue_steps           -         X       -         -
finish_effect           -         X       -         -
fire_cron               -         X       -         -
get                     X         X       X         X
hasten_many             -         -       X         -
hold_limit              -         X       -         -
hold_steps              -         -       -         -
leave_places            -         -       -         -
limit_rule_for          -         X       -         -
lock_blocked            -         X       -         -
make_history_partitions -         X       -         -
mend_limits             -         X       -         -
place_jobs              -         X       -         -
placement_violations    -         -       X         X
reconcile_crons         -         X       -         -
release_children        -         X       -         -
release_limit           -         -       X         -
remove_limit            -         -       X         -
replay                  -         -       X         -
replay_many             -         -       X         -
ring                    -         X       X         -
run_cron                -         -       X         -
set_limit               -         -       X         -
settle_places           -         X       -         -
sweep_children          -         X       -         -
wait                    X         X       X         X
"""

#: What a group is called if nobody gives it another name.
USUAL_NAMES = {kind: f"jobctl_{kind.replace('-', '_')}" for kind in Kind}
#: Without it PostgreSQL shows nobody else's transactions, and the age of the oldest is not known.
#: Only who may grant it (a superuser, mostly) can.
SEES_OTHERS = "pg_read_all_stats"
WHO_SHOULD_SEE = (Kind.WORKER, Kind.OPERATOR, Kind.READ_ONLY)


def lines() -> Iterator[tuple[str, str, dict[Kind, str]]]:
    """Every thing of the schema: what it is, its name, and the letters that each kind has."""
    for table in (_TABLES, _SEQUENCES, _CALLS):
        title, *rows = (line.split() for line in table.strip().splitlines())
        what, *kinds = title
        for name, *letters in rows:
            yield (
                what,
                name,
                {
                    Kind(kind): "" if given == "-" else given
                    for kind, given in zip(kinds, letters, strict=True)
                },
            )


@cache
def rights(kind: Kind) -> tuple[Right, ...]:
    """All that a role of this kind has, beside USAGE on the schema."""
    return tuple(
        right for what, name, letters in lines() for right in _spelt(what, name, letters[kind])
    )


def _spelt(what: str, name: str, letters: str) -> Iterator[Right]:
    if letters == "X":
        yield Right(what, name, "EXECUTE")
        return
    letters, _, column = letters.rstrip(")").partition("(")
    for letter in letters:
        # A column stands behind the letter that it belongs to, the last.
        yield Right(what, name, LETTERS[letter], column if letter == letters[-1] else "")


def lacking(
    connection: psycopg.Connection[Any], kind: Kind, schema: str, role: str | None = None
) -> list[Right]:
    """What a role (None: the user who asks) lacks of the rights of a kind. A thing that does not
    exist, because the schema is a newer one, is not missed."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(statement("read_lacking"), _asked(kind, schema, role))
        return [Right(*row) for row in cursor]


async def arequire(connection: psycopg.AsyncConnection[Any], kind: Kind, schema: str) -> None:
    """Returns if the user of this connection has the rights of a kind. Raises SchemaError, naming
    what is lacking: better than to find it out in the middle of the work."""
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(statement("read_lacking"), _asked(kind, schema, None))
        missing = [Right(*row) async for row in cursor]
    if missing:
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute("SELECT current_user::text")  # SET ROLE may have made it another
            ((user,),) = await cursor.fetchall()
        raise SchemaError(
            f'the database user {user} lacks rights in schema "{schema}" that a {kind} needs: '
            f"{listed(missing)}. {remedy(kind)}"
        )


def listed(missing: Sequence[Right], most: int = 3) -> str:
    """Some of them, and how many more."""
    shown = ", ".join(str(right) for right in missing[:most])
    more = len(missing) - most
    return f"{shown} and {more} more" if more > 0 else shown


def caller_of(function: str) -> Kind | None:
    """The kind with the fewest rights that may call this function; None if none may."""
    may = [kind for kind in Kind if Right("function", function, "EXECUTE") in rights(kind)]
    return min(may, key=lambda kind: len(rights(kind)), default=None)


def remedy(kind: Kind | None = None) -> str:
    """What to do about a right that is missing."""
    of = f" --{kind} ROLE" if kind else ""
    whose = f"the role of a {kind}" if kind else "one of its roles"
    return (
        f"Let the schema's owner run jobctl grants{of} --apply, and this user be a member of "
        f"{whose}: GRANT ROLE TO user"
    )


def _asked(kind: Kind, schema: str, role: str | None) -> dict[str, Any]:
    wanted = rights(kind)
    return {
        "role": role,
        "schema": schema,
        "what": [right.what for right in wanted],
        "names": [right.name for right in wanted],
        "privileges": [right.privilege for right in wanted],
        "columns": [right.column for right in wanted],
    }
