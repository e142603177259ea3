"""The command `jobctl`: its nouns and verbs, and how a wrong one is answered."""

from __future__ import annotations

import importlib
import importlib.util

import click

import jobctl
from jobctl.cli.check import check
from jobctl.cli.completion import completion
from jobctl.cli.config import config
from jobctl.cli.cron import cron
from jobctl.cli.db import db
from jobctl.cli.dead import dead
from jobctl.cli.doctor import doctor
from jobctl.cli.drain import drain, undrain
from jobctl.cli.enqueue import enqueue
from jobctl.cli.explain import explain
from jobctl.cli.grants import grants
from jobctl.cli.hosts import hosts
from jobctl.cli.jobs import jobs
from jobctl.cli.limits import limits
from jobctl.cli.migrate import migrate
from jobctl.cli.nouns import Noun
from jobctl.cli.queues import queues
from jobctl.cli.reload import reload
from jobctl.cli.run import run
from jobctl.cli.status import status

EXAMPLES = """\b
  jobctl run --app shop.jobs               work, against an embedded PostgreSQL if none is set
  jobctl enqueue send_mail '{"to": "ann"}' one more job
  jobctl status                            what waits, what runs, what is wrong
  jobctl jobs list --state retrying        which jobs, newest first
  jobctl dead replay --error 'SMTP*'       run again what failed for good
  jobctl explain 1842                      why it is not running, and what to do
  jobctl drain --wait && deploy            let this host finish what it runs
"""

#: Commands that few need and whose imports others should not pay for.
SELDOM = {"top": "jobctl.cli.top", "bench": "jobctl.cli.bench"}


class Jobctl(Noun):
    """Loads some commands only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        seldom = [name for name, module in SELDOM.items() if importlib.util.find_spec(module)]
        return [*self.commands, *seldom]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = SELDOM.get(cmd_name)
        if module and importlib.util.find_spec(module):
            command = getattr(importlib.import_module(module), cmd_name)
            assert isinstance(command, click.Command)  # noqa: S101 - our own module
            return command
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=Jobctl,
    # Whoever asks wants to type something: examples are what is seen first.
    help=f"Background jobs on PostgreSQL.\n\n{EXAMPLES}",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(jobctl.__version__, "-V", "--version", message="jobctl %(version)s")
def app() -> None:
    """See `help` above."""


for command in (
    run, migrate, grants, db, enqueue, status, check, explain, jobs, dead, queues, limits, cron,
    hosts, drain, undrain, reload, doctor, config, completion,
):  # fmt: skip
    app.add_command(command)
jobs.add_command(explain)
