"""A primary and its synchronous standby: two servers of which one can take the other's place."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psycopg

from jobctl.store.cluster import DATABASE, PORT, ROLE
from jobctl.store.embedded import EmbeddedPostgres
from jobctl.store.migrate import migrate
from tests.servers import FAST, chosen_bindir
from tests.waiting import until

#: What was committed synchronously survives the process, and need not survive the machine.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "wal_retrieve_retry_interval": "200ms",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": FAST["dynamic_shared_memory_type"],
}


class Pair:
    """Migrated, running, and replicating synchronously once made."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] = SETTINGS,
        addresses: tuple[str, str] = ("", ""),
        visitors: str = "",
    ) -> None:
        """`addresses` on which they listen beside their sockets, and who may come in there."""
        folder.mkdir(mode=0o755)
        self._visitors = folder / "pg_hba.conf"
        self._visitors.write_text(
            f"local all all peer map={ROLE}\nlocal replication all peer map={ROLE}\n{visitors}"
        )
        settings = {**settings, "hba_file": str(self._visitors)}
        self.first, self.second = (
            EmbeddedPostgres(
                folder / letter,
                bindir=chosen_bindir(),
                settings={**settings, "listen_addresses": address},
            )
            for letter, address in zip("ab", addresses, strict=True)
        )
        self.primary = self.first
        migrate(self.first.start())
        self.first.stop()
        self._copy()
        self.first.start()
        self.second.start()
        with psycopg.connect(self.first.dsn(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            connection.execute("SELECT pg_reload_conf()")
            until(lambda: self._replicates(connection), within=30, what="the standby")

    def dsn(self) -> str:
        """Names both: whoever may be written to is found."""
        runs = ",".join(str(server.cluster.run) for server in (self.first, self.second))
        return f"postgresql://{ROLE}@/{DATABASE}?host={runs}&port={PORT},{PORT}"

    def restart(self) -> None:
        """The primary, immediately: as after a crash."""
        self.stop_primary()
        self.primary.start()

    def stop_primary(self, how: signal.Signals = signal.SIGQUIT) -> None:
        stop(self.primary, how)

    def promote(self) -> None:
        """The standby is the primary now, and the other is no more."""
        if self.primary.pid() is not None:
            self.stop_primary()
        self.primary = self.second
        with psycopg.connect(self.second.dsn(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def destroy(self) -> None:
        self.first.destroy()
        self.second.destroy()

    def _copy(self) -> None:
        """The standby's data are the stopped primary's, owner and all."""
        source, target = self.first.cluster.data, self.second.cluster.data
        target.parent.mkdir(mode=0o755, exist_ok=True)
        subprocess.run(["cp", "-a", source, target], check=True)
        owner = source.stat()
        host = self.first.cluster.run
        where = f"host={host} port={PORT} user={ROLE} application_name=standby"
        signal_file = target / "standby.signal"
        signal_file.touch()
        os.chown(signal_file, owner.st_uid, owner.st_gid)
        with (target / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = '{where}'\n")

    @staticmethod
    def _replicates(connection: psycopg.Connection) -> bool:
        query = "SELECT sync_state FROM pg_stat_replication"
        return connection.execute(query).fetchall() == [("sync",)]


def stop(server: EmbeddedPostgres, how: signal.Signals) -> None:
    """By this signal: SIGINT is PostgreSQL's fast shutdown, SIGQUIT the immediate one."""
    pid = server.pid()
    assert pid is not None
    os.kill(pid, how)
    until(lambda: server.pid() is None, within=30, what="PostgreSQL to stop")
