"""The supervisors and their slots: who is there, who leads, what dies, what is late."""

from __future__ import annotations

from tests.grafana.dashboards.figures import BUSY_SLOTS, LEADERS, SUPERVISORS
from tests.grafana.dashboards.panels import AMBER, RED, Dashboard, Row, figure, graph

HOSTS = Dashboard(
    "jobctl-hosts",
    "jobctl hosts and slots",
    "The supervisors and their slots: who is there, who leads, what dies, what is late.",
    ("pool",),
    (
        SUPERVISORS,
        figure("Slots", "Of all of them, in whatever stage.", "sum(jobctl_slots{})"),
        BUSY_SLOTS,
        LEADERS,
        figure(
            "Draining",
            "Supervisors that claim nothing more. More: jobctl undrain",
            "sum(jobctl_draining{})",
            steps=((1, AMBER),),
        ),
        figure(
            "Crash loops",
            "Supervisors whose slots die before they have done anything.",
            "sum(jobctl_slots_degraded{})",
            steps=((1, RED),),
        ),
        figure(
            "Versions",
            "Of jobctl, side by side. More: jobctl hosts",
            "count(count by (version) (jobctl_build_info{}))",
            steps=((2, AMBER),),
        ),
        figure(
            "Loop lag",
            "The worst of late: how late a supervisor acted.",
            "max(jobctl_loop_lag_seconds{})",
            "s",
            steps=((0.5, AMBER), (1, RED)),
        ),
    ),
    (
        Row(
            "Slots",
            (
                graph(
                    "Saturation",
                    "Share of each supervisor's slots that run a job.",
                    "percentunit",
                    (
                        "max by (instance, pool) (jobctl_saturation_ratio{})",
                        "{{instance}} {{pool}}",
                    ),
                    most=1,
                ),
                graph(
                    "Slots by stage",
                    "busy runs a job, idle could, starting imports the app, leaving and killing are "
                    "on their way out.",
                    "short",
                    ("sum by (stage) (jobctl_slots{})", "{{stage}}"),
                    stacked=True,
                ),
                graph(
                    "Slot exits",
                    "Why processes of slots ended. recycle, reload and stop are in order; timeout, "
                    "memory and cpu are ceilings; crash and boot are deaths.",
                    "short",
                    (
                        "sum by (reason) (increase(jobctl_slot_exits_total{}[$__rate_interval])) > 0",
                        "{{reason}}",
                    ),
                ),
                graph(
                    "Crash loops and drains",
                    "Supervisors that claim nothing, and why. More: jobctl hosts",
                    "short",
                    ("jobctl_slots_degraded{}", "{{instance}} slots die"),
                    ("jobctl_draining{}", "{{instance}} draining"),
                ),
            ),
        ),
        Row(
            "Supervisors",
            (
                graph(
                    "Lease renewals",
                    "renewed several times a minute; failed: PostgreSQL did not answer; refused: it "
                    "said no.",
                    "short",
                    (
                        "sum by (instance, result) "
                        "(increase(jobctl_lease_renewals_total{}[$__rate_interval])) > 0",
                        "{{instance}} {{result}}",
                    ),
                ),
                graph(
                    "Claims lost",
                    "Attempts that ended after their jobs had been given to somebody else.",
                    "short",
                    (
                        "sum by (instance) (increase(jobctl_claims_lost_total{}[$__rate_interval]))",
                        "{{instance}}",
                    ),
                ),
                graph(
                    "Loop lag",
                    "How late a supervisor acts at worst. Deadlines are as late.",
                    "s",
                    ("max by (instance) (jobctl_loop_lag_seconds{})", "{{instance}}"),
                ),
                graph(
                    "CPU of the supervisor",
                    "Cores that the supervisor itself uses, without its slots. One full core is its "
                    "limit.",
                    "short",
                    ("rate(process_cpu_seconds_total{}[$__rate_interval])", "{{instance}}"),
                ),
                graph(
                    "Memory of the supervisor",
                    "Of the supervisor itself, without its slots.",
                    "bytes",
                    ("process_resident_memory_bytes{}", "{{instance}}"),
                ),
                graph(
                    "Files of the supervisor",
                    "Open descriptors, as a share of how many it may have.",
                    "percentunit",
                    ("process_open_fds{} / process_max_fds{}", "{{instance}}"),
                ),
            ),
        ),
        Row(
            "Leader",
            (
                graph(
                    "Who leads",
                    "1 for the supervisor that leads. More: jobctl hosts",
                    "short",
                    ("jobctl_leader{}", "{{instance}}"),
                    most=2,
                ),
                graph(
                    "Duties",
                    "Since each of the leader's duties succeeded last. partitions has an hour's "
                    "rest, the others two minutes at most.",
                    "s",
                    ("max by (duty) (jobctl_leader_duty_age_seconds{})", "{{duty}}"),
                ),
                graph(
                    "Duties that fail",
                    "What the leader could not do; its log says why.",
                    "short",
                    (
                        "sum by (duty) (increase(jobctl_leader_duty_errors_total{}"
                        "[$__rate_interval]))",
                        "{{duty}}",
                    ),
                ),
                graph(
                    "Cron firings",
                    "Planned times, by what came of them. More: jobctl cron list",
                    "short",
                    (
                        "sum by (name, result) "
                        "(increase(jobctl_cron_fires_total{}[$__rate_interval])) > 0",
                        "{{name}} {{result}}",
                    ),
                ),
            ),
        ),
    ),
)
