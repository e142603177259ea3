"""Which database, and how our own connections to it are made.

A DSN is what users have: a URL or libpq's `key=value` form, possibly with a password in
it. It is looked for in one order (`resolve`), it is shown only through `masked`, and it
becomes a connection only through `conninfo`, which adds what every connection of ours
needs and keeps what the user had set.

The rule: a DSN that is not understood is not shown, not even in part, and neither is
libpq's complaint about it, which quotes pieces of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from jobctl.store.schema_name import checked_schema_name

MASK: Final = "***"
UNREADABLE: Final = f"{MASK} (a DSN that cannot be read)"

# The variables of libpq that name a server; the others only say how to talk to one.
SERVER_VARIABLES: Final = (
    "PGSERVICE",
    "PGHOST",
    "PGHOSTADDR",
    "PGPORT",
    "PGDATABASE",
    "PGUSER",
)

# What a connection of ours has unless the user's DSN says otherwise. A peer that is gone without
# a word is noticed within half a minute, whether we wait for it (keepalives) or talk to it.
OUR_DEFAULTS: Final[Mapping[str, str]] = {
    "connect_timeout": "10",  # seconds
    "keepalives": "1",
    "keepalives_idle": "10",  # seconds
    "keepalives_interval": "5",  # seconds
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",  # milliseconds
    "target_session_attrs": "read-write",  # after a failover, not the old primary
}

_DRIVER = re.compile(r"^(?:postgres|postgresql)(?:\+\w+)?://", re.IGNORECASE)
_PORTS = re.compile(r"[0-9,]*")


class DsnError(ValueError):
    """The DSN cannot be used; the text says why without showing it."""


def resolve(
    explicit: str | None, dsn_file: str | Path | None, environ: Mapping[str, str] | None = None
) -> str | None:
    """The DSN to use: the flag or JOBCTL_DSN, then the file, then DATABASE_URL.

    Returns "" if only libpq's own variables (PGHOST, ...) name a server, which libpq then reads
    itself, and None if nothing does. A DATABASE_URL of another kind of database is not ours.
    Raises DsnError if the file cannot be read or is empty.
    """
    environ = os.environ if environ is None else environ
    if given := explicit or environ.get("JOBCTL_DSN"):
        return _for_libpq(given)
    if file := dsn_file or environ.get("JOBCTL_DSN_FILE"):
        return _for_libpq(_read(Path(file)))
    url = environ.get("DATABASE_URL", "").strip()
    if _DRIVER.match(url):
        return _for_libpq(url)
    if any(environ.get(name) for name in SERVER_VARIABLES):
        return ""
    return None


def masked(dsn: str) -> str:
    """The DSN for people to read, in the form in which it was given, without any secret."""
    try:
        parameters = _parameters(dsn)
    except DsnError:
        return UNREADABLE
    is_url = _DRIVER.match(dsn.strip()) is not None
    # An "@" or "/" that was not percent-encoded in a password moves pieces of it to other places.
    if is_url and dsn.count("@") > int("@" in _authority(dsn)):
        return UNREADABLE
    # libpq takes a whole DSN for a dbname.
    if "=" in parameters.get("dbname", "") or "://" in parameters.get("dbname", ""):
        parameters["dbname"] = MASK
    secrets = _secret_parameters()
    shown = {name: MASK if name in secrets else value for name, value in parameters.items()}
    return _url(shown) if is_url else make_conninfo(**shown)


def conninfo(dsn: str, *, schema: str, application_name: str, **parameters: str | int) -> str:
    """The DSN for a connection of ours whose unqualified names mean `schema`.

    Adds OUR_DEFAULTS where neither the DSN nor libpq's variables say anything, and the
    search_path behind the user's own `options`; `parameters` (of libpq) overrule both.
    Raises DsnError, and ValueError for a name that no schema can have.
    """
    theirs = _parameters(dsn)
    options = theirs.get("options") or os.environ.get("PGOPTIONS", "")
    return make_conninfo(
        "",
        **{
            **theirs,
            **_our_defaults(theirs),
            **parameters,
            "application_name": application_name,
            "options": f"{options} {own_options(schema)}".strip(),
        },
    )


def handlers_conninfo(dsn: str, *, application_name: str) -> str:
    """The DSN for a connection that is lent to a handler: its names mean what the user's mean.

    Adds OUR_DEFAULTS as `conninfo` does, and no search_path. Raises DsnError.
    """
    theirs = _parameters(dsn)
    words = {**theirs, **_our_defaults(theirs), "application_name": application_name}
    return make_conninfo("", **words)


def _our_defaults(theirs: Mapping[str, str]) -> dict[str, str]:
    """OUR_DEFAULTS where neither the DSN nor libpq's variables say anything."""
    from_environment = {
        option.keyword.decode()
        for option in Conninfo.get_defaults()
        if option.envvar and os.environ.get(option.envvar.decode())
    }
    return {
        name: value
        for name, value in OUR_DEFAULTS.items()
        if name not in theirs and name not in from_environment
    }


