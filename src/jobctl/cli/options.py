"""Options that several commands share: settings, and the filters that choose jobs.

A setting's flag is derived from the table in `supervisor/settings.py`; nothing about it is said
again here. The filters are the same words wherever jobs are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import wraps
from typing import Any

import click

from jobctl.cli.completion import names
from jobctl.cli.endings import ExitCode, Failure
from jobctl.cli.kinds import ID, TEXT
from jobctl.cli.moments import MOMENT, before
from jobctl.cli.output import say
from jobctl.store.dsn import MASK, masked
from jobctl.store.reading import JobFilter
from jobctl.store.states import State
from jobctl.supervisor.settings import TABLE
from jobctl.supervisor.settings_sources import SettingsError, load

#: A function with click's options on it.
Command = Callable[..., Any]

#: What a command needs that only talks to the database.
DATABASE_SETTINGS = ("dsn", "dsn_file", "schema", "state_dir")


def settings_options(*names: str, wrong: ExitCode = ExitCode.USAGE) -> Callable[[Command], Command]:
    """Adds the flags of these settings and `--config`; the command gets all settings, from all
    sources, as `loaded`. With settings that are wrong it does not begin and exits with `wrong`."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            flags = {name: kwargs.pop(name) for name in names}
            _warn_of_password(flags.get("dsn"))
            try:
                loaded = load(flags, config=kwargs.pop("config"))
            except SettingsError as error:
                raise Failure(wrong, *error.problems) from error
            return command(*args, loaded=loaded, **kwargs)

        flagged: Command = wrapped
        for name in reversed(names):
            flagged = _flag(name)(flagged)
        return click.option(
            "--config", metavar="FILE", help="Settings file instead of ./jobctl.toml."
        )(flagged)

    return decorate


database_options = settings_options(*DATABASE_SETTINGS)


def filter_options(
    *, states: Sequence[str] | None, of_dead: bool = False
) -> Callable[[Command], Command]:
    """Adds the filters; the command gets them as `chosen`. `states`: what --state takes, None for
    no --state. `of_dead`: for commands about dead jobs alone, which have groups and owners."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            chosen = Chosen(
                queue=kwargs.pop("queue"),
                type=kwargs.pop("type_"),
                state=kwargs.pop("state", None),
                subject=kwargs.pop("subject"),
                key=kwargs.pop("key"),
                error=kwargs.pop("error"),
                error_group=kwargs.pop("error_group", None),
                owner=kwargs.pop("owner", None),
                parent=kwargs.pop("parent"),
                since=kwargs.pop("since"),
                until=kwargs.pop("until"),
            )
            if chosen.parent is not None and chosen.words["error_group"] is not None:
                raise click.UsageError("--parent and --error-group do not go together.")
            return command(*args, chosen=chosen, **kwargs)

        options = [
            click.option("--queue", type=TEXT, metavar="QUEUE", shell_complete=names("queue")),
            click.option(
                "--type", "type_", type=TEXT, metavar="TYPE", shell_complete=names("type")
            ),
            click.option("--subject", type=TEXT, metavar="SUBJECT"),
            click.option("--key", type=TEXT, metavar="KEY"),
            click.option(
                "--error", type=TEXT, metavar="TEXT",
                help="Text in the error, its class or code; * is any.",
            ),
            click.option(
                "--parent", type=ID, metavar="ID", help="Comes after this job.",
            ),
            click.option(
                "--since", type=MOMENT, metavar="TIME",
                help="Created (dead jobs: died) since then: 2h, or a time with its zone.",
            ),
            click.option("--until", type=MOMENT, metavar="TIME", help="Created (or died) before."),
        ]  # fmt: skip
        if of_dead:
            group = click.option(
                "--error-group", type=TEXT, metavar="GROUP",
                help="Of this error: a group that dead list --group shows, or none.",
            )  # fmt: skip
            owner = click.option(
                "--owner", type=TEXT, metavar="OWNER", help="Whose they are, by their type's code."
            )
            options[5:5] = [group, owner]
        if states is not None:
            options.insert(2, click.option("--state", type=click.Choice(states), metavar="STATE"))
        filtered: Command = wrapped
        for option in reversed(options):
            filtered = option(filtered)
        return filtered

    return decorate


class Chosen:
    """The filters as they were typed; times may still count from a "now" that is not known yet."""

    def __init__(
        self,
        *,
        since: datetime | timedelta | None,
        until: datetime | timedelta | None,
        parent: int | None = None,
        **words: str | None,
    ) -> None:
        self.words = words
        self.parent = parent
        self.since = since
        self.until = until

    @property
    def is_empty(self) -> bool:
        """Whether nothing was typed."""
        return not any((self.since, self.until, self.parent, *self.words.values()))

    def at(self, now: datetime) -> JobFilter:
        """What they mean at that time."""
        return JobFilter(
            **self.words,
            parent=self.parent,
            since=before(now, self.since),
            until=before(now, self.until),
        )


def state_words(*, leave_out: Sequence[str] = ()) -> list[str]:
    """The words that --state takes."""
    return [state.value for state in State if state not in leave_out]


def _warn_of_password(dsn: str | None) -> None:
    """One that is typed as a flag stands in the list of processes for everybody to read."""
    if dsn is not None and MASK in masked(dsn):
        say(
            "The password in --dsn is seen by everybody who lists processes on this host: prefer "
            "JOBCTL_DSN, or --dsn-file with a file that only you can read."
        )


def _flag(name: str) -> Callable[[Command], Command]:
    setting = TABLE[name]
    help_ = f"{setting.help} [{setting.environment}; {setting.default_text.replace('`', '')}]"
    if setting.kind.is_switch:
        declaration = f"{setting.flag}/--no-{setting.flag[2:]}"
        return click.option(declaration, name, default=None, help=help_)
    return click.option(setting.flag, name, metavar=setting.kind.metavar, help=help_)
