"""A cron as the application declares it: `@jobctl.cron(...)` above a job.

It says when; what runs is the job, with its own queue, time-outs and retries. Who fires it is the
leader of all supervisors, never this process. Everything wrong with it is said at import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from jobctl.store.cron_spec import MISFIRE_LIMIT, CronSpec, seconds
from jobctl.store.durations import Duration
from jobctl.workerproc.errors import DeclarationError
from jobctl.workerproc.job import Job
from jobctl.workerproc.registry import registry

J = TypeVar("J", bound=Job[..., Any])


def cron(
    schedule: str,
    /,
    *,
    tz: str = "UTC",
    name: str | None = None,
    args: Mapping[str, Any] | None = None,
    misfire: str = "skip",
    misfire_limit: int = MISFIRE_LIMIT,
    jitter: Duration = 0,
    overlap: str = "allow",
) -> Callable[[J], J]:
    """Declares that a job runs at certain times: five fields, six with seconds first, or @daily.

    `tz` is an IANA zone. `name` is the job type's unless it is given; a second cron of the same job
    needs one. `args` are the job's arguments. A planned time that passed while nobody could fire it
    is let go after a minute (`misfire="skip"`); "once" fires the last one of those, "all" all up to
    `misfire_limit`, the newest. `jitter` delays each job by a part of it that is drawn from its
    planned time. With `overlap="skip"` nothing fires while the job before is still open. Raises
    DeclarationError, at import.
    """

    def declare(job: J) -> J:
        if not isinstance(job, Job):
            raise DeclarationError(
                f"@jobctl.cron({schedule!r:.60}) belongs above @jobctl.job, not on {job!r:.80}"
            )
        kind = job.job_type
        try:
            arguments = job.bind({} if args is None else args)
            spec = CronSpec(
                name=kind.name if name is None else name,
                type=kind.name,
                schedule=schedule,
                tz=tz,
                args=arguments,
                schema_version=kind.schema_version,
                misfire=misfire,
                misfire_limit=misfire_limit,
                jitter_seconds=seconds(jitter),
                overlap=overlap,
            )
        except (ValueError, TypeError, AttributeError) as error:
            where = f"{job.handler.__module__}.{job.handler.__qualname__}"
            raise DeclarationError(f"{where}: {error}") from None
        registry.register_cron(spec, job.handler)
        return job

    if callable(schedule):
        raise DeclarationError("@jobctl.cron needs a schedule: @jobctl.cron('0 3 * * *')")
    return declare
