"""A DSN is found in one order, never shown with its password, and makes a connection of ours."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from jobctl.store import dsn
from jobctl.store.dsn import DsnError, conninfo, masked, own_options, resolve
from jobctl.store.embedded import EmbeddedPostgres

URL = "postgresql://bob:hunter2@db.example:5433/shop"


# Where it is looked for.


def test_what_is_said_first_wins(tmp_path: Path) -> None:
    """Flag, file, DATABASE_URL, libpq's variables: each only if nothing before it speaks."""
    file = tmp_path / "dsn"
    file.write_text("host=from_file\n")
    environ = {"DATABASE_URL": "postgresql://from_url/x", "PGHOST": "from_libpq"}
    assert resolve("host=from_flag", file, environ) == "host=from_flag"
    assert resolve(None, file, environ) == "host=from_file"
    assert resolve(None, None, {**environ, "JOBCTL_DSN_FILE": str(file)}) == "host=from_file"
    assert resolve(None, None, {**environ, "JOBCTL_DSN": "host=from_variable"}) == (
        "host=from_variable"
    )
    assert resolve(None, None, environ) == "postgresql://from_url/x"
    assert resolve(None, None, {"PGHOST": "from_libpq"}) == ""
    assert resolve(None, None, {}) is None


@pytest.mark.parametrize("name", dsn.SERVER_VARIABLES)
def test_any_of_libpq_s_names_of_a_server_counts(name: str) -> None:
    """Whoever sets one of them means a server, and libpq reads it by itself."""
    assert resolve(None, None, {name: "x"}) == ""


def test_variables_that_name_no_server_do_not_count() -> None:
    """A PGPASSFILE in somebody's profile must not keep the embedded server from starting."""
    assert resolve(None, None, {"PGPASSFILE": "/x", "PGTZ": "UTC", "PGHOST": ""}) is None


def test_a_url_for_sqlalchemy_is_understood() -> None:
    """DATABASE_URL often names a driver, which libpq does not know."""
    environ = {"DATABASE_URL": "postgresql+asyncpg://bob@db/shop"}
    assert resolve(None, None, environ) == "postgresql://bob@db/shop"
    assert resolve("postgres+psycopg://bob@db/shop", None, {}) == "postgresql://bob@db/shop"


@pytest.mark.parametrize("url", ["sqlite:///app.db", "mysql://root@db/x", ""])
def test_the_url_of_another_kind_of_database_is_not_ours(url: str) -> None:
    """The application may keep its own data elsewhere."""
    assert resolve(None, None, {"DATABASE_URL": url}) is None


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Going on without it would reach another database than the one that was meant."""
    with pytest.raises(DsnError, match="No such file"):
        resolve(None, tmp_path / "absent", {})
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(DsnError, match="is empty"):
        resolve(None, tmp_path / "empty", {})


# How it is shown.


@pytest.mark.parametrize(
    ("given_dsn", "shown"),
    [
        (URL, "postgresql://bob:***@db.example:5433/shop"),
        ("postgresql+psycopg://bob:hunter2@db/shop", "postgresql://bob:***@db/shop"),
        ("postgres://db/shop?user=bob&password=hunter2", "postgresql://bob:***@db/shop"),
        (
            "postgresql://bob:hunter2@a:1,b:2/shop?sslmode=require&sslpassword=hunter2",
            "postgresql://bob:***@a:1,b:2/shop?sslmode=require&sslpassword=***",
        ),
        ("postgresql://bob@[::1]:5433/shop", "postgresql://bob@[::1]:5433/shop"),
        ("postgresql:///shop?host=/run/pg&port=1", "postgresql:///shop?host=/run/pg&port=1"),
        ("user=bob password='hunter2 x' host=db", "user=bob password=*** host=db"),
        ("service=shop", "service=shop"),
        ("", ""),
    ],
)
def test_a_dsn_is_shown_without_its_secrets(given_dsn: str, shown: str) -> None:
    """The form stays what it was, so that its owner knows it again."""
    assert masked(given_dsn) == shown


@pytest.mark.parametrize(
    "broken",
    [
        "postgresql://bob:hunter2@x:word@db/shop",  # "@" in the password moves "x:word" to the host
        "postgresql://bob:x/hunter2@db/shop",  # "/" makes the rest the database's name
        "postgresql://bob:12/hunter2@db/shop",
        "postgresql://bob:12/3?application_name=hunter2@db/shop",
        "postgresql://bob:%hunter2@db/shop",
        "postgresql://bob:hunter2@[::1/shop",
        "host=db password=x hunter2",
        "host=db password='hunter2",
        "bob:hunter2@db",
        "mysql://bob:hunter2@db",
        "dbname=postgresql://bob:hunter2@db/shop",
        "dbname='password=hunter2 host=db'",
        "port=hunter2",
    ],
)
def test_a_malformed_dsn_is_not_shown(broken: str) -> None:
    """What is not understood may be a password, so neither it nor libpq's complaint is shown."""
    assert "hunter2" not in masked(broken)
    try:
        conninfo(broken, schema="jobctl", application_name="test")
    except DsnError as error:
        assert "hunter2" not in str(error)
        assert error.__cause__ is None


