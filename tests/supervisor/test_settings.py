"""Settings: one table, four sources, and errors that name what was typed and where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobctl.supervisor.setting_kinds import Address
from jobctl.supervisor.settings import TABLE, Settings, markdown_table
from jobctl.supervisor.settings_sources import SettingsError, find_dsn, load


def _file(folder: Path, text: str) -> Path:
    path = folder / "jobctl.toml"
    path.write_text(text)
    return path


def _problems(**how: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as refused:
        load(**{"environ": {}, **how})  # type: ignore[arg-type]
    return refused.value.problems


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    """Each value comes from the first source that has it, and says from which."""
    file = _file(tmp_path, 'slots = 1\nlease = "1m"\nkill_grace = 3\nschema = "work"\n')
    loaded = load(
        flags={"slots": "3"}, environ={"JOBCTL_SLOTS": "2", "JOBCTL_LEASE": "30s"}, config=file
    )
    assert loaded.settings.slots == 3
    assert loaded.settings.lease == 30.0
    assert loaded.settings.kill_grace == 3.0
    assert loaded.settings.max_reserve == 200
    assert loaded.origins["slots"] == "--slots"
    assert loaded.origins["lease"] == "JOBCTL_LEASE"
    assert loaded.origins["schema"] == str(file)
    assert loaded.origins["max_reserve"] == "default"
    assert loaded.file == file


def test_values_have_the_types_that_the_table_says() -> None:
    """Text of the environment becomes numbers, names, addresses and switches."""
    settings = load(
        environ={
            "JOBCTL_QUEUES": "mail, reports,mail",
            "JOBCTL_PRELOAD": "no",
            "JOBCTL_METRICS_LISTEN": "[::1]:9",
            "JOBCTL_DRAIN_TIMEOUT": "1h30m",
            "JOBCTL_STATE_DIR": "/somewhere",
            "JOBCTL_LOG_FORMAT": "JSON",
        }
    ).settings
    assert settings.queues == ("mail", "reports")
    assert settings.preload is False
    assert settings.metrics_listen == Address("::1", 9)
    assert settings.drain_timeout == 5400.0
    assert settings.state_dir == Path("/somewhere")
    assert settings.log_format == "json"


def test_off_and_all_are_values() -> None:
    """`off` serves no metrics; `all` names every queue."""
    settings = load(environ={"JOBCTL_METRICS_LISTEN": "off", "JOBCTL_QUEUES": "all"}).settings
    assert settings.metrics_listen is None
    assert settings.queues is None


def test_an_empty_variable_is_not_set() -> None:
    """Compose files and units write `JOBCTL_SLOTS=` for "not set"."""
    loaded = load(environ={"JOBCTL_LEASE": "", "DATABASE_URL": " "})
    assert loaded.settings.lease == 60.0
    assert loaded.settings.dsn is None


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    """Three sources, three mistakes, one error that names each place, value and way out."""
    file = _file(tmp_path, 'slotz = 3\nslots = "8"\npreload = 1\n')
    problems = _problems(flags={"max_reserve": "-1"}, environ={"JOBCTL_LEASE": "soon"}, config=file)
    text = "\n".join(problems)
    assert len(problems) == 5
    assert f"{file}: there is no setting slotz. Did you mean slots?" in text
    assert f"{file}: slots = 8 cannot be used: it is text." in text
    assert f"{file}: preload = 1 cannot be used: it is a number." in text
    assert "JOBCTL_LEASE=soon cannot be used. lease accepts a duration such as 90s" in text
    assert "--max-reserve -1 cannot be used. max_reserve accepts a whole number from 0" in text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lease", "1s"),
        ("lease", "2h"),
        ("lease", "-5"),
        ("slots", "0"),
        ("slots", "4.5"),
        ("slots", "four"),
        ("slots", "٤"),
        ("metrics_listen", "9464"),
        ("metrics_listen", "127.0.0.1:99999"),
        ("metrics_listen", "::1:9464"),
        ("queues", ","),
        ("queues", "a,,b"),
        ("app", "shop/jobs.py"),
        ("app", "shop.jobs.py-x"),
        ("schema", "x" * 64),
        ("host", "a\nb"),
        ("preload", "maybe"),
        ("log_format", "xml"),
        ("history_keep", "1h"),
    ],
)
def test_what_a_setting_does_not_accept_is_refused(name: str, text: str) -> None:
    """The sentence names the variable, the text and what would do."""
    (problem,) = _problems(environ={f"JOBCTL_{name.upper()}": text})
    assert problem.startswith(f"JOBCTL_{name.upper()}={text}")
    assert TABLE[name].kind.accepts in problem


def test_a_mistyped_variable_is_noticed_and_a_foreign_one_is_not() -> None:
    """JOBCTL_SLOT is a slip; JOBCTL_TEST_PG_BINDIR belongs to somebody else."""
    (problem,) = _problems(environ={"JOBCTL_SLOT": "3", "JOBCTL_TEST_PG_BINDIR": "/x"})
    assert "no setting JOBCTL_SLOT. Did you mean JOBCTL_SLOTS?" in problem


def test_a_secret_is_never_shown() -> None:
    """Not even in the sentence that refuses it."""
    (problem,) = _problems(environ={"JOBCTL_DSN": "postgresql://u:hunter2@h/\x01"})
    assert "hunter2" not in problem
    assert "JOBCTL_DSN=(not shown)" in problem


def test_files_that_are_missing_or_broken(tmp_path: Path) -> None:
    """A named file must exist; one that is no TOML says where it is wrong."""
    (problem,) = _problems(config=tmp_path / "none.toml")
    assert "--config names" in problem
    (problem,) = _problems(environ={"JOBCTL_CONFIG": str(tmp_path / "none.toml")})
    assert "JOBCTL_CONFIG names" in problem
    (problem,) = _problems(config=_file(tmp_path, "slots = = 3"))
    assert "is not TOML" in problem
    assert "line 1" in problem


def test_the_file_in_the_working_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """./jobctl.toml needs no flag."""
    _file(tmp_path, "slots = 7\n")
    monkeypatch.chdir(tmp_path)
    assert load(environ={}).settings.slots == 7


def test_a_credential_of_systemd_is_the_dsn_file(tmp_path: Path) -> None:
    """Unless somebody says otherwise: a credential goes before DATABASE_URL and behind the rest."""
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path), "DATABASE_URL": "postgresql://other/db"}
    assert load(environ=environ).settings.dsn == "postgresql://other/db"  # it loads others
    (tmp_path / "dsn").write_text("host=credential\n")
    loaded = load(environ=environ).settings
    assert (loaded.dsn, loaded.dsn_file) == (None, tmp_path / "dsn")
    assert find_dsn(loaded, environ) == "host=credential"
    nearer = load(environ={**environ, "JOBCTL_DSN": "host=nearer"}).settings
    assert find_dsn(nearer, environ) == "host=nearer"


def test_of_dsn_and_dsn_file_the_nearer_one_counts(tmp_path: Path) -> None:
    """They are one setting in two forms; in one place they contradict each other."""
    file = _file(tmp_path, 'dsn_file = "/etc/jobctl/dsn"\n')
    loaded = load(flags={"dsn": "host=x"}, environ={"DATABASE_URL": "postgres://y"}, config=file)
    assert (loaded.settings.dsn, loaded.settings.dsn_file) == ("host=x", None)
    loaded = load(environ={"DATABASE_URL": "postgres://y"}, config=file)
    assert (loaded.settings.dsn, loaded.settings.dsn_file) == (None, Path("/etc/jobctl/dsn"))
    loaded = load(environ={"DATABASE_URL": "postgres://y"})
    assert (loaded.settings.dsn, loaded.origins["dsn"]) == ("postgresql://y", "DATABASE_URL")
    (problem,) = _problems(environ={"JOBCTL_DSN": "host=x", "JOBCTL_DSN_FILE": "/f"})
    assert "both dsn and dsn_file are set" in problem


def test_which_database_is_meant(tmp_path: Path) -> None:
    """The settings, then libpq's variables, then none; what is ours is not read twice."""
    environ = {"JOBCTL_DSN": "host=x", "PGHOST": "p", "DATABASE_URL": "mysql://y"}
    file = tmp_path / "dsn"
    file.write_text("postgresql+psycopg://z/d\n")
    from_flag = load(flags={"dsn_file": str(file)}, environ=environ).settings
    assert find_dsn(from_flag, environ) == "postgresql://z/d"
    assert find_dsn(load(environ=environ).settings, environ) == "host=x"
    del environ["JOBCTL_DSN"]
    assert find_dsn(load(environ=environ).settings, environ) == ""
    assert find_dsn(load(environ={}).settings, {}) is None


