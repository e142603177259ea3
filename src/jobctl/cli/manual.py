"""The manual page jobctl(1), made from the commands themselves. `make man` writes it.

Nothing is said here that the command line does not say: help, options, exit codes and settings are
asked for. The page has no date, so that the same commands make the same page.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from jobctl.cli.app import EXAMPLES, app
from jobctl.cli.endings import ExitCode
from jobctl.supervisor.settings import TABLE

PAGE = Path(__file__).parents[1] / "assets" / "man" / "jobctl.1"
#: Options that most commands have: told once.
_COMMON = frozenset({*TABLE, "config", "format_", "as_json", "help"})


def page() -> str:
    """The page, in the words of man(7)."""
    parts = [
        '.TH JOBCTL 1 "" jobctl "Background jobs on PostgreSQL"',
        ".SH NAME\njobctl \\- background jobs on PostgreSQL",
        ".SH SYNOPSIS\n.B jobctl\n.I command\n.RI [ options ]\n.RI [ arguments ]",
        ".SH DESCRIPTION\n" + _text("Data go to standard output, everything else to standard "
        "error. Most commands have --json, and --help. A noun comes before its verb."),
        ".SH EXAMPLES\n.nf\n" + "\n".join(_literal(line) for line in _examples()) + "\n.fi",
        ".SH COMMANDS\n" + "\n".join(_commands(app, "jobctl")),
        ".SH COMMON OPTIONS\n" + "\n".join(_common()),
        ".SH EXIT STATUS\n" + _text("Of all commands but check, which has those of Nagios: 0 OK, "
        "1 WARNING, 2 CRITICAL, 3 UNKNOWN.") + "\n" + "\n".join(_exit_codes()),
        ".SH SETTINGS\n" + _text("A flag of jobctl run, else the variable, else the key in "
        "jobctl.toml, else the default.") + "\n" + "\n".join(_settings()),
        ".SH FILES\n" + _item("./jobctl.toml, /etc/jobctl/jobctl.toml", "The settings, the first "
        "that is there."),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _examples() -> list[str]:
    lines = [line for line in EXAMPLES.splitlines() if line.startswith("  ")]
    return [line.strip() for line in lines]


def _commands(group: click.Group, name: str) -> Iterator[str]:
    context = click.Context(group, info_name=name)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None  # noqa: S101 - it has just been listed
        if isinstance(command, click.Group):
            yield from _commands(command, f"{name} {word}")
        else:
            yield from _command(command, f"{name} {word}")


def _command(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    arguments = [
        one.make_metavar(context) for one in command.params if isinstance(one, click.Argument)
    ]
    yield ".SS " + _plain(" ".join([name, *arguments]))
    yield from _help(command.help or "")
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in _COMMON and not option.hidden:
            yield from _option(option, context)


def _help(text: str) -> Iterator[str]:
    """As click has it: paragraphs, of which those that begin with \\b are left as they are."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", inspect.cleandoc(text).strip())):
        if number:
            yield ".PP"
        if paragraph.startswith("\b"):
            yield ".nf"
            yield from (_literal(line) for line in paragraph.splitlines()[1:])
            yield ".fi"
        else:
            yield _text(paragraph)


def _option(option: click.Option, context: click.Context) -> Iterator[str]:
    record = option.get_help_record(context)
    if record is not None:
        yield _item(record[0], record[1])


def _common() -> Iterator[str]:
    yield _item("-o table|json|jsonl|name, --json", "How data are printed.")
    yield _item("--config FILE", "Settings file instead of ./jobctl.toml.")
    yield _item("--dsn, --dsn-file, --schema, --state-dir", "Which database; see SETTINGS.")
    yield _item("-h, --help", "Show help of a command.")
    yield _item("-V, --version", "Show the version.")


def _exit_codes() -> Iterator[str]:
    for code in ExitCode:
        yield _item(str(int(code)), code.name.lower().replace("_", " "))


def _settings() -> Iterator[str]:
    for setting in TABLE.values():
        default = setting.default_text.replace("`", "")
        words = f"{setting.help.replace('`', '')} {setting.kind.note}".strip()
        yield _item(f"{setting.flag}, {setting.environment}", f"{words} Default: {default}.")


def _item(title: str, words: str) -> str:
    return f".TP\n.B {_plain(title)}\n{_text(words or ' ')}"


def _text(words: str) -> str:
    """Filled text: one paragraph."""
    return _literal(" ".join(words.split()))


def _literal(line: str) -> str:
    escaped = _plain(line)
    # A line that begins so would be taken for a request.
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped or "\\&"


def _plain(words: str) -> str:
    return words.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")


def write() -> None:
    """Into the package, from where it is installed."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())


if __name__ == "__main__":
    write()
