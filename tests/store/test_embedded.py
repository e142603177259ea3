"""The embedded server survives its owners, its own death and half-done work."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from jobctl.store import binaries, flock
from jobctl.store.account import Account, user_name
from jobctl.store.embedded import EmbeddedError, EmbeddedPostgres, default_root
from tests.servers import FAST, chosen_bindir
from tests.users import acting_as, as_root
from tests.waiting import until

# These servers are killed: what was committed has to be with the kernel by then.
SETTINGS = {**FAST, "synchronous_commit": "on"}

OWNER = """
import json, sys
from pathlib import Path
from jobctl.store.embedded import EmbeddedPostgres
root, settings, bindir = json.loads(sys.argv[1])
server = EmbeddedPostgres(Path(root), settings=settings, bindir=bindir and Path(bindir))
server.start()
print(server.pid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(server_roots: Path) -> Path:
    """The root of a server of this test alone."""
    return server_roots / uuid.uuid4().hex[:8]


@pytest.fixture
def server(root: Path) -> Iterator[EmbeddedPostgres]:
    """A server that runs and is this test's to harm."""
    server = _server(root)
    server.start()
    yield server
    server.destroy()


def _server(root: Path, **settings: str) -> EmbeddedPostgres:
    return EmbeddedPostgres(root, bindir=chosen_bindir(), settings={**SETTINGS, **settings})


@contextmanager
def _owner(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that starts the server of `root`, prints its pid and lives on."""
    bindir = chosen_bindir()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, json.dumps([str(root), SETTINGS, bindir and str(bindir)])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield owner
    finally:
        owner.kill()
        owner.communicate()


def _pid(server: EmbeddedPostgres) -> int:
    pid = server.pid()
    assert pid is not None
    return pid


def _started(owner: subprocess.Popen[str]) -> int:
    assert owner.stdout is not None
    return int(owner.stdout.readline())


def _remember(server: EmbeddedPostgres, word: str) -> None:
    with psycopg.connect(server.dsn()) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS memory (word text)")
        connection.execute("INSERT INTO memory VALUES (%s)", (word,))


def _remembered(server: EmbeddedPostgres) -> list[str]:
    with psycopg.connect(server.dsn()) as connection:
        return [word for (word,) in connection.execute("SELECT word FROM memory ORDER BY word")]


def _state(pid: int) -> str:
    """The kernel's letter for the state of a process, or "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""


# Deaths.


def test_owner_killed(root: Path) -> None:
    """The server outlives who started it; the next start finds it, and stop works from anywhere."""
    server = _server(root)
    with _owner(root) as owner:
        pid = _started(owner)
        _remember(server, "before")
        owner.kill()
        owner.wait()
    assert server.start() == server.dsn()
    assert server.pid() == pid
    assert _remembered(server) == ["before"]
    server.stop()
    assert server.pid() is None
    assert _state(pid) in ("", "Z")
    server.destroy()


def test_an_application_makes_a_table_of_its_own(server: EmbeddedPostgres) -> None:
    """The role is called like our schema, and yet its tables do not land among ours."""
    server.start()
    with psycopg.connect(server.dsn()) as connection:
        connection.execute("CREATE SCHEMA jobctl")
        connection.execute("CREATE TABLE customer (id int)")
        row = connection.execute("SELECT 'customer'::regclass::oid = 'public.customer'::regclass")
        assert row.fetchone() == (True,)


def test_postmaster_killed(server: EmbeddedPostgres) -> None:
    """A start right after a kill -9 brings a new server with every committed row."""
    _remember(server, "before")
    dead = _pid(server)
    os.kill(dead, signal.SIGKILL)
    server.start()
    assert server.pid() != dead
    _remember(server, "after")
    assert _remembered(server) == ["after", "before"]


def test_postmaster_killed_and_never_reaped(root: Path) -> None:
    """Its number stays in use as a zombie's, which PostgreSQL takes for a live server."""
    server = _server(root)
    with _owner(root) as owner:
        dead = _started(owner)
        _remember(server, "before")
        os.kill(dead, signal.SIGKILL)
        until(lambda: _state(dead) == "Z", what="the zombie")
        server.start()
        assert _state(dead) == "Z"
        assert server.pid() != dead
        assert _remembered(server) == ["before"]
    server.destroy()


def test_postmaster_killed_while_a_query_runs(server: EmbeddedPostgres) -> None:
    """The busy backend would go on alone and keep the data directory in use: it is ended."""
    _kill_while_a_query_runs(server)


def _kill_while_a_query_runs(server: EmbeddedPostgres) -> None:
    with closing(psycopg.connect(server.dsn(), autocommit=True)) as busy:
        busy.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 1e12::bigint)")
        with psycopg.connect(server.dsn(), autocommit=True) as watcher:
            until(
                lambda: (
                    watcher.execute(
                        "SELECT FROM pg_stat_activity WHERE query LIKE '%%1e12%%' AND pid <> %s",
                        (watcher.info.backend_pid,),
                    ).rowcount
                ),
                what="the long query",
            )
        dead = _pid(server)
        os.kill(dead, signal.SIGKILL)
        server.start()
    assert server.pid() not in (None, dead)


def test_the_number_of_a_dead_postmaster_is_somebody_else_s_now(server: EmbeddedPostgres) -> None:
    """As after a reboot. The stranger is left alone and does not keep the server down."""
    claim = server.cluster.data / "postmaster.pid"
    kept = claim.read_text().split("\n", 1)[1]
    server.stop()
    account = Account.for_server(server.cluster.data)
    stranger = account.spawn(["sleep", "600"], output=subprocess.DEVNULL)
    try:
        claim.write_text(f"{stranger.pid}\n{kept}")
        assert server.pid() is None
        server.start()
        assert stranger.poll() is None
        assert server.pid() not in (None, stranger.pid)
    finally:
        stranger.kill()
        stranger.wait()


def test_owner_and_initdb_killed(root: Path) -> None:
    """What they leave has another name than data, and the next start begins anew."""
    server = _server(root)
    with _owner(root) as owner:
        until((server.cluster.unfinished / "PG_VERSION").exists, what="initdb's first file")
        owner.kill()
        owner.wait()
        assert not server.cluster.data.exists()
        # The orphaned initdb still has the lock: the start waits for its end.
        server.start()
    _remember(server, "made anew")
    assert not server.cluster.unfinished.exists()
    server.destroy()


def test_half_made_data_of_a_killed_initdb(root: Path) -> None:
    """However far it had come."""
    server = _server(root)
    (server.cluster.unfinished / "base").mkdir(parents=True)
    (server.cluster.unfinished / "PG_VERSION").write_text("1\n")
    if os.geteuid() == 0:
        root.chmod(0o755)
    server.start()
    _remember(server, "made anew")
    server.destroy()


def test_a_data_folder_that_is_not_ours_is_left_alone(root: Path) -> None:
    """JOBCTL_STATE_DIR may name a folder in which somebody keeps something called data."""
    server = _server(root)
    server.cluster.data.mkdir(parents=True)
    (server.cluster.data / "thesis.txt").write_text("years of work")
    if os.geteuid() == 0:
        os.chown(server.cluster.data, 65534, 65534)
    with pytest.raises(EmbeddedError, match="holds no PostgreSQL data"):
        server.start()
    assert (server.cluster.data / "thesis.txt").read_text() == "years of work"


def test_server_that_cannot_start_says_why(root: Path) -> None:
    """The end of its log is in the error; a second start with better settings works."""
    with pytest.raises(EmbeddedError, match=r"(?s)ended while it started.*shared_buffers"):
        _server(root, shared_buffers="plenty").start()
    server = _server(root)
    server.start()
    server.destroy()


# Many at once.


def test_several_start_at_once(root: Path) -> None:
    """One makes the data and the server; all get the same one."""
    owners = [_owner(root) for _ in range(4)]
    processes = [owner.__enter__() for owner in owners]
    try:
        pids = {_started(process) for process in processes}
    finally:
        for owner in owners:
            owner.__exit__(None, None, None)
    server = _server(root)
    assert pids == {server.pid()}
    server.destroy()


def test_one_process_starts_it_twice(server: EmbeddedPostgres) -> None:
    """The second object finds the first one's server, and may stop it."""
    second = _server(server.root)
    second.start()
    assert second.pid() == server.pid()
    second.stop()
    assert server.pid() is None
    assert flock.is_free(server.root / "serving")


# Who may come in.


def test_only_a_private_socket(server: EmbeddedPostgres) -> None:
    """No network address, and a folder that nobody else may enter."""
    with psycopg.connect(server.dsn()) as connection:
        row = connection.execute(
            "SELECT current_setting('listen_addresses'), inet_server_addr()::text, current_user"
        ).fetchone()
    assert row == ("", None, "jobctl")
    for folder in (server.cluster.run, server.cluster.data):
        assert folder.stat().st_mode & 0o777 == 0o700
    owner = server.cluster.socket.stat().st_uid
    assert owner == Account.for_server(server.cluster.data).uid != 0


def test_pg_variables_do_not_lead_astray(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither initdb nor the server nor our own DSN follows the caller's PGDATA or PGPORT."""
    for name, value in {"PGDATA": "/x", "PGPORT": "1", "PGDATABASE": "x", "PGUSER": "x"}.items():
        monkeypatch.setenv(name, value)
    server = _server(root)
    with psycopg.connect(server.start()) as connection:
        row = connection.execute("SELECT current_database(), current_user").fetchone()
    assert row == ("jobctl", "jobctl")
    environment = Path(f"/proc/{_pid(server)}/environ").read_bytes()
    assert b"PGPORT" not in environment
    server.destroy()


def _stranger() -> str:
    """A user who neither is root nor runs root's servers."""
    return next(name for name in ("nobody", "daemon", "bin") if name != _servant())


def _servant() -> str:
    return Account.for_server(Path("/absent")).name


@as_root
def test_another_user_is_refused(server: EmbeddedPostgres) -> None:
    """At the folder of the socket, and by us with a sentence before anything is touched."""

    def connect() -> str:
        try:
            psycopg.connect(server.dsn()).close()
        except psycopg.OperationalError as error:
            return str(error)
        return "came in"

    def start() -> str:
        try:
            return _server(server.root).start()
        except EmbeddedError as error:
            return str(error)

    assert "Permission denied" in acting_as(_stranger(), connect)
    assert f"belongs to the user {user_name(0)}" in acting_as(_stranger(), start)


@as_root
def test_root_is_refused_by_another_user_s_server(server_roots: Path) -> None:
    """Root can reach the socket, but the server asks the kernel who it is; and root does not
    leave files of its own in a user's folder, which would lock the user out."""
    programs = binaries.find()
    shared = server_roots / "programs"
    folder = server_roots / "of-a-user"
    folder.mkdir()
    shared.mkdir()
    bindir = programs.copied_below(shared).bindir
    user = _stranger()
    os.chown(folder, *_numbers(user))
    server = EmbeddedPostgres(folder / "pg", bindir=bindir, settings=SETTINGS)

    def destroy() -> str:
        server.destroy()
        return ""

    assert acting_as(user, server.start) == server.dsn()
    try:
        with pytest.raises(psycopg.OperationalError, match="Peer authentication failed"):
            psycopg.connect(server.dsn())
        with pytest.raises(EmbeddedError, match=f"belongs to the user {user}"):
            server.stop()
    finally:
        acting_as(user, destroy)
    assert not (folder / "pg").exists()


def _numbers(user: str) -> tuple[int, int]:
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid


# Root.


@as_root
def test_root_hands_the_server_to_an_ordinary_user(server: EmbeddedPostgres) -> None:
    """PostgreSQL refuses to run as root; root itself is let in as jobctl."""
    assert user_name(server.cluster.data.stat().st_uid) in ("postgres", "nobody")
    _remember(server, "root was here")


@as_root
def test_programs_in_root_s_home_are_copied(root: Path, tmp_path: Path) -> None:
    """The server's user may not enter a virtual environment below /root."""
    found = binaries.find()
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    bindir = found.copied_below(private).bindir
    server = EmbeddedPostgres(root, bindir=bindir, settings=SETTINGS)
    with psycopg.connect(server.start()) as connection:
        connection.execute("CREATE EXTENSION pg_stat_statements")
    assert Path(f"/proc/{server.pid()}/exe").readlink().is_relative_to(root)
    server.destroy()
    assert not root.exists()


@as_root
def test_a_root_folder_that_the_server_may_not_enter(tmp_path: Path) -> None:
    """Such as one below /root: the error says what kind of folder is wanted."""
    tmp_path.chmod(0o700)
    with pytest.raises(EmbeddedError, match="may not enter"):
        _server(tmp_path / "pg").start()


@as_root
def test_root_that_may_not_look_at_others_processes(root: Path) -> None:
    """As in most containers (no CAP_SYS_PTRACE): it is seen all the same whether the server
    lives, and what a killed one left is found and ended."""

    def act() -> str:
        server = _server(root)
        server.start()
        try:
            found = _pid(server)
            Path(f"/proc/{found}/cwd").readlink()
        except PermissionError:
            _server(root).start()
            assert server.pid() == found
            _kill_while_a_query_runs(server)
            server.stop()
            return "seen without looking"
        finally:
            server.destroy()
        return "could look"

    assert acting_as("root", act, without="cap_sys_ptrace") == "seen without looking"


def test_umask_of_the_caller_does_not_matter(root: Path) -> None:
    """Root often has 077, and root's server is another user, who must come through."""
    before = os.umask(0o077)
    try:
        server = _server(root / "deep" / "er")
        server.start()
    finally:
        os.umask(before)
    server.destroy()


# Places.


def test_a_path_too_long_for_a_socket(server_roots: Path) -> None:
    """sockaddr_un takes 107 bytes; every process finds the same short folder instead."""
    root = server_roots / ("long-" * 20) / "pg"
    server = _server(root)
    with psycopg.connect(server.start()) as connection:
        connection.execute("SELECT 1")
    run = server.cluster.run
    assert len(os.fsencode(server.cluster.socket)) <= 107
    assert not run.is_relative_to(root)
    assert run.stat().st_mode & 0o777 == 0o700
    assert _server(root).dsn() == server.dsn()
    server.destroy()
    assert not run.exists()


def test_a_short_folder_that_somebody_else_made(server_roots: Path) -> None:
    """Its name can be guessed and /tmp is everybody's: no server listens in a stranger's folder."""
    server = _server(server_roots / ("guessed-" * 15) / "pg")
    target = server_roots / "target"
    target.mkdir()
    server.cluster.run.symlink_to(target)
    try:
        with pytest.raises(EmbeddedError, match="somebody else made it"):
            server.start()
    finally:
        server.cluster.run.unlink()
    server.destroy()


@as_root
def test_a_short_folder_of_another_user(server_roots: Path) -> None:
    """A plain folder of somebody who could replace the socket in it at any time."""
    server = _server(server_roots / ("foreign-" * 15) / "pg")
    server.cluster.run.mkdir()
    os.chown(server.cluster.run, *_numbers(_stranger()))
    try:
        with pytest.raises(EmbeddedError, match="somebody else made it"):
            server.start()
    finally:
        server.cluster.run.rmdir()


def test_strange_characters_in_the_path(server_roots: Path) -> None:
    """Quotes, blanks, commas and backslashes mean something in PostgreSQL's files and in URLs."""
    server = _server(server_roots / 'it\'s "a" \\b, 100% é')
    with psycopg.connect(server.start()) as connection:
        connection.execute("SELECT 1")
    server.destroy()


def test_where_the_state_goes() -> None:
    """The variable, else the XDG folder of the user, or /var/lib for root."""
    assert default_root({"JOBCTL_STATE_DIR": "/some/where"}) == Path("/some/where")
    if os.geteuid() == 0:
        assert default_root({}) == Path("/var/lib/jobctl/pg")
    else:
        assert default_root({"XDG_STATE_HOME": "/state"}) == Path("/state/jobctl/pg")
        assert default_root({}) == Path("~/.local/state/jobctl/pg").expanduser()


# Versions and settings.


def test_data_of_another_major_version_are_refused(server: EmbeddedPostgres) -> None:
    """With both versions, where the data are, and what to do; nothing is changed."""
    server.stop()
    version = server.cluster.data / "PG_VERSION"
    made_by = version.read_text()
    version.write_text("9\n")
    with pytest.raises(EmbeddedError, match=r"made by PostgreSQL 9.*JOBCTL_PG_BINDIR.*move"):
        server.start()
    version.write_text(made_by)
    server.start()


def test_the_refusal_names_programs_that_fit(server: EmbeddedPostgres) -> None:
    """If the right version is on the machine, its folder is in the error."""
    mine = (server.cluster.data / "PG_VERSION").read_text().strip()
    others = [found for found in binaries.installed() if str(found.major()) != mine]
    if not others:
        pytest.skip("only one major version is installed")
    server.stop()
    (server.cluster.data / "PG_VERSION").write_text(f"{others[0].major()}\n")
    with pytest.raises(EmbeddedError, match=f"JOBCTL_PG_BINDIR to {others[0].bindir} to go on"):
        server.start()


def test_settings_hold_from_the_next_launch(server: EmbeddedPostgres) -> None:
    """They are written anew each time: what is no longer asked for does not stay."""
    assert _setting(server, "work_mem") == "4MB"
    changed = _server(server.root, work_mem="5MB")
    changed.start()
    assert _setting(changed, "work_mem") == "4MB"
    changed.stop()
    changed.start()
    assert _setting(changed, "work_mem") == "5MB"
    changed.stop()
    server.start()
    assert _setting(server, "work_mem") == "4MB"


def test_statements_are_counted_if_the_library_is_there(server: EmbeddedPostgres) -> None:
    """pg_stat_statements can only be loaded at the start, so it is."""
    chosen = chosen_bindir()
    programs = binaries.find() if chosen is None else binaries.Binaries(chosen, "the test")
    if not programs.has_library("pg_stat_statements"):
        pytest.skip("this PostgreSQL has no pg_stat_statements")
    assert _setting(server, "shared_preload_libraries") == "pg_stat_statements"


def _setting(server: EmbeddedPostgres, name: str) -> str:
    with psycopg.connect(server.dsn()) as connection:
        row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])


