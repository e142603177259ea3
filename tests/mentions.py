"""What a Markdown text mentions, and whether it exists: commands, options, targets, files.

A command in a document is a promise to somebody who is in a hurry.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from jobctl.cli.app import app

HERE = Path(__file__).parents[1]
#: Where a command ends and another, or a comment, begins.
_NEXT = re.compile(r"\s(?:&&|\|\||[|;>]|#\s).*")


def spans(markdown: str) -> list[str]:
    """What stands between backticks within the prose."""
    prose = re.sub(r"^```.*?^```$", "", markdown, flags=re.M | re.S)
    return re.findall(r"`([^`]+)`", prose)


def blocks(markdown: str, language: str) -> list[str]:
    """The fenced blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", markdown, flags=re.M | re.S)


def commands(markdown: str) -> Iterator[str]:
    """Everything that a reader may type: spans, indented lines, lines at a prompt."""
    lines = [*spans(markdown), *re.findall(r"^ {4}(\S.*)$", markdown, re.M)]
    for block in blocks(markdown, "console"):
        lines += re.findall(r"^\$ (.*)$", block, re.M)
    for line in lines:
        yield _NEXT.sub("", line).strip()


def unknown_commands(lines: Iterable[str]) -> list[str]:
    """Those that begin with `jobctl` and whose subcommand, option or target does not exist."""
    return [line for line in lines if line.startswith("jobctl ") and not _is_known(line)]


def unknown_targets(lines: Iterable[str]) -> list[str]:
    """Those that begin with `make` and that the Makefile does not know."""
    targets = set(re.findall(r"^([a-z-]+):", (HERE / "Makefile").read_text(), re.M))
    wanted = [(line, line.split()[1]) for line in lines if line.startswith("make ")]
    return [line for line, target in wanted if target not in targets]


def _is_known(line: str) -> bool:
    words = shlex.split(line)[1:]
    command: click.Command = app
    context = click.Context(app)
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        found = command.get_command(context, words.pop(0))
        if found is None:
            return False
        command = found
    options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    typed = {word.split("=", 1)[0] for word in words if re.match(r"--?[a-z]", word)}
    return typed <= options | {"-h", "--help"}
