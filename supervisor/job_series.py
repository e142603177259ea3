"""What is counted for jobs: of one type in one queue, from the claim to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from jobctl.store.states import Outcome, State
from jobctl.supervisor.series import Counter, Family, Histogram

#: Edges that hold the usual promises (a second, ten, a minute, an hour).
LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
WHOLE_LIFE = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
ATTEMPTS = (1, 2, 3, 4, 5, 7, 10, 15, 25)

FINISHED_STATES = (State.SUCCEEDED, State.DEAD, State.CANCELLED)
#: Why a job that was running is given to somebody again, through no fault of its handler's code.
REDELIVERIES = ("lease_expired", "crash", "interrupted")
KILLS = ("soft", "hard")

Member = TypeVar("Member", Counter, Histogram)


class JobFamilies:
    """The metrics that have a job's labels."""

    def __init__(self) -> None:
        self._all: list[Family[Counter] | Family[Histogram]] = []
        of_job = ("queue", "job_type")
        self.enqueued = self._counters(
            "jobctl_jobs_enqueued",
            "Jobs that were enqueued and committed, counted by the leader some seconds later.",
            *of_job,
        )
        self.finished = self._counters(
            "jobctl_jobs_finished", "Jobs that ended for good.", *of_job, "state"
        )
        self.attempts = self._counters(
            "jobctl_attempts", "Attempts that ended.", *of_job, "outcome"
        )
        self.poisoned = self._counters(
            "jobctl_poisoned_jobs", "Jobs that are dead because their process, or host, died with "
            "them too often.", *of_job,
        )  # fmt: skip
        self.redeliveries = self._counters(
            "jobctl_redeliveries", "Jobs given out again because a host, a slot or a drain "
            "took their attempt.", "queue", "reason",
        )  # fmt: skip
        self.deadline_kills = self._counters(
            "jobctl_deadline_kills", "Attempts ended by their deadline.", "job_type", "kind"
        )
        self.attempts_per_job = self._histograms(
            "jobctl_attempts_per_finished_job", "Attempts that a finished job took.", ATTEMPTS,
            "job_type",
        )  # fmt: skip
        self.attempt_duration = self._histograms(
            "jobctl_attempt_duration_seconds", "How long attempts ran.", LONG, *of_job
        )
        self.job_duration = self._histograms(
            "jobctl_job_duration_seconds", "From enqueued, or due, until finished.", WHOLE_LIFE,
            "job_type",
        )  # fmt: skip
        self.wait = self._histograms(
            "jobctl_wait_seconds", "From due until claimed.", LONG, "queue"
        )
        self.claim_to_start = self._histograms(
            "jobctl_claim_to_start_seconds", "From claimed until the handler started.", SHORT,
            "queue",
        )  # fmt: skip

    def __iter__(self) -> Iterator[Family[Counter] | Family[Histogram]]:
        return iter(self._all)

    def _counters(self, name: str, help: str, *labels: str) -> Family[Counter]:
        return self._kept(Family(name, help, labels, Counter))

    def _histograms(
        self, name: str, help: str, edges: tuple[float, ...], *labels: str
    ) -> Family[Histogram]:
        make: Callable[[], Histogram] = lambda: Histogram(edges)  # noqa: E731 - a type for mypy
        return self._kept(Family(name, help, labels, make))

    def _kept(self, family: Family[Member]) -> Family[Member]:
        self._all.append(family)
        return family


class JobSeries:
    """What is counted for jobs of one type in one queue; get it from `Metrics.of`."""

    __slots__ = (
        "_attempts",
        "_attempts_needed",
        "_duration",
        "_enqueued",
        "_finished",
        "_kills",
        "_poisoned",
        "_redelivered",
        "_started",
        "_took",
        "_waited",
    )

    def __init__(self, families: JobFamilies, queue: str, job_type: str) -> None:
        self._enqueued = families.enqueued.at(queue, job_type)
        self._attempts = {o.value: families.attempts.at(queue, job_type, o) for o in Outcome}
        self._finished = {
            s.value: families.finished.at(queue, job_type, s) for s in FINISHED_STATES
        }
        self._poisoned = families.poisoned.at(queue, job_type)
        self._redelivered = {r: families.redeliveries.at(queue, r) for r in REDELIVERIES}
        self._kills = {kind: families.deadline_kills.at(job_type, kind) for kind in KILLS}
        self._waited = families.wait.at(queue)
        self._started = families.claim_to_start.at(queue)
        self._took = families.attempt_duration.at(queue, job_type)
        self._attempts_needed = families.attempts_per_job.at(job_type)
        self._duration = families.job_duration.at(job_type)

    def enqueued(self, jobs: int) -> None:
        """So many were enqueued, as the leader has found."""
        self._enqueued.add(jobs)

    def claimed(self, waited: float) -> None:
        """A job was claimed, so many seconds after it was due."""
        self._waited.observe(waited)

    def started(self, after: float) -> None:
        """Its handler was started, so many seconds after the claim."""
        self._started.observe(after)

    def ended(self, outcome: str, seconds: float | None) -> None:
        """An attempt ended (a word of `Outcome`) after so many seconds; None if nobody knows."""
        self._attempts[outcome].add()
        if seconds is not None:
            self._took.observe(seconds)

    def finished(self, state: str, attempts: int, age: float) -> None:
        """The job is succeeded, dead or cancelled, after so many attempts; `age` is seconds since
        it was enqueued, or due."""
        self._finished[state].add()
        self._attempts_needed.observe(attempts)
        self._duration.observe(age)

    def poisoned(self) -> None:
        """It is dead because processes or hosts died with it."""
        self._poisoned.add()

    def redelivered(self, reason: str) -> None:
        """It will run again although its handler did not fail; a word of `REDELIVERIES`."""
        self._redelivered[reason].add()

    def killed(self, kind: str) -> None:
        """Its deadline ended it; a word of `KILLS`."""
        self._kills[kind].add()


class EarlySeries(JobSeries):
    """What is counted before the app is known, kept back until its types were seen at zero.

    A supervisor that was started again ends what its life before has left before anybody has
    scraped it. A counter that begins with 3 has not increased as far as Prometheus can see, and the
    alert about it would never fire.
    """

    __slots__ = ("_later",)

    def __init__(self, later: list[Callable[[JobSeries], None]]) -> None:
        self._later = later

    def enqueued(self, jobs: int) -> None:
        self._later.append(lambda series: series.enqueued(jobs))

    def claimed(self, waited: float) -> None:
        self._later.append(lambda series: series.claimed(waited))

    def started(self, after: float) -> None:
        self._later.append(lambda series: series.started(after))

    def ended(self, outcome: str, seconds: float | None) -> None:
        self._later.append(lambda series: series.ended(outcome, seconds))

    def finished(self, state: str, attempts: int, age: float) -> None:
        self._later.append(lambda series: series.finished(state, attempts, age))

    def poisoned(self) -> None:
        self._later.append(lambda series: series.poisoned())

    def redelivered(self, reason: str) -> None:
        self._later.append(lambda series: series.redelivered(reason))

    def killed(self, kind: str) -> None:
        self._later.append(lambda series: series.killed(kind))
