"""`jobctl check`: every state of a Nagios plugin, one line each, whatever happens."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from jobctl.cli.measures import MEASURES
from jobctl.store import queues
from jobctl.store.operating import Order
from jobctl.store.reading import Connection
from tests.cli.conftest import Cli, Ran
from tests.proxy import Proxy, Wire
from tests.store.standing import put, put_session

#: What the guidelines for plugins ask for: words, a bar, and label=value[unit];warn;crit;min;max.
LINE = re.compile(
    r"JOBCTL (OK|WARNING|CRITICAL|UNKNOWN): [^|\n]+"
    r"( \|( \w+=[\d.]+s?;[\d.]*:?;[\d.]*:?;0(;\d+)?)+)?\n"
)
CODES = {"OK": 0, "WARNING": 1, "CRITICAL": 2, "UNKNOWN": 3}


def checked(cli: Cli, *words: str) -> Ran:
    """It keeps to the form, and its word and its code agree."""
    ran = cli("check", *words)
    line = LINE.fullmatch(ran.out)
    assert line, ran.out
    assert ran.code == CODES[line[1]], ran
    assert ran.err == ""
    return ran


def measured(ran: Ran) -> dict[str, float]:
    pairs = re.findall(r"(\w+)=([\d.]+)", ran.out.split(" | ")[1])
    return {name: float(value) for name, value in pairs}


def _ago(**time: float) -> datetime:
    return datetime.now(UTC) - timedelta(**time)


@pytest.fixture
def host(connection: Connection) -> None:
    """One that works."""
    put_session(connection, 1, "alpha", leader=True, types=["send"], busy=3)


@pytest.mark.usefixtures("host")
def test_all_is_well(cli: Cli) -> None:
    """Every measure is in the performance data, also when it is nothing to speak of."""
    ran = checked(cli)
    assert ran.out.startswith("JOBCTL OK: 1 supervisor working, 3 of 8 slots busy | ")
    assert measured(ran) == {
        **{each.label: 0.0 for each in MEASURES}, "hosts": 1.0, "busy": 3.0,
        "oldest_transaction": measured(ran)["oldest_transaction"],
    }  # fmt: skip


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(("minutes", "code"), [(0.5, 0), (2, 1), (11, 2)])
def test_the_oldest_due_job_waits(
    cli: Cli, connection: Connection, minutes: float, code: int
) -> None:
    """Too long is a minute, and ten; unless its queue is paused."""
    put(connection, run_at=_ago(minutes=minutes))
    assert checked(cli).code == code
    if code:
        assert "the oldest due job of mail has waited" in checked(cli).out
    assert checked(cli, "--age-warning", "0", "--age-critical", "0").code == 0
    queues.pause(connection, ["mail"], Order("ann@ops"))
    assert checked(cli).code == 0


def test_nobody_works(cli: Cli, connection: Connection) -> None:
    """Without a supervisor it is critical, and who is there and does not work is named."""
    assert checked(cli).code == 2
    put_session(connection, 1, "alpha", draining=True, busy=1)
    put_session(connection, 2, "beta", ready=0)
    put_session(connection, 3, "gamma", expires_at=_ago(seconds=1))
    ran = checked(cli)
    assert ran.code == 2
    assert "0 supervisors working, gamma silent, beta not ready, alpha draining" in ran.out
    put_session(connection, 4, "delta")
    assert checked(cli).code == 0
    assert checked(cli, "--hosts-warning", "2").code == 1


@pytest.mark.usefixtures("host")
def test_what_else_is_wrong(cli: Cli, connection: Connection) -> None:
    """Stuck, dead lately, unknown to every host, paused for long: each alone is a warning."""
    put(connection, "running")
    connection.execute("UPDATE claim SET session_id = 99")
    assert "1 running job looked after by nobody" in checked(cli).out
    assert checked(cli).code == 1
    assert checked(cli, "--stuck-critical", "1").code == 2
    connection.execute("DELETE FROM claim")

    dead = put(connection, "dead")
    assert "1 job died within 1h" in checked(cli).out
    assert checked(cli).code == 1
    assert checked(cli, "--dead-warning", "2").code == 0
    connection.execute("UPDATE dead SET dead_since = now() - interval '2 h'")
    assert checked(cli).code == 0
    assert checked(cli, "--dead-within", "3h", "--dead-critical", "1").code == 2
    connection.execute("DELETE FROM dead WHERE job_id = %s", (dead,))

    job = put(connection, type="misspelt")
    connection.execute("UPDATE ready SET lane = 'type:misspelt@1' WHERE job_id = %s", (job,))
    connection.execute(
        "INSERT INTO lane (queue, priority, lane, type, schema_version)"
        " VALUES ('mail', 0, 'type:misspelt@1', 'misspelt', 1)"
    )
    assert "1 job that no host has code for: misspelt" in checked(cli).out
    assert checked(cli).code == 1
    connection.execute("DELETE FROM lane")

    queues.pause(connection, ["mail"], Order("ann@ops"))
    connection.execute("UPDATE queue_pause SET paused_at = now() - interval '13 h'")
    assert "the queue mail is paused for 13h" in checked(cli).out
    assert checked(cli).code == 1


@pytest.mark.usefixtures("host")
def test_a_cron_is_late(cli: Cli, connection: Connection) -> None:
    """Overdue: the leader does not fire."""
    assert cli("cron", "add", "nightly", "0 3 * * *", "send").code == 0
    connection.execute("UPDATE cron_entry SET next_at = now() - interval '5 min'")
    assert "the cron nightly is 5m late" in checked(cli).out
    assert checked(cli).code == 1
    assert checked(cli, "--cron-critical", "1m").code == 2


@pytest.mark.usefixtures("host")
def test_an_old_transaction(cli: Cli, database: str) -> None:
    """In everybody's way."""
    with psycopg.connect(database) as idle:
        idle.execute("SELECT 1")
        time.sleep(0.05)
        ran = checked(cli, "--transaction-warning", "10ms")
        assert "a transaction is open for" in ran.out
        assert ran.code == 1


