"""Granting: the SQL after which roles have the rights of their kind and no others, and running it.

What has been granted is remembered in table `grantee`, so that migrating can do it again: a new
table or function belongs to nobody but the owner until then. Default privileges are not used: they
would give every new thing to everybody alike, and only what one owner makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from jobctl.store.dsn import conninfo
from jobctl.store.errors import SchemaError
from jobctl.store.rights import SEES_OTHERS, WHO_SHOULD_SEE, Kind, lacking, rights
from jobctl.store.schema_check import check
from jobctl.store.schema_name import DEFAULT_SCHEMA, checked_schema_name
from jobctl.store.statements import sql as statement

#: PostgreSQL cuts what is longer, and grants to somebody else.
LONGEST_NAME = 63
#: What SQL takes for somebody else than a role of that name, or a person would: the first two even
#: when they are quoted.
NOBODYS_NAMES = frozenset(
    {"public", "none", "current_role", "current_user", "session_user", "user"}
)


def grants_text(roles: Sequence[tuple[str, Kind]], schema: str = DEFAULT_SCHEMA) -> str:
    """The SQL, for psql or anything else, after which these roles have their rights and no others.

    It makes roles that are missing, can be run again, and is one transaction. Raises ValueError for
    a name that no schema or no role can have, or for a role of two kinds.
    """
    checked_schema_name(schema)
    kinds = _checked(roles)
    parts = ["BEGIN;"]
    for role, kind in kinds.items():
        parts += [f"\n-- {role}: {kind}", _making(role)]
        parts += [f"{text};" for text in _granting(role, kind, schema)]
    parts.append("\nCOMMIT;")
    seeing = [quoted(role) for role, kind in kinds.items() if kind in WHO_SHOULD_SEE]
    if seeing:
        parts.append(
            "\n-- So that old transactions of others are seen; a superuser has to run it:\n"
            f"-- GRANT {SEES_OTHERS} TO {', '.join(seeing)};"
        )
    return "\n".join(parts) + "\n"


def _checked(roles: Iterable[tuple[str, Kind]]) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for role, kind in roles:
        if not role or not role.isprintable() or len(role.encode()) > LONGEST_NAME:
            raise ValueError(
                f"{role!r} is no name of a role: it has 1 to {LONGEST_NAME} bytes, all printable"
            )
        if role.lower() in NOBODYS_NAMES:
            raise ValueError(
                f"{role} stands for others in SQL, and is no name of a role: name the role itself"
            )
        if role.startswith("pg_"):
            raise ValueError(
                f"{role} belongs to PostgreSQL (pg_ is reserved): grant to a role of your own"
            )
        if kinds.setdefault(role, kind) is not kind:
            raise ValueError(
                f"the role {role} cannot be {kinds[role]} and {kind}: make a role for each, and "
                "let the login that needs both belong to both"
            )
    return kinds


def grant(dsn: str, roles: Sequence[tuple[str, Kind]], schema: str = DEFAULT_SCHEMA) -> list[str]:
    """Does what `grants_text` says, and returns the roles that were made for it.

    Raises ValueError as that does, SchemaError when the schema is not there or this user may not,
    psycopg's OperationalError when the database cannot be reached.
    """
    roles = list(_checked(roles).items())
    where = conninfo(dsn, schema=schema, application_name="jobctl grants")
    with psycopg.connect(where, prepare_threshold=None) as connection:
        check(connection, schema)
        _refuse(connection, roles, schema)
        made = create(connection, [role for role, _ in roles])
        apply(connection, roles, schema)
        return made


def _refuse(
    connection: psycopg.Connection[Any], roles: Sequence[tuple[str, Kind]], schema: str
) -> None:
    """What would take rights away from somebody who works with them. Raises SchemaError."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        ((owner,),) = cursor.execute(statement("read_owner"), {"schema": schema})
    known = dict(grantees(connection, schema))
    for role, kind in roles:
        if role == owner:
            raise SchemaError(
                f'{quoted(role)} owns the schema "{schema}" and may do everything: name another'
            )
        if known.get(role, kind) != kind:
            raise SchemaError(
                f"{quoted(role)} is a role of kind {known[role]}, and somebody may work as one "
                f"now: name another role for {kind}, or first delete its row in {schema}.grantee"
            )


