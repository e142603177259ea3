"""`jobctl config show` and `jobctl db`: what counts here, and the PostgreSQL that comes along."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobctl.store.embedded import EmbeddedPostgres
from jobctl.supervisor.settings import TABLE
from tests.cli.conftest import Cli


def test_every_setting_with_its_origin(
    bare_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values as they would count for `jobctl run` with the same flags."""
    (tmp_path / "jobctl.toml").write_text('slots = 3\nqueues = ["mail"]\n')
    monkeypatch.setenv("JOBCTL_LEASE", "30s")
    ran = bare_cli("config", "show", "--origin", "--json", "--app", "shop.jobs")
    facts = ran.json
    assert list(facts) == list(TABLE)
    assert facts["app"] == {"value": "shop.jobs", "origin": "--app"}
    assert facts["lease"] == {"value": 30.0, "origin": "JOBCTL_LEASE"}
    assert facts["slots"] == {"value": 3, "origin": "jobctl.toml"}
    assert facts["queues"] == {"value": ["mail"], "origin": "jobctl.toml"}
    assert facts["max_reserve"] == {"value": 200, "origin": "default"}
    table = bare_cli("config", "show").out
    assert "30s" in table
    assert "ORIGIN" not in table


def test_a_password_is_never_shown(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """In no format."""
    monkeypatch.setenv("JOBCTL_DSN", "postgresql://ann:hunter2@db/shop?sslpassword=s3cret")
    for format_ in ("table", "json", "jsonl", "name"):
        out = bare_cli("config", "show", "--origin", "-o", format_).out
        assert "hunter2" not in out
        assert "s3cret" not in out
    assert "ann:***@db" in bare_cli("config", "show").out


def test_the_embedded_database_from_nothing_to_a_job(
    bare_cli: Cli, server_roots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dsn, start, enqueue, stop: no other setting needed."""
    root = server_roots / "cli"
    monkeypatch.setenv("JOBCTL_STATE_DIR", str(root))
    try:
        stopped = bare_cli("db", "dsn")
        assert stopped.code == 3
        started = bare_cli("db", "start")
        assert (started.code, started.out) == (0, stopped.out)
        again = bare_cli("db", "start")
        assert "runs already" in again.err
        assert bare_cli("db", "dsn").code == 0
        job_id = bare_cli("enqueue", "send").out.strip()
        assert bare_cli("jobs", "list", "-o", "name").out.strip() == job_id
        assert bare_cli("db", "stop").code == 0
        assert bare_cli("jobs", "list").code == 75
        assert bare_cli("db", "stop").code == 0
    finally:
        EmbeddedPostgres(root).destroy()


def test_a_password_that_is_typed_as_a_flag_is_warned_of(bare_cli: Cli) -> None:
    """It stands in the list of processes; the environment and a file do not. It is not repeated."""
    ran = bare_cli("status", "--dsn", "postgresql://ann:hunter2@127.0.0.1:1/shop")
    assert ran.code == 75
    assert "--dsn-file" in ran.err
    assert "hunter2" not in ran.err
    assert "--dsn-file" not in bare_cli("status", "--dsn", "postgresql://ann@127.0.0.1:1/x").err
