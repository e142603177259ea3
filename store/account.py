"""The operating-system user that the embedded server runs as.

PostgreSQL refuses to run as root. An ordinary user runs it as themselves; root hands
it to `postgres` if the system has that user, else to `nobody`. No user is ever made.

The rule: every process of the embedded server is started here, in a session of its
own, with nothing of the caller's environment that could lead it astray or that is
none of its business.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jobctl.store.binaries import EmbeddedError

# Who runs the server for root, the preferred one first.
SERVER_USERS = ("postgres", "nobody")

# What a child may know of the caller's environment. Above all no PG*, which would change where
# initdb and the server look, and no secrets of the application. NSS_WRAPPER_ and LD_ give a name
# to the numeric users of some container platforms.
KEPT_VARIABLES = ("PATH", "LANG", "LC_", "TZ", "LD_", "NSS_WRAPPER_")


@dataclass(frozen=True)
class Account:
    """A user by name and number, and whether we must become that user to run something."""

    name: str
    uid: int
    gid: int
    home: str
    borrowed: bool

    @classmethod
    def for_server(cls, data: Path) -> Account:
        """The user for the server of `data`: its owner if it is there already."""
        me = os.geteuid()
        if me != 0:
            return cls._of(_entry(me), borrowed=False)
        if data.exists():
            owner = data.stat().st_uid
            if owner == 0:
                raise EmbeddedError(
                    f"{data} belongs to root, and PostgreSQL does not run as root. Move it away, "
                    "or give it to the user postgres or nobody."
                )
            return cls._of(_entry(owner), borrowed=True)
        for name in SERVER_USERS:
            try:
                return cls._of(pwd.getpwnam(name), borrowed=True)
            except KeyError:
                continue
        raise EmbeddedError(
            "PostgreSQL does not run as root, and this system has neither a user postgres nor "
            "nobody. Run as an ordinary user, or give the DSN of a running server."
        )

    @classmethod
    def _of(cls, entry: pwd.struct_passwd, *, borrowed: bool) -> Account:
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, borrowed)

    def spawn(
        self,
        command: Sequence[str | Path],
        *,
        output: int | IO[bytes],
        errors: int | IO[bytes] = subprocess.STDOUT,
        stdin: int = subprocess.DEVNULL,
        inherit: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a program as this user, away from the terminal's signals."""
        try:
            return subprocess.Popen(  # noqa: S603 - programs of PostgreSQL that we looked up
                command,
                stdin=stdin,
                stdout=output,
                stderr=errors,
                cwd="/",
                env=self._environment(),
                user=self.uid if self.borrowed else None,
                group=self.gid if self.borrowed else None,
                extra_groups=() if self.borrowed else None,
                umask=0o077,
                start_new_session=True,
                pass_fds=inherit,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise EmbeddedError(f"Cannot run {command[0]} as {self.name}: {error}.") from error

    def may_enter(self, path: Path) -> bool:
        """Whether this user may enter a folder, or run a program, and all folders on the way.

        Asked of the system in that user's name: mode bits alone do not know of access lists.
        """
        if not self.borrowed:
            return os.access(path, os.X_OK)
        return self.spawn(["test", "-x", path], output=subprocess.DEVNULL).wait(30) == 0

    def runs_in(self, pid: int, folder: Path) -> bool:
        """Whether a process of this user has `folder` as its working directory."""
        place = Path(f"/proc/{pid}/cwd")
        try:
            return place.readlink() == folder
        except FileNotFoundError:
            return False
        except PermissionError:
            # Root without CAP_SYS_PTRACE, as in most containers, may not look. The user may.
            test: list[str | Path] = ["test", place, "-ef", folder]
            return self.spawn(test, output=subprocess.DEVNULL).wait(30) == 0

    def give_folder(self, path: Path) -> None:
        """Make `path` a folder of this user that nobody else may enter, or see that it is one."""
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        try:
            # By descriptor: between a look at a name and a chown of it the name could be given
            # to something else.
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise self._not_mine(path) from error
        try:
            if os.fstat(folder).st_uid not in (self.uid, os.geteuid()):
                raise self._not_mine(path)
            os.fchmod(folder, 0o700)
            if self.borrowed:
                os.fchown(folder, self.uid, self.gid)
        finally:
            os.close(folder)

    def _not_mine(self, path: Path) -> EmbeddedError:
        return EmbeddedError(
            f"{path} is not a folder of the user {self.name}: somebody else made it. "
            "Remove it, then start again."
        )

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if name.startswith(KEPT_VARIABLES)
        }
        return {"PATH": os.defpath, **kept, "HOME": self.home}


def user_name(uid: int) -> str:
    """The name of a user, or the number if the system has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _entry(uid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedError(
            f"The user with the number {uid} has no name in the system's user list, and "
            "PostgreSQL asks for one. Add an entry to /etc/passwd, or run as a named user."
        ) from None
