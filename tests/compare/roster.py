"""Who is compared, what each needs, and how its documentation has it run.

A host is a list of commands: the units that systemd would keep running there. `{python}` is the
system's own interpreter, `{host}` the host's name, `{folder}` the run's folder.
"""

from __future__ import annotations

from dataclasses import dataclass

OWN = "jobctl"  # runs from this checkout, and its row has to hold


@dataclass(frozen=True)
class System:
    """One row of the table."""

    name: str
    distribution: str
    """On PyPI; its version is printed."""
    app: str
    """The module with its jobs and its desk."""
    units: tuple[str, ...]
    requirements: tuple[str, ...] = ()
    python: tuple[int, int] = (3, 11)
    redis: bool = False
    late_ack: bool = False
    hard_limit_extra: float = 0.0
    """How much later than the limit the system, by its own code, ends what ignores signals."""
    remark: str = ""


CELERY = System(
    name="celery",
    distribution="celery",
    app="tests.compare.apps.celery_app",
    requirements=("celery[redis]>=5.6",),
    redis=True,
    units=(
        "{python} -m celery --app tests.compare.apps.celery_app worker --pool prefork"
        " --hostname {host}@compare --loglevel INFO",
    ),
    remark="as it comes: acknowledged when it starts",
)

SYSTEMS = (
    System(
        name=OWN,
        distribution="pgjobctl",
        app="tests.compare.apps.jobctl_app",
        units=(
            "{python} -m jobctl run --app tests.compare.apps.jobctl_app --dsn {dsn} --host {host}"
            " --slots {slots} --kill-grace {grace}s --lease {stale}s --drain-timeout 60s"
            " --metrics-listen off --runtime-dir {folder}/{host} --log-format json",
        ),
        remark="one process a slot",
    ),
    System(
        name="procrastinate",
        distribution="procrastinate",
        app="tests.compare.apps.procrastinate_app",
        requirements=("procrastinate>=3.2", "psycopg[binary,pool]"),
        units=("{python} -m procrastinate --app tests.compare.apps.procrastinate_app.app worker",),
        remark="threads; with the documented task that retries stalled jobs",
    ),
    System(
        name="pgqueuer",
        distribution="pgqueuer",
        app="tests.compare.apps.pgqueuer_app",
        requirements=("pgqueuer>=1.0", "asyncpg"),
        units=(
            # as `pgq run`, whose own start fails with a newer Typer than it was made for
            "{python} -c 'from tests.compare.apps.pgqueuer_app import work; work()'",
        ),
        remark="asyncio; blocking work in threads",
    ),
    System(
        name="oban",
        distribution="oban",
        app="tests.compare.apps.oban_app",
        requirements=("oban>=0.7",),
        python=(3, 12),
        units=(
            "{python} -m oban start --config {folder}/oban.toml --dsn {dsn} --node {host}"
            " --queues default:{slots}",
        ),
        remark="asyncio; blocking work in threads; rescue by the clock",
    ),
    CELERY,
    System(
        name="celery-late",
        distribution=CELERY.distribution,
        app=CELERY.app,
        requirements=CELERY.requirements,
        redis=True,
        units=CELERY.units,
        late_ack=True,
        remark="acks_late and reject_on_worker_lost",
    ),
    System(
        name="rq",
        distribution="rq",
        app="tests.compare.apps.rq_app",
        requirements=("rq>=2.0",),
        redis=True,
        units=(
            "{python} -m rq.cli worker --url {redis} --with-scheduler"
            " --job-monitoring-interval 5 --maintenance-interval 5 --worker-ttl 20",
        )
        * 4,  # one a slot
        hard_limit_extra=65.0,
        remark="four workers, a forked work-horse a job",
    ),
)
