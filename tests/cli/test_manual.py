"""The manual page: what the commands say, in a form that man can show."""

from __future__ import annotations

import shutil
import subprocess

import click
import pytest

from jobctl.cli import manual
from jobctl.cli.app import app
from jobctl.supervisor.settings import TABLE


def test_the_page_in_the_package_is_made_from_the_commands() -> None:
    """If not: make man."""
    assert manual.PAGE.read_text() == manual.page()


def test_every_command_and_every_option_is_in_it() -> None:
    """With dashes that can be copied."""
    text = manual.page().replace("\\-", "-")
    for words, command in _commands(app, "jobctl"):
        assert f".SS {words}" in text
        for one in command.params:
            if isinstance(one, click.Option) and one.name not in manual._COMMON:
                assert one.opts[0] in text, (words, one.opts)
    for setting in TABLE.values():
        assert setting.environment in text


def _commands(group: click.Group, name: str) -> list[tuple[str, click.Command]]:
    context, found = click.Context(group), []
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None
        if isinstance(command, click.Group):
            found += _commands(command, f"{name} {word}")
        else:
            found.append((f"{name} {word}", command))
    return found


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff here")
def test_groff_finds_nothing_to_say() -> None:
    """Every warning on; and what it shows is not empty."""
    ran = subprocess.run(
        ["groff", "-man", "-Tascii", "-P-cbou", "-ww", manual.PAGE],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    assert "jobctl queues pause" in ran.stdout


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man here")
def test_man_shows_it() -> None:
    """As a reader asks for it."""
    ran = subprocess.run(
        ["man", "-l", manual.PAGE], capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "MANPAGER": "cat", "MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert "EXIT STATUS" in ran.stdout
    assert "JOBCTL_DRAIN_TIMEOUT" in ran.stdout