@pytest.mark.usefixtures("host")
def test_the_worst_counts_and_comes_first(cli: Cli, connection: Connection) -> None:
    """All of them are said."""
    put(connection, "dead")
    put(connection, run_at=_ago(hours=1))
    ran = checked(cli)
    assert ran.code == 2
    assert ran.out.index("oldest due job of mail") < ran.out.index("1 job died")


@pytest.mark.usefixtures("host")
def test_only_some_queues(cli: Cli, connection: Connection) -> None:
    """Each team watches its own; a misspelt one would be fine for ever."""
    put(connection, queue="mail", run_at=_ago(hours=1))
    put(connection, "dead", queue="reports")
    assert checked(cli, "--queue", "mail").code == 2
    ran = checked(cli, "--queue", "reports")
    assert (ran.code, "mail" in ran.out) == (1, False)
    assert checked(cli, "--queue", "mial").code == 3


@pytest.mark.usefixtures("host")
def test_one_host(cli: Cli, connection: Connection) -> None:
    """After its restart: is it back, and does it work?"""
    put_session(connection, 2, "beta", draining=True)
    assert checked(cli, "--host", "alpha").code == 0
    assert "beta is drained" in checked(cli, "--host", "beta").out
    assert checked(cli, "--host", "beta").code == 2
    assert "gamma is not there" in checked(cli, "--host", "gamma").out


def test_the_database_is_away(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """CRITICAL, not UNKNOWN: no job starts. The password is not shown to the monitoring."""
    monkeypatch.setenv("JOBCTL_DSN", "postgresql://ann:secret@127.0.0.1:1/shop")
    ran = checked(cli)
    assert ran.code == 2
    assert "cannot be reached" in ran.out
    assert "secret" not in ran.out


def test_a_database_that_swallows_everything(
    cli: Cli, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends all the same, within its time-out, and says so."""
    with Proxy.to(database) as proxy:
        monkeypatch.setenv("JOBCTL_DSN", proxy.dsn)
        assert checked(cli).code == 2  # nobody works; but it has answered
        proxy.wire = Wire.BLACK_HOLE
        begun = time.monotonic()
        ran = checked(cli, "--timeout", "1s")
        assert ran.code == 2
        assert "has not answered within 1s" in ran.out
        assert time.monotonic() - begun < 8


@pytest.mark.parametrize(
    "words", [["--nonsense"], ["--age-warning", "soon"], ["--hosts-warning", "x"], ["extra"]]
)
def test_typed_wrongly_is_unknown(cli: Cli, words: list[str]) -> None:
    """2 would be an alarm at night for a slip of the finger."""
    assert checked(cli, *words).code == 3


def test_settings_and_schemas_that_cannot_be(
    cli: Cli, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not migrated, or a DSN that is none: UNKNOWN."""
    monkeypatch.setenv("JOBCTL_DSN", fresh_database)
    assert checked(cli).code == 3
    monkeypatch.setenv("JOBCTL_DSN", "postgresql://nonsense:port/")
    assert checked(cli).code == 3


@pytest.mark.usefixtures("host")
def test_what_a_stranger_named_does_not_break_the_line(cli: Cli, connection: Connection) -> None:
    """A bar or a newline in a queue's name would begin the performance data."""
    put(connection, queue="a|b\nc", run_at=_ago(hours=1))
    assert "a/b" in checked(cli).out
