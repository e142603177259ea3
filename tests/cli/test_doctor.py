"""`jobctl doctor`: it sees what is wrong, and says what to do."""

from __future__ import annotations

from psycopg import sql

from jobctl.store.reading import Connection
from tests.cli.conftest import Cli
from tests.store.standing import put, put_session


def wrong(cli: Cli) -> tuple[int, set[str]]:
    """The exit code, and what is not as it should be, beside the settings of the tests' server:
    that one is fast, and would not survive a crash."""
    ran = cli("doctor", "--json")
    found = {one["about"] for one in ran.json if not one["fine"]}
    assert "settings" in found
    return ran.code, found - {"settings"}


def test_all_is_well(cli: Cli, connection: Connection) -> None:
    """Somebody leads, everything is in its place; in words each has a line."""
    put_session(connection, 1, leader=True, types=["send"])
    put(connection, type="send")
    assert wrong(cli) == (3, set())
    abouts = {one["about"] for one in cli("doctor", "--json").json}
    assert {"placement", "pooler", "connections", "vacuum", "transactions", "clock", "files"} <= (
        abouts
    )
    out = cli("doctor").out
    assert "fsync is off" in out
    assert "a crash of the machine would leave no database" in out


def test_nobody_is_there(cli: Cli) -> None:
    """A database without a supervisor is not healthy."""
    assert wrong(cli) == (3, {"supervisors"})


def test_a_job_is_nowhere_and_another_in_two_places(cli: Cli, connection: Connection) -> None:
    """What must never be is found, with examples, and what to do."""
    put_session(connection, 1, leader=True, types=["send"])
    lost, twice = put(connection, type="send"), put(connection, type="send")
    connection.execute("DELETE FROM ready WHERE job_id = %s", (lost,))
    connection.execute("INSERT INTO dead (job_id) VALUES (%s)", (twice,))
    assert wrong(cli) == (3, {"placement"})
    out = cli("doctor").out
    assert f"#{lost} is open and nowhere" in out
    assert f"#{twice} stands in dead and ready" in out
    assert "report it" in out


def test_nobody_can_run_what_waits(cli: Cli, connection: Connection) -> None:
    """A type that no live supervisor knows: whoever claimed it has moved it to its own lane."""
    put_session(connection, 1, leader=True, types=["send"])
    job = put(connection, type="misspelt")
    connection.execute("UPDATE ready SET lane = 'type:misspelt@1' WHERE job_id = %s", (job,))
    connection.execute(
        "INSERT INTO lane (queue, priority, lane, type, schema_version)"
        " SELECT queue, priority, lane, 'misspelt', 1 FROM ready WHERE job_id = %s",
        (job,),
    )
    assert wrong(cli) == (3, {"types"})


def test_no_partition_is_ahead(cli: Cli, connection: Connection) -> None:
    """Seen two days before a settle would have to make one."""
    put_session(connection, 1, leader=True)
    row = connection.execute(
        "SELECT format('history_%s', to_char((now() AT TIME ZONE 'UTC')::date + 2, 'YYYYMMDD'))"
        " AS name"
    ).fetchone()
    assert row is not None
    name = sql.Identifier(row["name"])
    connection.execute(sql.SQL("DROP TABLE {}").format(name))
    try:
        assert wrong(cli) == (3, {"history"})
    finally:
        connection.execute("SELECT make_history_partitions()")
