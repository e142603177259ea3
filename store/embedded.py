"""A PostgreSQL of one's own, with no set-up: for the demo, the laptop and the tests.

One folder, the root, is one server:

    data/          PostgreSQL's (cluster.py)
    conf/          who may enter and where the socket is, written anew at each start
    run/           the socket, in a folder that only the server's user may enter
    postgres.log   what the server says
    lock           held while somebody starts, stops or removes the server
    serving        held by the server's processes for as long as one of them lives

The law: the server outlives whoever started it. Any process of the same user finds it
again, starts it if it is not there, and stops it; nobody has to remember anything. A
kill -9 of the owner, of the server or of initdb, at any moment, leaves nothing that the
next start does not put right.

It listens on no network address. The kernel says who connects (peer authentication):
the user whose server it is, and nobody else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

from jobctl.store import binaries, flock, postmaster
from jobctl.store.account import Account, user_name
from jobctl.store.binaries import EmbeddedError
from jobctl.store.cluster import DATABASE, PORT, ROLE, Cluster
from jobctl.store.postmaster import Postmaster

__all__ = ["EmbeddedError", "EmbeddedPostgres", "default_root", "throw_away"]

STATE_VARIABLE: Final = "JOBCTL_STATE_DIR"

SOCKET_PATH_LIMIT: Final = 107  # bytes: sun_path of unix(7) less its closing zero

SSL_REQUEST: Final = struct.pack("!ii", 8, 80877103)  # "SSLRequest" of PostgreSQL's protocol
KNOCK_LIMIT: Final = 1.0  # seconds
ORPHANS_LIMIT: Final = 10.0  # seconds for the processes of a killed server to end
LOG_TAIL: Final = 20  # lines of the log that an error shows
LOG_LIMIT: Final = 10 * 2**20  # bytes after which a start begins a new log

# Whoever started a postmaster must reap it, whichever object of that process stops it later.
_children: list[subprocess.Popen[bytes]] = []


@contextmanager
def throw_away() -> Iterator[EmbeddedPostgres]:
    """A server in a temporary place, started, and gone with all its data at the end."""
    with tempfile.TemporaryDirectory(prefix="jobctl-") as folder:
        # Whoever runs the server for root must be able to come through; what is below is private.
        Path(folder).chmod(0o711)
        server = EmbeddedPostgres(Path(folder) / "pg")
        try:
            server.start()
            yield server
        finally:
            server.destroy()


def default_root(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of this user's server: JOBCTL_STATE_DIR, else the usual place for state."""
    environ = os.environ if environ is None else environ
    if chosen := environ.get(STATE_VARIABLE):
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/var/lib/jobctl/pg")
    if state := environ.get("XDG_STATE_HOME"):
        return Path(state) / "jobctl" / "pg"
    try:
        return Path.home() / ".local" / "state" / "jobctl" / "pg"
    except RuntimeError:  # a container's user has a number, and perhaps neither a name nor a home
        return Path(tempfile.gettempdir()) / f"jobctl-state-{os.geteuid()}" / "pg"


