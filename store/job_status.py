"""What is known about a job: one row of the view `jobs`, as it was at one moment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Self

from jobctl.store.states import State


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """One job. The fields are the columns of the view `jobs`; `attempt` is 0 before the first run,
    the number of the attempt that runs while it runs, and of the attempts spent afterwards. `args`
    is empty for a database user who may not read them (`jobctl grants`: a producer)."""

    id: int
    type: str
    queue: str
    priority: int
    state: str
    key: str | None
    subject: str | None
    owner: str | None
    args: dict[str, Any]
    schema_version: int
    attempt: int
    max_attempts: int
    crashes: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    locked_by: str | None
    locked_until: datetime | None
    cancel_requested_at: datetime | None
    progress: Any
    result: Any
    failure_class: str | None
    last_error_code: str | None
    last_error: str | None
    first_failed_at: datetime | None
    last_failed_at: datetime | None
    stuck: bool
    stuck_because: str | None
    dead_since: datetime | None
    waits_for: int | None = None  # of a blocked one: how many others it comes after
    limit_key: str | None = None  # of one that is not over: the limit that it is under

    @property
    def is_over(self) -> bool:
        """Nothing moves it any more, unless somebody replays a dead one."""
        return self.state == State.DEAD or State(self.state).is_final

    @property
    def succeeded(self) -> bool:
        """It has done what it was enqueued for."""
        return self.state == State.SUCCEEDED

    @classmethod
    def of(cls, row: tuple[str, str, str | None, str | None]) -> Self:
        """From a row of `get_job.sql`. Columns that a newer schema has are left out."""
        columns: Mapping[str, Any] = {
            **json.loads(row[0]),
            **{name: _loads(text) for name, text in zip(_JSON, row[1:], strict=True)},
        }
        columns = {**columns, "args": columns["args"] or {}}
        return cls(**{name: _typed(name, columns.get(name)) for name in _NAMES})


_NAMES = tuple(field.name for field in fields(JobStatus))
_JSON = ("args", "progress", "result")
_MOMENTS = frozenset(name for name in _NAMES if name.endswith(("_at", "_since", "_until")))


def _typed(name: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if name in _MOMENTS and value is not None else value


def _loads(text: str | None) -> Any:
    """JSON of anybody's making: what is too deep for Python is given as the text that it is."""
    try:
        return None if text is None else json.loads(text)
    except (RecursionError, ValueError):
        return text
