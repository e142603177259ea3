"""`jobctl completion`: what makes a shell complete commands, options and names.

The shell asks this program while somebody waits with a finger on Tab: a database that does not
answer at once completes nothing, and nothing that goes wrong is said.
"""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem, get_completion_class

from jobctl.cli import database
from jobctl.cli.output import data
from jobctl.cli.patience import patience
from jobctl.store import reading
from jobctl.supervisor.settings_sources import load

SHELLS = ("bash", "zsh", "fish")
#: Nobody waits for longer behind a Tab.
PATIENCE_SECONDS = 1.0
MOST = 200
_VARIABLE = "_JOBCTL_COMPLETE"
_SETTINGS = ("dsn", "dsn_file", "schema", "state_dir")

#: What click calls when a value is to be completed.
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete jobctl.

    \b
    bash:  jobctl completion bash > ~/.local/share/bash-completion/completions/jobctl
    zsh:   jobctl completion zsh > "${fpath[1]}/_jobctl"
    fish:  jobctl completion fish > ~/.config/fish/completions/jobctl.fish
    """
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - one of SHELLS
    root = context.find_root()
    script = made(root.command, {}, "jobctl", _VARIABLE)
    data((script.source_template % script.source_vars()).strip())


def names(kind: str) -> Completer:
    """Completes names of this kind: queue, type, host, cron."""

    def complete(
        context: click.Context, parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        try:
            with patience(PATIENCE_SECONDS):
                found = _names(context, kind)
        except Exception:  # whatever it is, a shell that waits for a word is no place to say it
            return []
        return [CompletionItem(name) for name in found if name.startswith(begun)][:MOST]

    return complete


def _names(context: click.Context, kind: str) -> list[str]:
    typed = {name: context.params.get(name) for name in _SETTINGS}
    loaded = load(typed, config=context.params.get("config"))
    with reading.connect(database.find(loaded), loaded.settings.schema) as connection:
        rows = reading.names(connection)
    # What would not survive a shell's word is not offered.
    return [row["name"] for row in rows if row["kind"] == kind and row["name"].isprintable()]
