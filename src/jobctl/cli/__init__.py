"""The command line: what people and scripts type.

Each noun is a file; `app.py` lists them. A command prints data on stdout and says everything else
on stderr; every ending has one of the exit codes of `endings.py`; no command waits for a person
where there is none. click is imported here and nowhere else.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

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
    _open_what_is_closed()
    try:
        ended = app.main(list(arguments), prog_name="jobctl", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (ReaderLeft, BrokenPipeError):
        # That is no failure of ours. Nothing must be written when Python flushes stdout at its end.
        _say_no_more(sys.stdout)
        return ExitCode.DONE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF):
            raise
        _say_no_more(sys.stdout)
        with suppress(OSError):
            say(f"jobctl: the output could not be written: {error.strerror}")
        return ExitCode.FAILED
    except (Exception, KeyboardInterrupt) as error:
        failure = explain(error)
        if failure is None:
            raise
        for sentence in failure.sentences:
            say(f"jobctl: {sentence}")
        return failure.code
    return int(ended) if isinstance(ended, int) else ExitCode.DONE


def _open_what_is_closed() -> None:
    """A caller may have closed our streams (`>&-`); then Python has none, and nothing checks."""
    for name, number, flags in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(os.devnull, flags))  # noqa: SIM115, PTH123 - for good


def _say_no_more(stream: TextIO) -> None:
    """Whatever is still to be flushed goes nowhere."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
