"""What makes each alert fire, and what its neighbour looks like that must not make it fire.

Series in promtool's notation: `0+10x60` is 0, 10, 20 ... at each minute. Times are those of
promtool, `90m`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """`alert` fires at `at`, alone of its name, with these labels and this summary; at `quiet` it
    does not."""

    alert: str
    series: Mapping[str, str]
    at: str
    labels: Labels
    summary: str
    quiet: str = "0m"


@dataclass(frozen=True)
class Calm:
    """With these series `alert` never fires, though it is near."""

    alert: str
    why: str
    series: Mapping[str, str]
    at: tuple[str, ...] = field(default=("30m", "90m"))


ONE = 'job="jobctl", instance="one"'
TWO = 'job="jobctl", instance="two"'
JOB = {"job": "jobctl"}
MAIL = {**JOB, "queue": "mail"}
SEND = {**MAIL, "job_type": "send"}
HERE = {**JOB, "instance": "one"}


def waits(late: str, all_of_them: str, queue: str = "mail") -> dict[str, str]:
    """Counts of those that started within 10 s, and of all."""
    of_queue = f'{ONE}, queue="{queue}"'
    return {
        f'jobctl_wait_seconds_bucket{{{of_queue}, le="10.0"}}': late,
        f'jobctl_wait_seconds_bucket{{{of_queue}, le="+Inf"}}': all_of_them,
        f"jobctl_wait_seconds_count{{{of_queue}}}": all_of_them,
    }


CASES = (
    Case(
        "JobctlWaitBudgetBurn",
        # An hour as promised, then half of them late.
        waits("0+100x60 6050+50x120", "0+100x180"),
        "90m",
        MAIL,
        "queue mail: 25% of its jobs start more than 10 s late",
        quiet="60m",
    ),
    Case(
        "JobctlWaitBudgetBurn",  # by its slower pair of windows
        waits("0+92x600", "0+100x600"),
        "400m",
        MAIL,
        "queue mail: 8% of its jobs start more than 10 s late",
        quiet="0m",
    ),
    Case(
        "JobctlWaitBudgetSlowBurn",
        waits("0+97x600", "0+100x600"),
        "500m",
        MAIL,
        "queue mail: for days 3% of its jobs have started more than 10 s late",
        quiet="20m",
    ),
    Case(
        "JobctlQueueStalled",
        {
            f'jobctl_queue_age_seconds{{{ONE}, queue="mail"}}': "0+60x60",
            f'jobctl_queue_paused{{{ONE}, queue="mail"}}': "0x60",
        },
        "20m",
        MAIL,
        "queue mail: its oldest due job has waited for 20m 0s",
        quiet="8m",
    ),
    Case(
        "JobctlQueueLeftPaused",
        {f'jobctl_queue_paused{{{ONE}, queue="mail"}}': "1x900"},
        "730m",
        MAIL,
        "queue mail has been paused for 12 hours",
        quiet="600m",
    ),
    Case(
        "JobctlUnrunnableJobs",
        {f"jobctl_unrunnable_jobs{{{ONE}}}": "0x5 3x60"},
        "25m",
        JOB,
        "3 queued jobs wait for code that no live host has",
        quiet="15m",
    ),
    Case(
        "JobctlSaturated",
        {
            f'jobctl_saturation_ratio{{{ONE}, pool="default"}}': "0.5x10 1x60",
            f'jobctl_saturation_ratio{{{TWO}, pool="default"}}': "1x70",
        },
        "50m",
        {**JOB, "pool": "default"},
        "pool default: 100% of its slots have been busy for half an hour",
        quiet="30m",
    ),
    Case(
        "JobctlDeadLetters",
        {
            f'jobctl_jobs_finished_total{{{ONE}, queue="mail", job_type="send", state="dead"}}': (
                "0x5 3x60"
            ),
            f'jobctl_job_type_info{{{ONE}, job_type="send", owner="billing"}}': "1x65",
            f'jobctl_job_type_info{{{TWO}, job_type="send", owner="billing"}}': "1x65",
        },
        "15m",
        {**SEND, "owner": "billing"},
        "send in queue mail: 3 jobs have failed for good within 15 minutes",
        quiet="30m",
    ),
    Case(
        "JobctlDeadLetters",  # of a type that nobody has registered
        {
            f'jobctl_jobs_finished_total{{{ONE}, queue="mail", job_type="other", state="dead"}}': (
                "0x5 3x60"
            ),
        },
        "15m",
        {**MAIL, "job_type": "other"},
        "other in queue mail: 3 jobs have failed for good within 15 minutes",
        quiet="30m",
    ),
    Case(
        "JobctlLimitBottleneck",
        {
            f'jobctl_limit_age_seconds{{{ONE}, limit="api"}}': "0+60x60",
            f'jobctl_limit_places{{{ONE}, limit="api"}}': "5x60",
        },
        "25m",
        {**JOB, "limit": "api"},
        "limit api: a job has waited 25m 0s to be let in",
        quiet="15m",
    ),
    Case(
        "JobctlLimitLeak",
        {f"jobctl_limit_places_mended_total{{{ONE}}}": "0x5 1x120"},
        "20m",
        JOB,
        "1 places of limits were held by nobody within the last hour, and have been given back",
        quiet="4m",
    ),
    Case(
        "JobctlPoison",
        {f'jobctl_poisoned_jobs_total{{{ONE}, queue="mail", job_type="send"}}': "0x5 1x120"},
        "20m",
        SEND,
        "send in queue mail: 1 jobs are dead because processes died with them, again and again",
        quiet="4m",
    ),
    Case(
        "JobctlFailureRatio",
        {
            f'jobctl_attempts_total{{{ONE}, queue="mail", job_type="send", outcome="succeeded"}}': (
                "0+6x60"
            ),
            f'jobctl_attempts_total{{{ONE}, queue="mail", job_type="send", outcome="failed"}}': (
                "0+4x60"
            ),
        },
        "40m",
        {**JOB, "job_type": "send"},
        "send: 40% of its attempts fail",
        quiet="9m",
    ),
    Case(
        "JobctlRedeliveries",
        {f'jobctl_redeliveries_total{{{ONE}, queue="mail", reason="lease_expired"}}': "0x5 7x60"},
        "20m",
        {**MAIL, "reason": "lease_expired"},
        "queue mail: 7 jobs were given out again within 15 minutes (lease_expired)",
        quiet="4m",
    ),
    Case(
        "JobctlClaimsLost",
        {f"jobctl_claims_lost_total{{{ONE}}}": "0x5 1x60"},
        "20m",
        HERE,
        "one: 1 attempts ended after their jobs had been given to somebody else",
        quiet="4m",
    ),
    Case(
        "JobctlStuckJobs",
        {f"jobctl_stuck_jobs{{{ONE}}}": "0x5 2x60"},
        "20m",
        JOB,
        "2 running jobs have nobody who looks after them",
        quiet="14m",
    ),
    Case(
        "JobctlCronLate",
        {f'jobctl_cron_lag_seconds{{{ONE}, name="nightly"}}': "0.2x5 0+60x60"},
        "16m",
        {**JOB, "name": "nightly"},
        "cron nightly is 10m 0s late, or was so when it fired last",
        quiet="11m",
    ),
    Case(
        "JobctlCronMissed",
        {f'jobctl_cron_fires_total{{{ONE}, name="nightly", result="missed"}}': "0x5 2x120"},
        "30m",
        {**JOB, "name": "nightly"},
        "cron nightly: 2 planned times have passed without a job",
        quiet="4m",
    ),
    Case(
        "JobctlNobodyEnqueues",
        {
            f'jobctl_jobs_enqueued_total{{{ONE}, queue="mail", job_type="send"}}': "0+5x600 3000x3000"  # noqa: E501 - a series is one word
        },
        "2200m",
        JOB,
        "nothing has been enqueued for a day, which was not so in the week before",
        quiet="1900m",
    ),
    Case(
        "JobctlDown",
        {f"up{{{ONE}}}": "1x5 0x60", f"jobctl_build_info{{{ONE}}}": "1x5 _x60"},
        "15m",
        HERE,
        "no metrics from one: its supervisor is gone, or cannot be reached",
        quiet="7m",
    ),
    Case(
        "JobctlAbsent",
        {f"jobctl_build_info{{{ONE}}}": "1x5 stale _x60"},
        "20m",
        {},
        "no supervisor anywhere tells Prometheus anything",
        quiet="5m",
    ),
    Case(
        "JobctlNoLeader",
        {f"jobctl_leader{{{ONE}}}": "1x5 0x60", f"jobctl_leader{{{TWO}}}": "0x65"},
        "10m",
        JOB,
        "no supervisor leads: no cron fires, and jobs of lost hosts stay where they are",
        quiet="7m",
    ),
    Case(
        "JobctlTwoLeaders",
        {f"jobctl_leader{{{ONE}}}": "1x65", f"jobctl_leader{{{TWO}}}": "0x5 1x60"},
        "10m",
        JOB,
        "2 supervisors lead at once",
        quiet="7m",
    ),
    Case(
        "JobctlLeaderDutyFails",
        {
            f'jobctl_leader_duty_age_seconds{{{ONE}, duty="reap"}}': "0+60x60",
            f'jobctl_leader_duty_age_seconds{{{ONE}, duty="partitions"}}': "0+60x60",
        },
        "20m",
        {**JOB, "duty": "reap"},
        "the leader's duty reap has not succeeded for 20m 0s",
        quiet="9m",
    ),
    Case(
        "JobctlLeaderDutyFails",
        {f'jobctl_leader_duty_age_seconds{{{ONE}, duty="partitions"}}': "0+60x300"},
        "190m",
        {**JOB, "duty": "partitions"},
        "the leader's duty partitions has not succeeded for 3h 10m 0s",
        quiet="170m",
    ),
    Case(
        "JobctlSlotsCrashLoop",
        {f"jobctl_slots_degraded{{{ONE}}}": "0x5 1x60"},
        "10m",
        HERE,
        "one: its slots die before they have done anything, so it claims nothing",
        quiet="7m",
    ),
    Case(
        "JobctlSlotDeaths",
        {f'jobctl_slot_exits_total{{{ONE}, pool="default", reason="crash"}}': "0x5 9x60"},
        "20m",
        {**HERE, "pool": "default", "reason": "crash"},
        "one: 9 slots have died within 15 minutes (crash)",
        quiet="4m",
    ),
    Case(
        "JobctlDeadlineKills",
        {f'jobctl_deadline_kills_total{{{ONE}, job_type="send", kind="hard"}}': "0x5 8x120"},
        "65m",
        {**JOB, "job_type": "send"},
        "send: 8 attempts were killed at their deadline within an hour",
        quiet="4m",
    ),
    Case(
        "JobctlDrainOverdue",
        {
            f"jobctl_draining{{{ONE}}}": "0x5 1x90",
            f'jobctl_slots{{{ONE}, pool="default", stage="busy"}}': "3x95",
        },
        "40m",
        HERE,
        "one has been draining for half an hour, and jobs still run there",
        quiet="34m",
    ),
    Case(
        "JobctlHostLeftDrained",
        {f"jobctl_draining{{{ONE}}}": "1x400"},
        "250m",
        HERE,
        "one has claimed nothing for 4 hours, because somebody has drained it",
        quiet="230m",
    ),
    Case(
        "JobctlLoopLag",
        {f"jobctl_loop_lag_seconds{{{ONE}}}": "0.01x5 3x60"},
        "20m",
        HERE,
        "one: its supervisor acts up to 3s late",
        quiet="14m",
    ),
    Case(
        "JobctlMixedVersions",
        {
            f'jobctl_build_info{{{ONE}, version="1.0"}}': "1x600",
            f'jobctl_build_info{{{TWO}, version="1.1"}}': "1x600",
        },
        "370m",
        JOB,
        "for 6 hours 2 versions of jobctl have been running side by side",
        quiet="350m",
    ),
    Case(
        "JobctlDatabaseDown",
        {f"jobctl_database_up{{{ONE}}}": "1x5 0x60"},
        "10m",
        HERE,
        "one gets no answer from PostgreSQL",
        quiet="6m",
    ),
    Case(
        "JobctlLeaseRenewalsFail",
        {
            f'jobctl_lease_renewals_total{{{ONE}, result="failed"}}': "0x5 4x60",
            f'jobctl_lease_renewals_total{{{ONE}, result="refused"}}': "0x65",
            f'jobctl_lease_renewals_total{{{ONE}, result="renewed"}}': "0+4x65",
        },
        "10m",
        HERE,
        "one: 4 renewals of its lease have failed within 5 minutes; without one it will kill what "
        "it runs",
        quiet="4m",
    ),
    Case(
        "JobctlOldTransaction",
        {f"jobctl_oldest_transaction_age_seconds{{{ONE}}}": "0+60x60"},
        "40m",
        JOB,
        "a transaction has been open for 40m 0s: what is done cannot be cleared away, and claims "
        "become slower",
        quiet="33m",
    ),
    Case(
        "JobctlTableBloat",
        {f'jobctl_table_dead_rows{{{ONE}, table="ready"}}': "2000000x60"},
        "31m",
        {**JOB, "table": "ready"},
        "table ready has 2M dead rows that vacuum does not remove",
        quiet="20m",
    ),
    Case(
        "JobctlSlowClaims",
        {
            f'jobctl_sql_seconds_bucket{{{ONE}, statement="claim", le="0.25"}}': "0+5x60",
            f'jobctl_sql_seconds_bucket{{{ONE}, statement="claim", le="0.5"}}': "0+10x60",
            f'jobctl_sql_seconds_bucket{{{ONE}, statement="claim", le="+Inf"}}': "0+10x60",
        },
        "20m",
        HERE,
        "one: one claim in twenty takes more than 475ms",
        quiet="5m",
    ),
)

CALM = (
    Calm(
        "JobctlLimitBottleneck",
        "somebody has stopped it on purpose",
        {
            f'jobctl_limit_age_seconds{{{ONE}, limit="api"}}': "0+60x120",
            f'jobctl_limit_places{{{ONE}, limit="api"}}': "0x120",
        },
    ),
    Calm(
        "JobctlWaitBudgetBurn",
        "one of three jobs in an hour was late, which says nothing",
        waits("0x10 1x100", "0x10 3x100"),
    ),
    Calm(
        "JobctlWaitBudgetBurn",
        "half a percent is within the promise",
        waits("0+199x600", "0+200x600"),
        ("90m", "500m"),
    ),
    Calm(
        "JobctlQueueStalled",
        "it is paused",
        {
            f'jobctl_queue_age_seconds{{{ONE}, queue="mail"}}': "0+60x120",
            f'jobctl_queue_paused{{{ONE}, queue="mail"}}': "1x120",
        },
    ),
    Calm(
        "JobctlQueueStalled",
        "another leads since, and the old leader's figure is gone",
        {
            f'jobctl_queue_age_seconds{{{ONE}, queue="mail"}}': "0+60x6 stale",
            f'jobctl_queue_age_seconds{{{TWO}, queue="mail"}}': "_x7 1x90",
        },
    ),
    Calm(
        "JobctlFailureRatio",
        "all of three attempts failed, which is few",
        {
            f'jobctl_attempts_total{{{ONE}, queue="mail", job_type="send", outcome="failed"}}': (
                "0x20 3x90"
            )
        },
    ),
    Calm(
        "JobctlRedeliveries",
        "a deploy interrupts jobs, at no cost",
        {f'jobctl_redeliveries_total{{{ONE}, queue="mail", reason="interrupted"}}': "0x20 50x90"},
    ),
    Calm(
        "JobctlDown",
        "a target that was never a supervisor",
        {f"up{{{ONE}}}": "0x120"},
    ),
    Calm(
        "JobctlTwoLeaders",
        "two installations have a leader each",
        {
            f"jobctl_leader{{{ONE}}}": "1x120",
            'jobctl_leader{job="other-app", instance="one"}': "1x120",
        },
    ),
    Calm(
        "JobctlDrainOverdue",
        "it is drained and nothing runs there",
        {
            f"jobctl_draining{{{ONE}}}": "1x120",
            f'jobctl_slots{{{ONE}, pool="default", stage="busy"}}': "0x120",
        },
    ),
    Calm(
        "JobctlSlotDeaths",
        "slots that are replaced in order",
        {
            f'jobctl_slot_exits_total{{{ONE}, pool="default", reason="recycle"}}': "0+9x120",
            f'jobctl_slot_exits_total{{{ONE}, pool="default", reason="reload"}}': "0+9x120",
        },
    ),
    Calm(
        "JobctlNobodyEnqueues",
        "there was never a job",
        {f'jobctl_jobs_enqueued_total{{{ONE}, queue="mail", job_type="send"}}': "0x3000"},
        ("1600m", "2900m"),
    ),
)