def test_what_is_shown_reads_back_as_the_same_value() -> None:
    """`config show` prints what could be typed."""
    for name, setting in TABLE.items():
        value = getattr(Settings(), name)
        if value is not None or setting.show(value):
            assert setting.kind.parse(setting.show(value)) == value


def test_the_table_of_the_readme_has_a_row_for_every_setting() -> None:
    """The documentation is derived, not written."""
    rows = markdown_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(TABLE)
    assert all("\n" not in row and row.count("|") == 6 for row in rows)


def test_pools_are_read_from_the_file(tmp_path: Path) -> None:
    """Slots that serve only some queues; the default pool serves the rest."""
    file = tmp_path / "jobctl.toml"
    file.write_text(
        '[[pool]]\nname = "reports"\nqueues = ["reports", "export"]\nslots = 2\nmemory = "1GiB"\n'
        'cpus = "2-3, 0"\n'
    )
    (pool,) = load(environ={}, config=file).pools
    assert (pool.name, pool.slots, pool.memory, pool.nice) == ("reports", 2, 2**30, 0)
    assert pool.share == (0, (0, 2, 3))
    assert sorted(pool.queues or ()) == ["export", "reports"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ('name = "a"\nslots = 1', "it says no queues"),
        ('queues = ["a"]\nslots = 1', "it says no name"),
        ('name = "a"\nqueues = ["a"]', "it says no slots"),
        ('name = "a"\nqueues = ["a"]\nslots = 0', "slots = 0"),
        ('name = "a"\nqueues = "all"\nslots = 1', "queues"),
        ('name = "a"\nqueues = [1]\nslots = 1', "1 in it is not text"),
        ('name = "a"\nqueues = ["a"]\nslots = 1\nmemory = "1KiB"', "memory"),
        ('name = "a"\nqueues = ["a"]\nslots = 1\nnice = -5', "nice"),
        ('name = "a"\nqueues = ["a"]\nslots = 1\ncpus = "3-1"', "3-1 goes backwards"),
        ('name = "a"\nqueues = ["a"]\nslots = 1\ncpus = "two"', "cpus = 'two': it takes numbers"),
        ('name = "a"\nqueues = ["a"]\nslots = 1\ncpus = ""', "cpus = ''"),
        ('name = "a"\nqueues = ["a"]\nslots = 1\nslot = 1', "there is no word slot"),
        ('name = "default"\nqueues = ["a"]\nslots = 1', "the default pool is what"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(tmp_path: Path, words: str, why: str) -> None:
    """Before anything starts, with the file and the word."""
    file = tmp_path / "jobctl.toml"
    file.write_text(f"[[pool]]\n{words}\n")
    with pytest.raises(SettingsError, match=re.escape(why)) as told:
        load(environ={}, config=file)
    assert str(file) in str(told.value)


def test_a_pool_that_cannot_be_is_named(tmp_path: Path) -> None:
    """Of several: all that are wrong, and which."""
    file = tmp_path / "jobctl.toml"
    file.write_text(
        '[[pool]]\nname = "mail"\nqueues = ["a"]\n[[pool]]\nname = "reports"\nqueues = ["b"]\n'
    )
    with pytest.raises(SettingsError) as told:
        load(environ={}, config=file)
    for name in ("mail", "reports"):
        assert f"[[pool]] {name}: it says no slots" in str(told.value)


def test_more_slots_than_a_host_can_have(tmp_path: Path) -> None:
    """In all pools together: each alone would be taken."""
    file = tmp_path / "jobctl.toml"
    pool = '[[pool]]\nname = "a"\nqueues = ["a"]\nslots = 999\n'
    file.write_text("slots = 1\n" + pool)
    assert load(environ={}, config=file).settings.slots == 1
    file.write_text("slots = 2\n" + pool)
    with pytest.raises(SettingsError, match="1001 slots together; it can have 1000"):
        load(environ={}, config=file)


def test_two_pools_of_one_name_are_refused(tmp_path: Path) -> None:
    """Which of them would count?"""
    file = tmp_path / "jobctl.toml"
    one = '[[pool]]\nname = "a"\nqueues = ["a"]\nslots = 1\n'
    file.write_text(one + one)
    with pytest.raises(SettingsError, match="two pools called a"):
        load(environ={}, config=file)
    file.write_text("[pool]\nname = 'a'\n")
    with pytest.raises(SettingsError, match="one each"):
        load(environ={}, config=file)
