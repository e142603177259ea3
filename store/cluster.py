"""The data directory of the embedded server and the files that say who may enter.

The data are PostgreSQL's own and are left alone once made. What decides about the
server, its socket and its visitors lies outside them, in `conf/`, which is ours and is
written anew at each start: a changed setting, a moved root or another user need no
repair of old files.

The rule: `data` exists whole or not at all. It is made under another name.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jobctl.store import binaries
from jobctl.store.account import Account, user_name
from jobctl.store.binaries import Binaries, EmbeddedError

ROLE: Final = "jobctl"
DATABASE: Final = "jobctl"
PORT: Final = 5432  # names the socket; nothing listens on a port

WORK_LIMIT: Final = 120.0  # seconds for initdb on the slowest disk that is worth waiting for
#: What a program that is told to go may take, in seconds.
GRACE_SECONDS: Final = 15.0


@dataclass(frozen=True)
class Cluster:
    """The paths of one server below its root."""

    root: Path
    run: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def unfinished(self) -> Path:
        return self.root / "data.new"

    @property
    def conf(self) -> Path:
        return self.root / "conf"

    @property
    def socket(self) -> Path:
        return self.run / f".s.PGSQL.{PORT}"

    def make(self, programs: Binaries, account: Account, *, lock: int, sync: bool) -> None:
        """Make the data with an empty database, if there are none.

        The programs inherit `lock`: should we be killed meanwhile, nobody else begins before
        they have ended too. What they leave then is thrown away here the next time.
        """
        if self.data.exists():
            if not (self.data / "PG_VERSION").is_file():
                raise EmbeddedError(
                    f"{self.data} is there but holds no PostgreSQL data. Move it away, or let "
                    "JOBCTL_STATE_DIR name another folder."
                )
            return
        shutil.rmtree(self.unfinished, ignore_errors=True)
        account.give_folder(self.unfinished)
        if not account.may_enter(self.unfinished):
            raise EmbeddedError(
                f"The user {account.name}, who runs the server for root, may not enter "
                f"{self.root}. Let JOBCTL_STATE_DIR name a folder on whose way every user may "
                "enter all folders."
            )
        made_as = ["-U", ROLE, "--encoding=UTF8", "--locale=C", "--no-instructions"]
        made_as += ["--auth-local=peer", "--auth-host=reject", *([] if sync else ["--no-sync"])]
        _finish(account, [programs.program("initdb"), "-D", self.unfinished, *made_as], lock)
        # In single-user mode and under the other name still: a server that was killed between
        # its first start and CREATE DATABASE would be whole in looks only.
        single: list[str | Path] = [programs.program("postgres"), "--single", "-D", self.unfinished]
        _finish(
            account,
            [*single, "-c", "exit_on_error=on", "postgres"],
            lock,
            said=f"CREATE DATABASE {DATABASE}\n".encode(),
        )
        self.unfinished.rename(self.data)

    def refuse_other_version(self, programs: Binaries) -> None:
        """Raise EmbeddedError if these programs cannot read the data, and say which could."""
        made_by = (self.data / "PG_VERSION").read_text().strip()
        have = programs.major()
        if made_by == str(have):
            return
        fitting = binaries.of_major(made_by)
        bindir = fitting.bindir if fitting else f"the bin folder of a PostgreSQL {made_by}"
        raise EmbeddedError(
            f"The data in {self.data} were made by PostgreSQL {made_by}; the programs in "
            f"{programs.bindir} ({programs.origin}) are version {have} and cannot read them. "
            f"Set {binaries.BINDIR_VARIABLE} to {bindir} to go on with the data, or move "
            f"{self.data} away to begin anew."
        )

    def configure(self, programs: Binaries, account: Account, settings: Mapping[str, str]) -> Path:
        """Write `conf/`; returns the file that the server is to read."""
        wanted = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": '"{}"'.format(str(self.run).replace('"', '""')),
            "unix_socket_permissions": "0700",
            "hba_file": str(self.conf / "pg_hba.conf"),
            "ident_file": str(self.conf / "pg_ident.conf"),
            "logging_collector": "off",
            "timezone": "UTC",
            "log_timezone": "UTC",
            # "$user" comes first by default, and our schema is called like the role: tables that
            # an application makes without a schema would land among ours.
            "search_path": "public",
        }
        if programs.has_library("pg_stat_statements"):
            wanted["shared_preload_libraries"] = "pg_stat_statements"
        visitors = sorted({user_name(os.geteuid()), account.name})
        files = {
            "pg_hba.conf": f"local all all peer map={ROLE}\n",
            "pg_ident.conf": "".join(f'{ROLE} "{name}" {ROLE}\n' for name in visitors),
            "postgresql.conf": f"include {_quoted(str(self.data / 'postgresql.conf'))}\n"
            + "".join(
                f"{name} = {_quoted(value)}\n" for name, value in {**wanted, **settings}.items()
            ),
        }
        self.conf.mkdir(exist_ok=True)
        self.conf.chmod(0o755 if account.borrowed else 0o700)
        for name, text in files.items():
            file = self.conf / name
            file.write_bytes(os.fsencode(text))
            file.chmod(0o644 if account.borrowed else 0o600)
        return self.conf / "postgresql.conf"


def _finish(account: Account, command: Sequence[str | Path], lock: int, said: bytes = b"") -> None:
    """Run one program to its end; EmbeddedError with what it said if it fails."""
    process = account.spawn(command, stdin=subprocess.PIPE, output=subprocess.PIPE, inherit=[lock])
    try:
        output, _ = process.communicate(said, timeout=WORK_LIMIT)
    except BaseException as error:  # also Ctrl-C: the program is in a session of its own
        _end(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise EmbeddedError(
                f"{command[0]} was not done after {WORK_LIMIT:g} s and was ended."
            ) from error
        raise
    if process.returncode != 0:
        raise EmbeddedError(
            f"{command[0]} failed with {process.returncode}. It said:\n"
            + output.decode(errors="replace").strip()
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks it to go, and it alone: initdb waits until the server that it has started has ended.
    That one dies of any signal at once, and leaves shared memory that lies in no folder of ours."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=GRACE_SECONDS)
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _quoted(value: str) -> str:
    """A value for postgresql.conf, where a backslash is an escape within quotes."""
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
