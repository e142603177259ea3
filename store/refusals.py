"""Why a server did not let us in, as far as its words say, and what to do about it.

libpq's own line is kept and shown: it names the host and the cause, and no secret. What is added
here is what the person on call would have to look up.
"""

from __future__ import annotations

from typing import Final

_ENCRYPT = "sslmode=verify-full and sslrootcert=FILE in the DSN"

#: A piece of what libpq or PostgreSQL says, and what to do.
ADVICE: Final[tuple[tuple[str, str], ...]] = (
    (
        "certificate verify failed",
        "The server's certificate is not signed by the CA in sslrootcert: give the DSN the file of "
        "the right CA, or ask who answers there",
    ),
    (
        "does not match host name",
        "The DSN's host is not among the names of the server's certificate: use one that is",
    ),
    (
        "root certificate file",
        "The file that sslrootcert names has to be there, and this user has to be able to read it",
    ),
    (
        "server does not support SSL",
        "The DSN asks for encryption and the server has none: ssl = on in PostgreSQL; or something "
        "else answers there",
    ),
    (
        "no encryption",
        f"The server takes nobody from here who does not encrypt: {_ENCRYPT}",
    ),
    (
        "SSL encryption",
        "The server's pg_hba.conf has no line for this user, database and address",
    ),
    (
        "password authentication failed",
        "The user or the password in the DSN is not what PostgreSQL has",
    ),
    (
        "authentication failed",
        "PostgreSQL does not take whoever connects here for the user in the DSN: name another, or "
        "see its pg_hba.conf",
    ),
    (
        "FATAL:  role",
        "Name another user in the DSN, or have this one made",
    ),
    (
        "FATAL:  database",
        "Name another database in the DSN, or have this one made: CREATE DATABASE",
    ),
)  # fmt: skip


#: What of it PostgreSQL has answered: no waiting mends it.
_REFUSED: Final = (
    "no encryption", "SSL encryption", "authentication failed", "FATAL:  role", "FATAL:  database",
)  # fmt: skip


def is_refusal(said: str) -> bool:
    """Whether PostgreSQL was reached, and does not let us in."""
    return any(piece in said for piece in _REFUSED)


def advice(said: str) -> str:
    """What to do about what was said, a sentence without its full stop; "" if nothing is known."""
    return next((words for piece, words in ADVICE if piece in said), "")


def with_advice(said: str) -> str:
    """What was said, and behind it what to do, if that is known."""
    known = advice(said)
    return f"{said}. {known}" if known else said
