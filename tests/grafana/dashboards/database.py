"""PostgreSQL as jobctl sees it: does it answer, how quickly, and can it clear up behind us?"""

from __future__ import annotations

from tests.grafana.dashboards.panels import AMBER, GREEN, RED, Dashboard, Row, figure, graph

_CLAIM = (
    "histogram_quantile(0.95, sum by ({by}le) "
    '(rate(jobctl_sql_seconds_bucket{{statement="claim"}}[$__rate_interval])))'
)

DATABASE = Dashboard(
    "jobctl-database",
    "jobctl database",
    "PostgreSQL as jobctl sees it: does it answer, how quickly, and can it clear up behind us?",
    (),
    (
        figure(
            "Database",
            "Whether PostgreSQL answers every supervisor.",
            "min(jobctl_database_up{})",
            words={"0": ("down", RED), "1": ("up", GREEN)},
        ),
        figure(
            "Claim",
            "95 % of the claims take no longer, over all supervisors. Milliseconds, however long "
            "the queue is.",
            _CLAIM.format(by=""),
            "s",
            steps=((0.1, AMBER), (0.25, RED)),
        ),
        figure(
            "Statements",
            "Of all supervisors, a second.",
            "sum(rate(jobctl_sql_seconds_count{}[$__rate_interval]))",
            "ops",
        ),
        figure(
            "Oldest open",
            "The oldest transaction. What is done cannot be cleared away before it ends. More: jobctl doctor",
            "max(jobctl_oldest_transaction_age_seconds{})",
            "s",
            steps=((300, AMBER), (1800, RED)),
        ),
        figure(
            "Dead rows",
            "What vacuum has not removed, over all tables. More: jobctl doctor",
            "sum(max by (table) (jobctl_table_dead_rows{}))",
            steps=((1e6, AMBER), (1e7, RED)),
        ),
        figure(
            "Size",
            "All tables of jobctl, with their indexes.",
            "sum(max by (table) (jobctl_table_size_bytes{}))",
            "bytes",
        ),
        figure(
            "Lease errors",
            "Renewals that failed lately. A host that cannot renew its lease kills what it runs.",
            'sum(increase(jobctl_lease_renewals_total{result=~"failed|refused"}'
            "[$__rate_interval]))",
            steps=((1, AMBER), (5, RED)),
            decimals=0,
        ),
        figure(
            "Open jobs",
            "Jobs that have not ended, counted up to a bound.",
            "sum(max by (queue, state) (jobctl_jobs{}))",
        ),
    ),
    (
        Row(
            "Answers",
            (
                graph(
                    "Database up",
                    "1 while PostgreSQL answers the supervisor.",
                    "short",
                    ("jobctl_database_up{}", "{{instance}}"),
                    most=1,
                ),
                graph(
                    "Claim, 95th percentile",
                    "How long claiming takes. Of one host alone: its network. Rising with dead rows: "
                    "an old transaction.",
                    "s",
                    (_CLAIM.format(by="instance, "), "{{instance}}"),
                ),
                graph(
                    "Statements, 95th percentile",
                    "How long each statement takes, as supervisors see it.",
                    "s",
                    (
                        "histogram_quantile(0.95, sum by (statement, le) "
                        "(rate(jobctl_sql_seconds_bucket{}[$__rate_interval])))",
                        "{{statement}}",
                    ),
                    many=True,
                ),
                graph(
                    "Statements a second",
                    "What supervisors ask.",
                    "ops",
                    (
                        "sum by (statement) (rate(jobctl_sql_seconds_count{}[$__rate_interval])) > 0",
                        "{{statement}}",
                    ),
                    stacked=True,
                    many=True,
                ),
                graph(
                    "Time in statements",
                    "Seconds a second that supervisors wait for PostgreSQL, by statement.",
                    "short",
                    (
                        "sum by (statement) (rate(jobctl_sql_seconds_sum{}[$__rate_interval])) > 0",
                        "{{statement}}",
                    ),
                    stacked=True,
                    many=True,
                ),
                graph(
                    "Lease renewals",
                    "failed: PostgreSQL did not answer; refused: it said no.",
                    "short",
                    (
                        "sum by (result) "
                        "(increase(jobctl_lease_renewals_total{}[$__rate_interval]))",
                        "{{result}}",
                    ),
                ),
            ),
        ),
        Row(
            "Clearing up",
            (
                graph(
                    "Oldest transaction",
                    "Age of the oldest transaction of this database. More: jobctl doctor",
                    "s",
                    ("max(jobctl_oldest_transaction_age_seconds{})", "oldest"),
                ),
                graph(
                    "Dead rows",
                    "What vacuum has not removed yet, by table.",
                    "short",
                    ("topk(10, max by (table) (jobctl_table_dead_rows{}))", "{{table}}"),
                    many=True,
                ),
                graph(
                    "Size",
                    "Of each table, with its indexes.",
                    "bytes",
                    ("max by (table) (jobctl_table_size_bytes{})", "{{table}}"),
                    many=True,
                    stacked=True,
                ),
                graph(
                    "In and out",
                    "Jobs enqueued and finished a second: what the database has to do.",
                    "ops",
                    ("sum(rate(jobctl_jobs_enqueued_total{}[$__rate_interval]))", "enqueued"),
                    ("sum(rate(jobctl_jobs_finished_total{}[$__rate_interval]))", "finished"),
                ),
            ),
        ),
    ),
)
