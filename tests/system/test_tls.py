"""TLS all the way, to a PostgreSQL whose certificate a throw-away CA has signed.

The server takes nobody over the network who does not encrypt. Everybody verifies the certificate
and its name; who is given the wrong CA, another name or no encryption stays outside, hears what to
do, and shows no password. (`hostaddr` says where the name is: there is no name server for tests.)
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import psycopg
import pytest

import jobctl
from jobctl.cli import execute
from jobctl.store import access, grants
from jobctl.store.account import Account
from jobctl.store.cluster import PORT
from jobctl.store.migrate import migrate
from jobctl.store.rights import USUAL_NAMES, Kind
from tests.certificates import OPENSSL, Authority
from tests.logins import PASSWORD, LoginServer
from tests.servers import chosen_bindir, guarded_folder
from tests.system.host import Hosts, Jobs, jobs_of
from tests.waiting import until

NAME = "db.jobctl.test"


def _bindir() -> Path | None:
    """Programs that can speak TLS: the wheel's cannot."""
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for bindir in [*filter(None, [chosen_bindir()]), *system]:
        program = bindir / "postgres"
        if program.is_file() and b"SSL_CTX_new" in program.read_bytes():
            return bindir
    return None


pytestmark = pytest.mark.skipif(
    OPENSSL is None or _bindir() is None,
    reason="there is no openssl, or no PostgreSQL with TLS (Debian: apt-get install postgresql)",
)


@dataclass
class Place:
    """The server, its address, its CA and one that has nothing to do with it."""

    server: LoginServer
    address: str
    ca: Path
    stranger: Path

    def dsn(self, user: str, mode: str = "verify-full", **words: str) -> str:
        """Over the network."""
        told = {"host": NAME, "hostaddr": self.address, "sslmode": mode, "connect_timeout": "5"}
        if mode.startswith("verify"):
            told["sslrootcert"] = str(self.ca)
        return self.server.dsn(user, **{**told, **words})


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with guarded_folder() as folder:
        ours, stranger = Authority(folder, "ours"), Authority(folder, "stranger")
        account = Account.for_server(folder / "logins" / "pg" / "data")
        certificate, key = ours.issue(NAME, (account.uid, account.gid))
        # Of all of 127/8, so that no other server's port is in the way.
        address = ".".join(["127", *(str(random.randint(2, 250)) for _ in range(3))])
        server = LoginServer(
            folder / "logins",
            {
                "ssl": "on",
                "ssl_cert_file": str(certificate),
                "ssl_key_file": str(key),
                "listen_addresses": address,
            },
            "hostssl all all 127.0.0.0/8 scram-sha-256\n",
            bindir=_bindir(),
        )
        migrate(server.owner)
        grants.grant(server.owner, [(name, kind) for kind, name in USUAL_NAMES.items()])
        server.login("web", USUAL_NAMES[Kind.PRODUCER])
        server.login("machine", USUAL_NAMES[Kind.WORKER])
        server.login("ann", USUAL_NAMES[Kind.OPERATOR])
        yield Place(server, address, ours.file, stranger.file)


@pytest.fixture
def jobs(place: Place) -> Iterator[Jobs]:
    with jobs_of(place.server.owner) as mine:
        yield mine


@pytest.fixture
def hosts(place: Place, tmp_path: Path) -> Iterator[Hosts]:
    started = Hosts(place.dsn("machine"), tmp_path)
    try:
        yield started
    finally:
        started.end()


