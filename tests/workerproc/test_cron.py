"""`@jobctl.cron` and `[[cron]]`: declared once, wrong ones said at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jobctl
from jobctl.store.cron_spec import CronSpec
from jobctl.supervisor.settings_sources import SettingsError, load
from jobctl.workerproc import cron as module
from jobctl.workerproc import job as job_module
from jobctl.workerproc.errors import DeclarationError
from jobctl.workerproc.registry import Registry


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry of the test's own."""
    made = Registry()
    monkeypatch.setattr(module, "registry", made)
    monkeypatch.setattr(job_module, "registry", made)
    return made  # type: ignore[return-value]


def test_a_cron_is_what_its_decorator_says(registry: Registry) -> None:
    @jobctl.cron("@daily", name="early", args={"days": 2})
    @jobctl.cron(
        "0 3 * * *", tz="Asia/Ho_Chi_Minh", misfire="once", misfire_limit=7, jitter="5m",
        overlap="skip", args={"days": 1},
    )  # fmt: skip
    @jobctl.job(schema_version=4)
    def purge(ctx: jobctl.Context, days: int) -> None: ...

    early, usual = registry.crons()
    assert (early.name, early.schedule, early.args) == ("early", "@daily", {"days": 2})
    assert usual == CronSpec(
        name="purge", type="purge", schedule="0 3 * * *", tz="Asia/Ho_Chi_Minh",
        args={"days": 1}, schema_version=4, misfire="once", misfire_limit=7, jitter_seconds=300.0,
        overlap="skip", origin="code",
    )  # fmt: skip
    assert CronSpec.from_dict(usual.to_dict()) == usual
    assert registry.declared()["crons"] == [early.to_dict(), usual.to_dict()]


@pytest.mark.parametrize(
    ("schedule", "options", "sentence"),
    [
        ("0 25 * * *", {}, "bad hour"),
        ("@reboot", {}, "no moment"),
        ("@daily", {"tz": "Mars/Olympus"}, "no time zone"),
        ("@daily", {"misfire": "never"}, "misfire must be skip or once or all"),
        ("@daily", {"misfire_limit": 0}, "misfire_limit must be 1 to"),
        ("@daily", {"overlap": "kill"}, "overlap must be"),
        ("@daily", {"jitter": "-1s"}, "jitter"),
        ("@daily", {"jitter": "2d"}, "at most a day"),
        ("@daily", {"args": {"wrong": 1}}, "wrong"),
        ("@daily", {"args": {"days": float("nan")}}, "days"),
        ("@daily", {"args": {"days": 1}, "name": ""}, "name must be"),
    ],
)
def test_what_cannot_be_is_said_at_import(
    schedule: str, options: dict[str, Any], sentence: str
) -> None:
    @jobctl.job
    def purge(ctx: jobctl.Context, days: int = 1) -> None: ...

    with pytest.raises(DeclarationError, match=sentence):
        jobctl.cron(schedule, **options)(purge)


def test_it_belongs_above_a_job() -> None:
    def plain(ctx: jobctl.Context) -> None: ...

    with pytest.raises(DeclarationError, match=r"above @jobctl\.job"):
        jobctl.cron("@daily")(plain)  # type: ignore[type-var]
    with pytest.raises(DeclarationError, match="needs a schedule"):
        jobctl.cron(plain)  # type: ignore[arg-type]


def test_two_crons_of_one_job_need_two_names() -> None:
    @jobctl.cron("@daily")
    @jobctl.job
    def purge(ctx: jobctl.Context) -> None: ...

    with pytest.raises(DeclarationError, match=r"name=\.\.\."):
        jobctl.cron("@hourly")(purge)


def test_crons_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "jobctl.toml"
    file.write_text(
        'slots = 2\n[[cron]]\nname = "a"\ntype = "purge"\nschedule = "*/5 * * * *"\n'
        'jitter = "10s"\nargs = {days = 1}\n[[cron]]\nname="b"\ntype="purge"\nschedule="@daily"\n'
    )
    loaded = load(config=file, environ={})
    assert [one.name for one in loaded.crons] == ["a", "b"]
    assert loaded.crons[0].jitter_seconds == 10
    assert loaded.crons[0].origin == "file"
    assert loaded.settings.slots == 2


def test_everything_that_is_wrong_in_the_file_is_said(tmp_path: Path) -> None:
    file = tmp_path / "jobctl.toml"
    file.write_text(
        '[[cron]]\nname = "a"\ntype = "purge"\n'
        '[[cron]]\nname="b"\ntype="purge"\nschedule="@daily"\nmisfires="once"\n'
        '[[cron]]\nname="c"\ntype="purge"\nschedule="61 * * * *"\n'
    )
    with pytest.raises(SettingsError) as caught:
        load(config=file, environ={})
    said = "\n".join(caught.value.problems)
    for word in ("needs a schedule", "did you mean 'misfire'", "bad minute"):
        assert word in said
