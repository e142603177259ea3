"""One queue, one job type: how much comes, how long it waits, how long it runs, how it ends."""

from __future__ import annotations

from tests.grafana.dashboards.overview import LATE
from tests.grafana.dashboards.panels import (
    AMBER,
    GREEN,
    OUTCOMES,
    RED,
    STATES,
    Dashboard,
    Row,
    figure,
    graph,
)


def _of_state(state: str) -> str:
    return f'sum(max by (queue) (jobctl_jobs{{state="{state}"}}))'


def _quantile(share: float, metric: str, *by: str) -> str:
    labels = ", ".join((*by, "le"))
    return (
        f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{{}}"
        "[$__rate_interval])))"
    )


QUEUES = Dashboard(
    "jobctl-queues",
    "jobctl queues and job types",
    "One queue, one job type: how much comes, how long it waits, how long it runs, how it ends.",
    ("queue", "job_type"),
    (
        figure(
            "Oldest due job",
            "How long the oldest due job of these queues has waited. More: jobctl queues list",
            "max(jobctl_queue_age_seconds{})",
            "s",
            steps=((60, AMBER), (300, RED)),
        ),
        figure("Queued", "Due, waiting for a slot. More: jobctl explain ID", _of_state("queued")),
        figure("Running", "Claimed by a host.", _of_state("running")),
        figure("Retrying", "Failed, waiting for the next attempt.", _of_state("retrying")),
        figure("Scheduled", "Their time has not come.", _of_state("scheduled")),
        figure("Blocked", "They wait for something that lets them go.", _of_state("blocked")),
        figure(
            "Dead",
            "Failed for good. More: jobctl dead list",
            _of_state("dead"),
            steps=((1, AMBER),),
        ),
        figure(
            "Paused",
            "Queues from which nothing is claimed. More: jobctl queues list",
            "sum(max by (queue) (jobctl_queue_paused{}))",
            steps=((1, AMBER),),
            below=GREEN,
        ),
    ),
    (
        Row(
            "Queues",
            (
                graph(
                    "Jobs by state",
                    "Where the open jobs of these queues stand, counted up to a bound.",
                    "short",
                    ("sum by (state) (max by (queue, state) (jobctl_jobs{}))", "{{state}}"),
                    stacked=True,
                    colours=STATES,
                ),
                graph(
                    "Oldest due job by queue",
                    "How long the head of each queue has waited. More: jobctl queues list",
                    "s",
                    ("max by (queue) (jobctl_queue_age_seconds{})", "{{queue}}"),
                ),
                graph(
                    "Wait",
                    "From due until claimed, over these queues.",
                    "s",
                    (_quantile(0.5, "jobctl_wait_seconds"), "half within"),
                    (_quantile(0.95, "jobctl_wait_seconds"), "95 % within"),
                    (_quantile(0.99, "jobctl_wait_seconds"), "99 % within"),
                ),
                graph(
                    "Late starts",
                    "Share of jobs that started more than 10 seconds after they were due. The "
                    "promise is one in a hundred.",
                    "percentunit",
                    (LATE, "{{queue}}"),
                ),
                graph(
                    "Claim to start, 95th percentile",
                    "From the claim until the handler starts: what jobctl itself adds on the host.",
                    "s",
                    (_quantile(0.95, "jobctl_claim_to_start_seconds", "queue"), "{{queue}}"),
                ),
                graph(
                    "Redeliveries",
                    "Jobs that run again although their handlers did not fail.",
                    "short",
                    (
                        "sum by (queue, reason) "
                        "(increase(jobctl_redeliveries_total{}[$__rate_interval])) > 0",
                        "{{queue}} {{reason}}",
                    ),
                ),
            ),
        ),
        Row(
            "Job types",
            (
                graph(
                    "Enqueued a second",
                    "As the leader counts them, some seconds later.",
                    "ops",
                    (
                        "sum by (job_type) (rate(jobctl_jobs_enqueued_total{}[$__rate_interval]))"
                        " > 0",
                        "{{job_type}}",
                    ),
                    stacked=True,
                ),
                graph(
                    "Attempts a second",
                    "Attempts that ended, whatever came of them.",
                    "ops",
                    (
                        "sum by (job_type) (rate(jobctl_attempts_total{}[$__rate_interval])) > 0",
                        "{{job_type}}",
                    ),
                    stacked=True,
                ),
                graph(
                    "Attempts by outcome",
                    "failed is the code or what it calls, timeout something that became slow, "
                    "crashed the process, lost the host. More: jobctl jobs list --state retrying",
                    "ops",
                    (
                        "sum by (outcome) (rate(jobctl_attempts_total{}[$__rate_interval]))",
                        "{{outcome}}",
                    ),
                    stacked=True,
                    colours=OUTCOMES,
                ),
                graph(
                    "Failing attempts",
                    "Share of the attempts of each type that failed, timed out or crashed.",
                    "percentunit",
                    (
                        'sum by (job_type) (rate(jobctl_attempts_total{outcome=~"failed|timeout|'
                        'crashed"}[$__rate_interval])) / sum by (job_type) '
                        "(rate(jobctl_attempts_total{}[$__rate_interval]))",
                        "{{job_type}}",
                    ),
                    most=1,
                ),
                graph(
                    "Attempt duration, 95th percentile",
                    "How long handlers run. One that creeps up to its time-out is about to fail.",
                    "s",
                    (
                        _quantile(0.95, "jobctl_attempt_duration_seconds", "job_type"),
                        "{{job_type}}",
                    ),
                ),
                graph(
                    "Whole life, 95th percentile",
                    "From enqueued, or due, until ended: waiting, running and backing off together.",
                    "s",
                    (_quantile(0.95, "jobctl_job_duration_seconds", "job_type"), "{{job_type}}"),
                ),
                graph(
                    "Attempts per finished job",
                    "1 is best; what is more was spent on retries.",
                    "short",
                    (
                        "sum by (job_type) "
                        "(rate(jobctl_attempts_per_finished_job_sum{}[$__rate_interval])) / "
                        "sum by (job_type) "
                        "(rate(jobctl_attempts_per_finished_job_count{}[$__rate_interval]))",
                        "{{job_type}}",
                    ),
                ),
                graph(
                    "Killed at the deadline",
                    "soft: SoftTimeout was raised and let through; hard: the process was killed. "
                    "More: jobctl jobs list --error timeout",
                    "short",
                    (
                        "sum by (job_type, kind) "
                        "(increase(jobctl_deadline_kills_total{}[$__rate_interval])) > 0",
                        "{{job_type}} {{kind}}",
                    ),
                ),
                graph(
                    "Dead",
                    "Jobs that failed for good. More: jobctl dead list",
                    "short",
                    (
                        "sum by (job_type) "
                        '(increase(jobctl_jobs_finished_total{state="dead"}[$__rate_interval])) > 0',
                        "{{job_type}}",
                    ),
                ),
                graph(
                    "Cancelling",
                    "From asked to cancel a job that ran until it was cancelled: as long as its handler takes to come to a safe point.",
                    "s",
                    (_quantile(0.5, "jobctl_cancel_latency_seconds"), "half within"),
                    (_quantile(0.95, "jobctl_cancel_latency_seconds"), "95 % within"),
                ),
                graph(
                    "Attempts cancelled",
                    "By job type. More: jobctl jobs list --state cancelled",
                    "short",
                    (
                        'sum by (job_type) (increase(jobctl_attempts_total{outcome="cancelled"}[$__rate_interval])) > 0',
                        "{{job_type}}",
                    ),
                ),
                graph(
                    "Poison",
                    "Jobs that are dead because processes or hosts died with them, again and again. "
                    "More: jobctl dead list --error crash",
                    "short",
                    (
                        "sum by (job_type) "
                        "(increase(jobctl_poisoned_jobs_total{}[$__rate_interval]))",
                        "{{job_type}}",
                    ),
                ),
            ),
        ),
        Row(
            "Limits and effects",
            (
                graph(
                    "Places",
                    "Of each limit, how many are held; keys of a pattern together. More: jobctl limits list",
                    "short",
                    ("max by (limit) (jobctl_limit_held{})", "{{limit}}"),
                    ("max by (limit) (jobctl_limit_places{})", "{{limit}}: of each key"),
                ),
                graph(
                    "Waiting to be let in",
                    "Jobs that their limit holds back. More: jobctl limits list",
                    "short",
                    ("max by (limit) (jobctl_limit_waiting_jobs{})", "{{limit}}"),
                ),
                graph(
                    "Longest wait to be let in",
                    "How long the next job of a limit has waited.",
                    "s",
                    ("max by (limit) (jobctl_limit_age_seconds{})", "{{limit}}"),
                ),
                graph(
                    "Restrained keys, mended places",
                    "Keys that the brake or a RetryAfter holds back; places that nobody held and that were given back.",
                    "short",
                    ("max by (limit) (jobctl_limit_restrained_keys{})", "{{limit}} restrained"),
                    (
                        "sum(increase(jobctl_limit_places_mended_total{}[$__rate_interval]))",
                        "mended",
                    ),
                ),
                graph(
                    "Effects",
                    "What handlers were about to do to the world outside: done now, done before and so left alone, or not known.",
                    "ops",
                    (
                        "sum by (result) (rate(jobctl_effects_total{}[$__rate_interval]))",
                        "{{result}}",
                    ),
                    stacked=True,
                ),
            ),
        ),
    ),
)