class EmbeddedPostgres:
    """The server of one root folder. Making the object touches nothing."""

    def __init__(
        self,
        root: Path | None = None,
        *,
        bindir: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` are PostgreSQL's, name to value. They hold for the server that start()
        launches; one that runs already keeps those it was launched with."""
        self.root = (default_root() if root is None else root).resolve()
        self.log = self.root / "postgres.log"
        self.cluster = Cluster(self.root, _socket_folder(self.root))
        self._bindir = bindir
        self._settings = dict(settings or {})

    def start(self, *, within: float = 60.0) -> str:
        """Make the server run and return its DSN; one that runs already is used as it is.

        Raises EmbeddedError, with the end of the server's log, if it is not ready in time.
        """
        self._make_root()
        with self._alone(within) as lock:
            server = self._running()
            if not (server and self._gets_ready(server, within)):
                server = self._launch(lock)
                if not self._gets_ready(server, within):
                    raise EmbeddedError(f"PostgreSQL ended while it started. {self._log_tail()}")
        return self.dsn()

    def stop(self, *, within: float = 60.0) -> None:
        """Stop the server, whoever started it: clients are cut off, transactions roll back."""
        if self._exists():
            with self._alone(within):
                self._end(signal.SIGINT, within)  # PostgreSQL's "fast shutdown"

    def destroy(self) -> None:
        """Stop the server and remove all that it ever wrote, the data included."""
        if not self._exists():
            return
        with self._alone(60.0):
            self._end(signal.SIGQUIT, 60.0)  # "immediate shutdown": the data go anyway
            self._end_orphans()
            with self._serving():
                cluster = self.cluster
                for folder in (cluster.data, cluster.unfinished, cluster.conf, cluster.run):
                    shutil.rmtree(folder, ignore_errors=True)
                for folder in self.root.glob("programs*"):
                    shutil.rmtree(folder, ignore_errors=True)
                for name in (self.log.name, f"{self.log.name}.1", "serving", "lock"):
                    (self.root / name).unlink(missing_ok=True)
        with suppress(OSError):  # somebody keeps other things there: they are not ours to remove
            self.root.rmdir()

    def dsn(self, dbname: str = DATABASE) -> str:
        """Where the server is to be found. Does not say that it runs: start() does."""
        # The port is named because PGPORT of the caller's environment would change it.
        run = quote(os.fsencode(self.cluster.run), safe="")
        return f"postgresql://{ROLE}@/{quote(dbname, safe='')}?host={run}&port={PORT}"

    def pid(self) -> int | None:
        """The process of the running server, or None."""
        server = self._running() if self._exists() else None
        return server.pid if server else None

    def _running(self) -> Postmaster | None:
        _reap()
        return Postmaster.of(self.cluster.data)

    # The steps of a start, in their order.

    def _make_root(self) -> None:
        missing = []
        try:
            folder = self.root
            while not folder.exists():
                missing.append(folder)
                folder = folder.parent
            for folder in reversed(missing):
                folder.mkdir(exist_ok=True)
                # Whatever the umask says: root's server is another user, who must come through.
                folder.chmod(0o755 if os.geteuid() == 0 else 0o700)
        except OSError as error:
            raise EmbeddedError(
                f"Cannot make {self.root} for the embedded PostgreSQL: {error}. "
                f"Let {STATE_VARIABLE} name a folder that can be written."
            ) from error
        self._exists()

    def _exists(self) -> bool:
        """Whether there is a root; EmbeddedError if it is somebody else's."""
        try:
            owner = self.root.stat().st_uid
        except FileNotFoundError:
            return False
        except PermissionError:
            owner = -1
        if owner != os.geteuid():
            whose = f"the user {user_name(owner)}" if owner >= 0 else "another user"
            raise EmbeddedError(
                f"The embedded PostgreSQL in {self.root} belongs to {whose}. Each user has a "
                f"server of their own: let {STATE_VARIABLE} name another folder."
            )
        return True

    @contextmanager
    def _alone(self, within: float) -> Iterator[int]:
        otherwise = (
            f"Somebody else has been starting or stopping the PostgreSQL in {self.root} for "
            f"{within:g} s. Try again; if that does not help, see who holds {self.root}/lock."
        )
        with flock.held(self.root / "lock", within=within, otherwise=otherwise) as lock:
            yield lock

    @contextmanager
    def _serving(self) -> Iterator[int]:
        otherwise = (
            f"Processes of a killed PostgreSQL still run in {self.cluster.data} and do not end. "
            f"See who holds {self.root}/serving, end them, and start again."
        )
        with flock.held(self.root / "serving", within=ORPHANS_LIMIT, otherwise=otherwise) as held:
            yield held

    def _launch(self, lock: int) -> Postmaster:
        account = Account.for_server(self.cluster.data)
        self._end_orphans()
        with self._serving() as serving:
            programs = binaries.at(self._bindir, "bindir") if self._bindir else binaries.find()
            if not account.may_enter(programs.program("postgres")):
                programs = programs.copied_below(self.root)
            sync = self._settings.get("fsync") != "off"
            self.cluster.make(programs, account, lock=lock, sync=sync)
            self.cluster.refuse_other_version(programs)
            conf = self.cluster.configure(programs, account, self._settings)
            account.give_folder(self.cluster.run)
            self._forget_the_dead()
            with self._open_log() as log:
                process = account.spawn(
                    [
                        programs.program("postgres"),
                        "-D",
                        self.cluster.data,
                        f"--config-file={conf}",
                    ],
                    output=log,
                    inherit=[serving],
                )
        _children.append(process)
        return Postmaster(process.pid, "starting")

    def _end_orphans(self) -> None:
        """End what a killed postmaster left: it would have told its children the same."""
        if flock.is_free(self.root / "serving"):
            return
        account = Account.for_server(self.cluster.data)
        for pid in postmaster.all_of(account.uid):
            # By name and place: a shell in which somebody looks at the data is not meant.
            if account.runs_in(pid, self.cluster.data):
                Postmaster(pid, "orphan").signal(signal.SIGQUIT)

    def _forget_the_dead(self) -> None:
        """Remove the lock files of a dead postmaster that PostgreSQL would take for a live one.

        It only asks whether the number is in use; so a zombie that nobody reaps, or a stranger
        that got the number after a reboot, would keep the server down for ever. We hold
        `serving` here, so nobody of ours runs in the data directory.
        """
        claim = postmaster.claimed(self.cluster.data)
        if claim and postmaster.exists(claim.pid):
            (self.cluster.data / "postmaster.pid").unlink(missing_ok=True)
        for left in self.cluster.run.glob(".s.PGSQL.*"):
            left.unlink(missing_ok=True)

    def _open_log(self) -> IO[bytes]:
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > LOG_LIMIT:
                self.log.rename(self.log.with_name(f"{self.log.name}.1"))
        descriptor = os.open(self.log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "ab")

    def _gets_ready(self, server: Postmaster, within: float) -> bool:
        """Wait for the server; False if it ends instead, EmbeddedError if it takes too long."""
        until = time.monotonic() + within
        while not (self._says_ready(server) and self._answers()):
            if server.ended(within=0.01):  # also the nap between two looks
                _reap()
                return False
            if time.monotonic() >= until:
                raise EmbeddedError(
                    f"PostgreSQL (process {server.pid}) is not ready after {within:g} s. It goes "
                    "on, since recovery after a crash can take long: start again in a while. "
                    + self._log_tail()
                )
        return True

    def _says_ready(self, server: Postmaster) -> bool:
        now = Postmaster.of(self.cluster.data)
        return now is not None and now.pid == server.pid and now.stage == "ready"

    def _answers(self) -> bool:
        """Ask for TLS, as any client may, to hear the server say a word ("N": no).

        A server that was just killed says "ready" in its file until it is gone, and the kernel
        goes on taking connections for it: only a word of its own proves that it lives.
        """
        with socket.socket(socket.AF_UNIX) as knock, suppress(OSError):
            knock.settimeout(KNOCK_LIMIT)
            knock.connect(os.fsencode(self.cluster.socket))
            knock.sendall(SSL_REQUEST)
            return knock.recv(1) != b""
        return False

    def _log_tail(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL:]
        except OSError as error:
            return f"Its log {self.log} cannot be read: {error}."
        return f"The end of {self.log}:\n" + "\n".join(lines)

    # The end.

    def _end(self, how: signal.Signals, within: float) -> None:
        server = self._running()
        if server is None:
            return
        server.signal(how)
        if not server.ended(within):
            raise EmbeddedError(
                f"PostgreSQL (process {server.pid}) has not stopped after {within:g} s. "
                + self._log_tail()
            )
        _reap()


def _socket_folder(root: Path) -> Path:
    """`run/` below the root, or a short name that every process makes out of the root's."""
    run = root / "run"
    if len(os.fsencode(run / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_LIMIT and "," not in str(run):
        return run  # libpq takes a comma for the end of one host and the begin of the next
    mark = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    # Not TMPDIR, which differs from process to process. give_folder() refuses one that
    # somebody else made there.
    return Path(f"/tmp/jobctl-{os.geteuid()}-{mark}")  # noqa: S108 - see above


def _reap() -> None:
    for child in list(_children):
        if child.poll() is not None:
            _children.remove(child)