def own_options(schema: str) -> str:
    """libpq's `options` that make `schema` the place of unqualified names.

    Raises ValueError for a name that no schema can have.
    """
    # The server splits options at white space; a backslash keeps the next character as it is.
    return "-c search_path=" + re.sub(r"([\\\s])", r"\\\1", own_search_path(schema))


def own_search_path(schema: str) -> str:
    """The search_path that our statements are written for.

    pg_temp comes last: left out, it would come first, and anybody's temporary table could
    stand for one of ours. Raises ValueError for a name that no schema can have.
    """
    return '"{}",pg_temp'.format(checked_schema_name(schema).replace('"', '""'))


def _for_libpq(dsn: str) -> str:
    """Without the driver that SQLAlchemy's URLs name (postgresql+psycopg://)."""
    return _DRIVER.sub("postgresql://", dsn.strip())


def _read(file: Path) -> str:
    try:
        dsn = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise DsnError(f"The DSN cannot be read from {file}: {reason}.") from None
    if not dsn:
        raise DsnError(f"{file} is empty; it has to hold the DSN of the database.")
    return dsn


def _parameters(dsn: str) -> dict[str, str]:
    try:
        parsed = conninfo_to_dict(_for_libpq(dsn))
    except (psycopg.Error, ValueError):  # ValueError: bytes that are not UTF-8, NUL
        raise DsnError(
            "The DSN cannot be read (it is not shown: it may hold a password). It has to be a "
            "URL, postgresql://user:password@host:port/database with special characters "
            "percent-encoded, or host=... user=... with values in single quotes where they "
            "hold spaces."
        ) from None
    parameters = {name: str(value) for name, value in parsed.items() if value is not None}
    is_url = _DRIVER.match(dsn.strip()) is not None
    moved = is_url and "@" in parameters.get("host", "") + parameters.get("dbname", "")
    if moved or not _PORTS.fullmatch(parameters.get("port", "")):
        raise DsnError(
            "The DSN's host, port or database makes no sense (it is not shown: it may hold a "
            "password). Percent-encode the special characters of the password: @ is %40, / is "
            "%2F, : is %3A."
        )
    return parameters


def _secret_parameters() -> set[str]:
    """What libpq itself says is not for showing: * is a password, D is for debugging only."""
    return {
        option.keyword.decode()
        for option in Conninfo.get_defaults()
        if option.dispchar in (b"*", b"D")
    } | {"password"}


def _authority(url: str) -> str:
    """What stands between the scheme and the path of a URL: user, password, hosts."""
    return re.split(r"[/?]", url.split("://", 1)[1], maxsplit=1)[0]


def _url(parameters: dict[str, str]) -> str:
    rest = dict(parameters)
    user, password = rest.pop("user", ""), rest.pop("password", "")
    login = quote(user, safe="") + (f":{MASK}" if password else "")
    place = ""
    if "/" not in rest.get("host", ""):
        hosts = [f"[{h}]" if ":" in h else h for h in rest.pop("host", "").split(",")]
        ports = rest.pop("port", "").split(",")
        ports += ports[-1:] * (len(hosts) - len(ports))  # one port is every host's
        place = ",".join(f"{h}:{p}" if p else h for h, p in zip(hosts, ports, strict=False))
    name = quote(rest.pop("dbname", ""), safe="*")
    query = "&".join(f"{key}={quote(value, safe='/*')}" for key, value in rest.items())
    return (
        f"postgresql://{login}{'@' if login else ''}{place}"
        f"{'/' if name or query else ''}{name}{'?' if query else ''}{query}"
    )