def apply(
    connection: psycopg.Connection[Any], roles: Iterable[tuple[str, Kind]], schema: str
) -> None:
    """Does what `grants_text` says, in the caller's transaction. The roles must exist.

    Raises SchemaError when this user may not, or a role does not exist.
    """
    for role, kind in roles:
        try:
            for text in _granting(role, kind, schema):
                connection.execute(text.encode())
        except psycopg.errors.InsufficientPrivilege as error:
            raise SchemaError(
                f'this database user may not grant rights in schema "{schema}" '
                f"({error.diag.message_primary}): do it as the owner of the schema, who migrates it"
            ) from error
        except psycopg.errors.UndefinedObject as error:
            raise SchemaError(
                f"{error.diag.message_primary}: make it first, CREATE ROLE {quoted(role)}"
            ) from error


def create(connection: psycopg.Connection[Any], roles: Iterable[str]) -> list[str]:
    """Makes those of these roles that do not exist, without a login; returns them.

    Raises SchemaError when this user may not.
    """
    wanted = list(dict.fromkeys(roles))
    made = []
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute("SELECT rolname FROM pg_catalog.pg_roles WHERE rolname = ANY(%s)", [wanted])
        there = {name for (name,) in cursor}
        for role in wanted:
            if role in there:
                continue
            text = f"CREATE ROLE {quoted(role)} NOLOGIN"
            try:
                cursor.execute(text.encode())
            except psycopg.errors.InsufficientPrivilege as error:
                raise SchemaError(
                    f"this database user may not make roles: have somebody who may run {text}, "
                    "then run jobctl grants --apply again"
                ) from error
            made.append(role)
    return made


def grantees(connection: psycopg.Connection[Any], schema: str) -> list[tuple[str, Kind]]:
    """The roles that were given rights and still exist, with their kinds."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        if not cursor.execute(statement("grantees_known"), {"schema": schema}).fetchone():
            return []
        text = sql.SQL(statement("read_grantees")).format(schema=sql.Identifier(schema))
        return [(role, Kind(kind)) for role, kind in cursor.execute(text)]


def incomplete(connection: psycopg.Connection[Any], schema: str) -> list[tuple[str, Kind]]:
    """Those of them that lack something which their kind has."""
    known = grantees(connection, schema)
    return [(role, kind) for role, kind in known if lacking(connection, kind, schema, role)]


def _granting(role: str, kind: Kind, schema: str) -> Iterator[str]:
    """First nothing, then what its kind has, then that it has it."""
    place, whom = quoted(schema), quoted(role)
    for things in ("TABLES", "SEQUENCES", "FUNCTIONS"):
        yield f"REVOKE ALL ON ALL {things} IN SCHEMA {place} FROM {whom}"
    yield f"REVOKE ALL ON SCHEMA {place} FROM {whom}"
    yield f"GRANT USAGE ON SCHEMA {place} TO {whom}"
    alike: dict[tuple[str, str], list[str]] = {}
    by_thing: dict[tuple[str, str], list[str]] = {}
    for right in rights(kind):
        column = f" ({quoted(right.column)})" if right.column else ""
        by_thing.setdefault((right.what, right.name), []).append(right.privilege + column)
    for (what, name), has in by_thing.items():
        alike.setdefault((what, ", ".join(has)), []).append(f"{place}.{quoted(name)}")
    for (what, privileges), names in alike.items():
        yield f"GRANT {privileges} ON {what.upper()} {', '.join(names)} TO {whom}"
    yield (  # nothing here but literals and identifiers, quoted above
        f"INSERT INTO {place}.grantee (role, kind) VALUES ({_literal(role)}, {_literal(kind)}) "  # noqa: S608 - see above
        "ON CONFLICT (role) DO UPDATE SET kind = excluded.kind, granted_at = now()"
    )


def _making(role: str) -> str:
    # format() quotes the name for the statement, and the whole is a literal: no name ends it.
    body = (
        "BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles "
        f"WHERE rolname = {_literal(role)}) THEN "
        f"EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', {_literal(role)}); END IF; END"
    )
    return f"DO {_literal(body)};"


def quoted(name: str) -> str:
    """As SQL takes it, whatever is in it."""
    return sql.Identifier(name).as_string(None)


def _literal(text: str) -> str:
    return sql.Literal(str(text)).as_string(None)
