"""Who may do what, and whether anybody listens on the way: examined, nothing is changed."""

from __future__ import annotations

from jobctl.store import grants, rights
from jobctl.store.finding import Finding, finding
from jobctl.store.reading import Connection, Row
from jobctl.store.rights import SEES_OTHERS, Kind
from jobctl.store.statements import sql


def examine(connection: Connection, schema: str) -> list[Finding]:
    """Everything that is looked at, fine or not. Raises what psycopg raises."""
    (row,) = connection.execute(sql("read_access"), {"sees": SEES_OTHERS}).fetchall()
    return [
        _this_user(connection, schema, row["login"]),
        *_roles(connection, schema),
        _everybody(row["for_everybody"]),
        finding(
            "statistics",
            row["sees_others"],
            f"{row['login']} sees the transactions of other users"
            if row["sees_others"]
            else f"{row['login']} does not see the transactions of other users: an old one is "
            "found neither here nor by a leader that logs in like this",
            f"let a superuser run: GRANT {SEES_OTHERS} TO {grants.quoted(row['login'])}",
            note=True,
        ),
        way({**row, "version": row["version"] or _hidden(connection)}),
    ]


def _this_user(connection: Connection, schema: str, login: str) -> Finding:
    """Which kinds' rights the user has who asks: all, for the owner."""
    able = [str(kind) for kind in Kind if not rights.lacking(connection, kind, schema)]
    fact = f"{login} may do what a {able[0]} may" if able else f"{login} is of no kind of role"
    if len(able) > 1:
        fact = f"{login} may do what {', '.join(able[:-1])} and {able[-1]} may"
    return finding("user", bool(able), fact, rights.remedy(), note=True)


def _roles(connection: Connection, schema: str) -> list[Finding]:
    known = grants.grantees(connection, schema)
    found = []
    for role, kind in known:
        if missing := rights.lacking(connection, kind, schema, role):
            advice = f"run as the schema's owner: jobctl grants --{kind} {role!r} --apply"
            fact = f"the {kind} {role} lacks {rights.listed(missing)}"
            found.append(finding("roles", False, fact, advice))
    if not found:
        fact = (
            f"{', '.join(f'{role} ({kind})' for role, kind in known)}: each has its rights"
            if known
            else "no roles with fewer rights were made: jobctl grants makes them"
        )
        found.append(finding("roles", True, fact, ""))
    return found


def _everybody(functions: list[str]) -> Finding:
    """A function with the owner's rights that anybody may call is a door that stands open."""
    return finding(
        "public",
        not functions,
        "nobody may call jobctl's functions who was not given them"
        if not functions
        else f"everybody who may use the schema may call {', '.join(functions)}",
        "they act with the owner's rights: REVOKE EXECUTE ON FUNCTION ... FROM PUBLIC",
    )


def _hidden(connection: Connection) -> str | None:
    """What the server does not show to every role: whether there is TLS, libpq knows."""
    return "TLS" if connection.pgconn.ssl_in_use else None


def way(row: Row) -> Finding:
    """Over a network without TLS, the password's proof and every argument can be read."""
    near = row["near"]
    safe = bool(row["version"]) or bool(near)
    fact = (
        f"the connection is encrypted: {row['version']}, {row['cipher'] or 'cipher not shown'}"
        if row["version"]
        else "the connection does not leave this machine"
        if near
        else f"the connection to {row['server']} is not encrypted"
    )
    return finding(
        "encryption",
        safe,
        fact,
        "whoever is between reads every job: ssl = on in PostgreSQL, hostssl in pg_hba.conf, and "
        "sslmode=verify-full with sslrootcert=... in the DSN",
    )