def test_everybody_encrypts(
    place: Place, hosts: Hosts, jobs: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever enqueues, by psycopg and asyncpg; the supervisor's connections, the leader's too;
    what a slot lends; the command line."""
    with psycopg.connect(place.dsn("web")) as conn:
        assert conn.pgconn.ssl_in_use
        first = jobctl.enqueue(conn, "look_at_the_connection", {"soil": False})

    async def enqueue() -> list[int]:
        async with await psycopg.AsyncConnection.connect(place.dsn("web")) as conn:
            made = [await jobctl.aenqueue(conn, "look_at_the_connection")]
        context = ssl.create_default_context(cafile=str(place.ca))
        context.check_hostname = False  # asyncpg would have to resolve the name
        other = await asyncpg.connect(
            host=place.address, port=PORT, user="web", password=PASSWORD, database="jobctl",
            ssl=context,
        )  # fmt: skip
        try:
            made.append(await jobctl.aenqueue(other, "look_at_the_connection"))
        finally:
            await other.close()
        return made

    made = [first, *asyncio.run(enqueue())]
    host = hosts.start("a", "--slots", "1", app="promises").ready()
    for job in made:
        jobs.wait(job, "succeeded")
    until(lambda: host.state()["leader"], within=30, what="it to lead")
    ways = jobs.connection.execute(
        "SELECT a.application_name, s.ssl, s.version FROM pg_stat_activity AS a"
        " JOIN pg_stat_ssl AS s USING (pid) WHERE a.usename = 'machine'"
    ).fetchall()
    names = {way["application_name"] for way in ways}
    assert len(ways) >= 4, ways
    assert any(name.startswith("jobctl a:1") for name in names), names
    assert all(way["ssl"] and way["version"].startswith("TLS") for way in ways), ways
    assert execute(["doctor", "--dsn", place.dsn("ann")]) in (0, 3)
    printed = capsys.readouterr().out
    assert "the connection is encrypted: TLSv1.3" in printed
    assert "ann may do what" in printed
    assert host.stop() == 0
    assert PASSWORD not in host.log.read_text()


def _wrong(place: Place, case: str, user: str) -> tuple[str, str]:
    """A DSN that must not get in, and what is to be read then."""
    dsn, words = {
        "ca": (place.dsn(user, sslrootcert=str(place.stranger)), "the file of the right CA"),
        "name": (place.dsn(user, host="other.jobctl.test"), "use one that is"),
        "file": (place.dsn(user, sslrootcert="/nowhere/ca.pem"), "has to be there"),
        "plain": (place.dsn(user, "disable"), "sslmode=verify-full"),
    }[case]
    return dsn, words


@pytest.mark.parametrize("case", ["ca", "name", "file", "plain"])
def test_who_cannot_be_sure_stays_outside(
    place: Place, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line, migrating included: 75, or 78 for who was reached and refuses; what to do,
    and no password."""
    dsn, words = _wrong(place, case, "ann")
    for command in ("status", "migrate"):
        assert execute([command, "--dsn", dsn]) == (78 if case == "plain" else 75)
        said = capsys.readouterr().err
        assert words in said
        assert PASSWORD not in said
        assert "sslmode" in said or case == "file"
    with pytest.raises(psycopg.OperationalError) as refused:
        psycopg.connect(dsn)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("case", ["ca", "plain"])
def test_a_supervisor_stays_outside(place: Place, hosts: Hosts, case: str) -> None:
    """It waits, as for a database that is away, and its log says what to do."""
    dsn, words = _wrong(place, case, "machine")
    host = hosts.start("a", "--slots", "1", dsn=dsn)
    (lost, *_) = until(lambda: host.said("database_lost"), within=30, what="the refusal")
    assert words in lost["error"]
    assert host.stop() in (0, 5)
    assert PASSWORD not in host.log.read_text()


def test_a_server_without_tls_is_not_believed(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever wants to read along says that it has none, as this one does for a while."""
    with psycopg.connect(place.server.owner, autocommit=True) as owner:
        owner.execute("ALTER SYSTEM SET ssl = off")
        owner.execute("SELECT pg_reload_conf()")
        try:
            until(lambda: execute(["status", "--dsn", place.dsn("ann")]) == 75, what="the refusal")
            said = capsys.readouterr().err
            assert "ssl = on in PostgreSQL" in said
            assert PASSWORD not in said
        finally:
            owner.execute("ALTER SYSTEM RESET ssl")
            owner.execute("SELECT pg_reload_conf()")
    until(lambda: execute(["status", "--dsn", place.dsn("ann")]) == 0, what="the way back")


def test_doctor_is_not_content_with_an_open_line() -> None:
    """Of a server elsewhere; a socket or the loopback is another matter."""
    row = {"version": None, "cipher": None, "near": False, "server": "10.1.2.3"}
    found = access.way(row)
    assert not found.fine
    assert "10.1.2.3 is not encrypted" in found.fact
    assert "sslmode=verify-full" in found.advice
    assert access.way({**row, "near": True}).fine
    assert access.way({**row, "version": "TLSv1.3", "cipher": "x"}).fine
