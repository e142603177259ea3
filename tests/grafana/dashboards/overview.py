"""Is the work getting done, and if not, where does it stand?"""

from __future__ import annotations

from tests.grafana.dashboards.figures import BUSY_SLOTS, LEADERS, SUPERVISORS
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

#: The promise that the alerts watch: started within 10 s of being due.
LATE = (
    '1 - sum by (queue) (rate(jobctl_wait_seconds_bucket{le="10.0"}[$__rate_interval]))'
    " / sum by (queue) (rate(jobctl_wait_seconds_count{}[$__rate_interval]))"
)

OVERVIEW = Dashboard(
    "jobctl-overview",
    "jobctl overview",
    "Is the work getting done, and if not, where does it stand?",
    ("queue",),
    (
        figure(
            "Oldest due job",
            "How long the oldest job that is due has waited. The first thing to look at: a long "
            "queue may be fine, one that waits is not. More: jobctl status",
            "max(jobctl_queue_age_seconds{})",
            "s",
            steps=((60, AMBER), (300, RED)),
        ),
        figure(
            "Queued",
            "Due jobs that wait for a slot, counted up to a bound. More: jobctl queues list",
            'sum(max by (queue) (jobctl_jobs{state="queued"}))',
        ),
        figure(
            "Dead",
            "Jobs that failed for good and wait for a decision. More: jobctl dead list",
            'sum(max by (queue) (jobctl_jobs{state="dead"}))',
            steps=((1, AMBER),),
        ),
        BUSY_SLOTS,
        LEADERS,
        figure(
            "Database",
            "Whether PostgreSQL answers every supervisor.",
            "min(jobctl_database_up{})",
            words={"0": ("down", RED), "1": ("up", GREEN)},
        ),
        SUPERVISORS,
        figure(
            "Alerts",
            "Alerts of jobctl that fire. What to do about each is in its runbook.",
            'count(ALERTS{job=~"$job", alertname=~"Jobctl.+", alertstate="firing"}) or vector(0)',
            steps=((1, RED),),
        ),
    ),
    (
        Row(
            "Flow",
            (
                graph(
                    "In and out",
                    "Jobs enqueued, as the leader counts them some seconds later, and jobs that "
                    "ended for good. Apart for long: the backlog grows.",
                    "ops",
                    ("sum(rate(jobctl_jobs_enqueued_total{}[$__rate_interval]))", "enqueued"),
                    (
                        "sum by (state) (rate(jobctl_jobs_finished_total{}[$__rate_interval]))",
                        "{{state}}",
                    ),
                ),
                graph(
                    "Attempts by outcome",
                    "Attempts that ended, a second. failed is the code or what it calls, timeout "
                    "something that became slow, crashed the process, lost the host.",
                    "ops",
                    (
                        "sum by (outcome) (rate(jobctl_attempts_total{}[$__rate_interval]))",
                        "{{outcome}}",
                    ),
                    stacked=True,
                    colours=OUTCOMES,
                ),
            ),
        ),
        Row(
            "Waiting",
            (
                graph(
                    "Oldest due job by queue",
                    "How long the head of each queue has waited. Rising in a straight line: nobody "
                    "takes from it. More: jobctl queues list",
                    "s",
                    ("max by (queue) (jobctl_queue_age_seconds{})", "{{queue}}"),
                ),
                graph(
                    "Late starts",
                    "Share of jobs that started more than 10 seconds after they were due. The "
                    "promise is one in a hundred.",
                    "percentunit",
                    (LATE, "{{queue}}"),
                ),
                graph(
                    "Wait, 95th percentile",
                    "From due until claimed, by queue.",
                    "s",
                    (
                        "histogram_quantile(0.95, sum by (queue, le) "
                        "(rate(jobctl_wait_seconds_bucket{}[$__rate_interval])))",
                        "{{queue}}",
                    ),
                ),
                graph(
                    "Jobs by state",
                    "Where open jobs stand, counted up to a bound. More: jobctl status",
                    "short",
                    ("sum by (state) (max by (queue, state) (jobctl_jobs{}))", "{{state}}"),
                    stacked=True,
                    colours=STATES,
                ),
            ),
        ),
        Row(
            "Trouble",
            (
                graph(
                    "Dead by job type",
                    "Jobs that failed for good. More: jobctl dead list",
                    "short",
                    (
                        "sum by (job_type) "
                        '(increase(jobctl_jobs_finished_total{state="dead"}[$__rate_interval])) > 0',
                        "{{job_type}}",
                    ),
                ),
                graph(
                    "Redeliveries",
                    "Jobs that run again although their handlers did not fail: their host was given "
                    "up, their process died, or a drain took it. More: jobctl hosts",
                    "short",
                    (
                        "sum by (reason) (increase(jobctl_redeliveries_total{}[$__rate_interval]))",
                        "{{reason}}",
                    ),
                ),
                graph(
                    "Cron lag",
                    "How late each cron fired last, or is overdue. More: jobctl cron list",
                    "s",
                    ("max by (name) (jobctl_cron_lag_seconds{})", "{{name}}"),
                ),
                graph(
                    "Nobody's jobs",
                    "Queued jobs that no live host has code for, and running ones that nobody looks "
                    "after. More: jobctl status",
                    "short",
                    ("max(jobctl_unrunnable_jobs{})", "no code"),
                    ("max(jobctl_stuck_jobs{})", "stuck"),
                ),
            ),
        ),
    ),
)
