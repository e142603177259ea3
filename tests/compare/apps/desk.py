"""Where the script asks a system to enqueue a job, or what has become of one.

One process for each run, in the system's own virtual environment: a line of JSON in, a line of
JSON out. The first answer says that the system is installed in its database.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Record:
    """What the system has on record about a job."""

    word: str
    """Its own word."""
    over: bool
    """By its own account nothing more will happen."""
    succeeded: bool = False


Enqueue = Callable[[str, str, bool], str]
"""(name, deed, limited) -> the job's id. Limited: with the time limit and the number of tries."""

Look = Callable[[str], Record]


def serve(enqueue: Enqueue, look: Look) -> None:
    """Until the script closes the pipe."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is not an answer
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["ask"] == "enqueue":
            told = {"id": enqueue(asked["name"], asked["deed"], asked["limited"])}
        else:
            told = asdict(look(asked["id"]))
        print(json.dumps(told), file=answers, flush=True)