# The end.


def test_what_never_ran_can_be_stopped(root: Path) -> None:
    """`jobctl db stop` twice is no error and makes no folders."""
    server = _server(root)
    server.stop()
    server.destroy()
    assert server.pid() is None
    assert not root.exists()


def test_destroy_removes_what_is_ours_and_nothing_else(root: Path) -> None:
    """The root may be a folder in which somebody keeps other things."""
    server = _server(root)
    server.start()
    pid = _pid(server)
    (root / "notes.txt").write_text("mine")
    server.destroy()
    assert [path.name for path in root.iterdir()] == ["notes.txt"]
    assert _state(pid) == ""


def test_stop_ends_idle_and_busy_clients(server: EmbeddedPostgres) -> None:
    """A forgotten psql must not keep `jobctl db stop` waiting."""
    with closing(psycopg.connect(server.dsn())) as client:
        client.execute("CREATE TABLE unfinished (x int)")
        server.stop(within=10)
    server.start()
    with psycopg.connect(server.dsn()) as connection:
        assert connection.execute("SELECT to_regclass('unfinished')").fetchone() == (None,)


def test_a_long_log_begins_anew(server: EmbeddedPostgres) -> None:
    """Nobody rotates it, and the server may run for years."""
    server.stop()
    with server.log.open("ab") as log:
        log.truncate(11 * 2**20)
    server.start()
    assert server.log.stat().st_size < 2**20


def test_a_server_that_says_ready_but_is_gone_is_not_believed(server: EmbeddedPostgres) -> None:
    """A frozen one answers nothing; the error says so instead of handing out a dead address."""
    pid = _pid(server)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(EmbeddedError, match=r"not ready after 0\.1 s"):
            server.start(within=0.1)
    finally:
        os.kill(pid, signal.SIGCONT)
    server.start()
    assert server.pid() == pid


def test_the_socket_is_a_stream_that_only_its_user_may_open(server: EmbeddedPostgres) -> None:
    """A connection by hand, as any client makes it."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(server.cluster.socket))
    assert server.cluster.socket.stat().st_mode & 0o077 == 0


def test_a_user_without_a_name_or_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers have them: every command looks for this place, most do without it."""

    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert default_root({}) == Path(tempfile.gettempdir()) / "jobctl-state-54321" / "pg"
