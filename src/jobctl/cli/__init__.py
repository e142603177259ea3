"""The command line: what people and scripts type.

Each noun is a file; `app.py` lists them. A command prints data on stdout and says everything else
on stderr; every ending has one of the exit codes of `endings.py`; no command waits for a person
where there is none. click is imported here and nowhere else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from jobctl.cli.app import app
from jobctl.cli.endings import ExitCode, explain
from jobctl.cli.output import ReaderLeft, say

__all__ = ["ExitCode", "execute", "main"]


def main() -> None:
    """The console script."""
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: Sequence[str]) -> int:
    """Runs one command line and returns what to exit with."""
    try:
        ended = app.main(list(arguments), prog_name="jobctl", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (ReaderLeft, BrokenPipeError):
        # That is no failure of ours. Nothing must be written when Python flushes stdout at its end.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except (Exception, KeyboardInterrupt) as error:
        failure = explain(error)
        if failure is None:
            raise
        for sentence in failure.sentences:
            say(f"jobctl: {sentence}")
        return failure.code
    return int(ended) if isinstance(ended, int) else ExitCode.DONE