@given(secret=st.text(min_size=4).map(lambda text: f"<{text}>"))
def test_no_password_whatever_its_characters_is_shown(secret: str) -> None:
    """Written raw into a URL or a key=value DSN, as people do, it breaks the DSN, not the rule."""
    for given_dsn in (
        f"postgresql://bob:{secret}@db/shop",
        f"postgresql://db/shop?password={secret}",
        f"host=db password={secret}",
        f"host=db password='{secret}' user=bob",
    ):
        assert "<" not in masked(given_dsn) or secret not in masked(given_dsn)


# What becomes of it.


def test_our_connections_notice_a_peer_that_is_gone() -> None:
    """Keepalives for the one that waits, tcp_user_timeout for the one that talks."""
    made = conninfo_to_dict(conninfo(URL, schema="jobctl", application_name="jobctl: test"))
    assert made["host"] == "db.example"
    assert made["password"] == "hunter2"
    assert made["application_name"] == "jobctl: test"
    for name, value in dsn.OUR_DEFAULTS.items():
        assert made[name] == value


def test_what_the_user_set_is_kept() -> None:
    """Our defaults fill gaps; only the caller's own parameters overrule a DSN."""
    theirs = f"{URL}?connect_timeout=3&keepalives=0&target_session_attrs=any"
    made = conninfo_to_dict(
        conninfo(theirs, schema="jobctl", application_name="test", tcp_user_timeout=7)
    )
    assert made["connect_timeout"] == "3"
    assert made["keepalives"] == "0"
    assert made["target_session_attrs"] == "any"
    assert made["tcp_user_timeout"] == "7"


def test_libpq_s_variables_are_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DSN overrules them, but our defaults are no DSN."""
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "4")
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=5MB")
    made = conninfo_to_dict(conninfo("", schema="jobctl", application_name="test"))
    assert "connect_timeout" not in made
    assert str(made["options"]).startswith("-c work_mem=5MB -c search_path=")


@pytest.mark.parametrize("schema", ["jobctl", "Job Ctl", 'a"b', "a\\b c", "tab\there", "é,x"])
def test_unqualified_names_mean_our_schema(postgres: EmbeddedPostgres, schema: str) -> None:
    """Whatever the schema is called, and beside options of the user's own."""
    theirs = f"{postgres.dsn()}&options=-c%20work_mem%3D5MB%20-c%20my.words%3Dtwo%5C%20words"
    made = conninfo(theirs, schema=schema, application_name="test")
    with psycopg.connect(made) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        row = connection.execute(
            "SELECT current_schema(), current_setting('work_mem'), current_setting('my.words')"
        ).fetchone()
        connection.rollback()
    assert row == (schema, "5MB", "two words")


def test_a_temporary_table_cannot_stand_for_one_of_ours(postgres: EmbeddedPostgres) -> None:
    """pg_temp is searched last; left out of the path it would be searched first."""
    with psycopg.connect(
        conninfo(postgres.dsn(), schema="jobctl", application_name="test")
    ) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS jobctl")
        connection.execute("CREATE TABLE jobctl.trap (real int)")
        connection.execute("CREATE TEMPORARY TABLE trap (fake int)")
        columns = connection.execute("SELECT * FROM trap").description
        connection.rollback()
    assert columns is not None
    assert [column.name for column in columns] == ["real"]


@pytest.mark.parametrize("schema", ["", "x" * 64, "é" * 32, "a\0b", "pg_jobs"])
def test_a_name_that_postgresql_would_cut_is_refused(schema: str) -> None:
    """It would be created under a shorter name and not be found under its own."""
    with pytest.raises(ValueError, match="the schema's name"):
        own_options(schema)


@pytest.mark.parametrize("dsn", ["a\udcff", "postgresql://a\udcff/x"])
def test_bytes_that_no_dsn_holds(dsn: str) -> None:
    """As the environment and the command line hand on what is not UTF-8: said without the DSN."""
    with pytest.raises(DsnError, match="cannot be read") as told:
        conninfo(dsn, schema="jobctl", application_name="x")
    assert "udcff" not in str(told.value)
