"""A server into which others than its owner may log in, with a password of their own.

The tests' usual one knows a single user, whom the kernel vouches for. Here each role logs in for
itself: SET ROLE would leave the rights of the one who said it within reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from jobctl.store.cluster import PORT, ROLE
from jobctl.store.embedded import EmbeddedPostgres
from tests.servers import FAST, chosen_bindir

#: Opens nothing but these servers; looked for wherever it must not be seen.
PASSWORD = "s3cret-of-a-test"


class LoginServer:
    """One server, running. `more` are settings of PostgreSQL, `lines` those of pg_hba.conf that
    come before "who has a password may enter by the socket"."""

    def __init__(
        self,
        folder: Path,
        more: Mapping[str, str] | None = None,
        lines: str = "",
        bindir: Path | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        hba = folder / "pg_hba.conf"
        hba.write_text(f"local all {ROLE} peer map={ROLE}\n{lines}local all all scram-sha-256\n")
        hba.chmod(0o644)
        settings = {**FAST, "hba_file": str(hba), "max_connections": "100", **(more or {})}
        self.server = EmbeddedPostgres(
            folder / "pg", bindir=bindir or chosen_bindir(), settings=settings
        )
        self.owner = self.server.start()

    def login(self, user: str, *groups: str, database: str = "jobctl") -> str:
        """The DSN of a user who is made for this, a member of these groups."""
        with psycopg.connect(self.owner, autocommit=True) as connection:
            text = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
            name = sql.Identifier(user)
            connection.execute(text.format(name, sql.Literal(PASSWORD)))
            for group in groups:
                connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), name))
        return self.dsn(user, database=database)

    def dsn(self, user: str, *, database: str = "jobctl", **words: str) -> str:
        """Where this user logs in."""
        where = {"host": str(self.server.cluster.run), **words}
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in where.items())
        dsn = f"postgresql://{quote(user)}:{PASSWORD}@/{database}?port={PORT}&{query}"
        make_conninfo(dsn)
        return dsn
