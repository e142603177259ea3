"""Metrics: the contract's names, Prometheus's conventions, bounded labels, zeros from the start."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator

import pytest
from prometheus_client.core import Metric

from jobctl.store.job_type import JobType
from jobctl.store.states import Outcome
from jobctl.supervisor import gauges, job_series
from jobctl.supervisor import metrics as module
from jobctl.supervisor.listener import Reason
from jobctl.supervisor.metrics import Metrics
from jobctl.supervisor.series import Histogram
from jobctl.supervisor.slot import Stage
from tests.exposed import families, new_metrics
from tests.grafana.prometheus import promtool

#: Name, type and labels, as dashboards and alerts rely on them.
CONTRACT = {
    "jobctl_jobs_enqueued": ("counter", {"queue", "job_type"}),
    "jobctl_jobs_finished": ("counter", {"queue", "job_type", "state"}),
    "jobctl_attempts": ("counter", {"queue", "job_type", "outcome"}),
    "jobctl_job_type_info": ("gauge", {"job_type", "owner"}),
    "jobctl_poisoned_jobs": ("counter", {"queue", "job_type"}),
    "jobctl_attempts_per_finished_job": ("histogram", {"job_type"}),
    "jobctl_redeliveries": ("counter", {"queue", "reason"}),
    "jobctl_cancel_latency_seconds": ("histogram", set()),
    "jobctl_attempt_duration_seconds": ("histogram", {"queue", "job_type"}),
    "jobctl_wait_seconds": ("histogram", {"queue"}),
    "jobctl_job_duration_seconds": ("histogram", {"job_type"}),
    "jobctl_claim_to_start_seconds": ("histogram", {"queue"}),
    "jobctl_jobs": ("gauge", {"queue", "state"}),
    "jobctl_queue_age_seconds": ("gauge", {"queue"}),
    "jobctl_queue_paused": ("gauge", {"queue"}),
    "jobctl_stuck_jobs": ("gauge", set()),
    "jobctl_table_size_bytes": ("gauge", {"table"}),
    "jobctl_table_dead_rows": ("gauge", {"table"}),
    "jobctl_limit_places": ("gauge", {"limit"}),
    "jobctl_limit_held": ("gauge", {"limit"}),
    "jobctl_limit_waiting_jobs": ("gauge", {"limit"}),
    "jobctl_limit_age_seconds": ("gauge", {"limit"}),
    "jobctl_limit_restrained_keys": ("gauge", {"limit"}),
    "jobctl_limit_places_mended": ("counter", set()),
    "jobctl_slots_degraded": ("gauge", set()),
    "jobctl_slots": ("gauge", {"pool", "stage"}),
    "jobctl_saturation_ratio": ("gauge", {"pool"}),
    "jobctl_slot_exits": ("counter", {"pool", "reason"}),
    "jobctl_deadline_kills": ("counter", {"job_type", "kind"}),
    "jobctl_lease_renewals": ("counter", {"result"}),
    "jobctl_claims_lost": ("counter", set()),
    "jobctl_effects": ("counter", {"result"}),
    "jobctl_leader": ("gauge", set()),
    "jobctl_leader_duty_age_seconds": ("gauge", {"duty"}),
    "jobctl_leader_duty_errors": ("counter", {"duty"}),
    "jobctl_cron_fires": ("counter", {"name", "result"}),
    "jobctl_cron_lag_seconds": ("gauge", {"name"}),
    "jobctl_sql_seconds": ("histogram", {"statement"}),
    "jobctl_database_up": ("gauge", set()),
    "jobctl_draining": ("gauge", set()),
    "jobctl_loop_lag_seconds": ("gauge", set()),
    "jobctl_oldest_transaction_age_seconds": ("gauge", set()),
    "jobctl_unrunnable_jobs": ("gauge", set()),
    "jobctl_build_info": ("gauge", {"version", "python"}),
}


def _type(name: str, queue: str = "mail") -> JobType:
    return JobType(
        name=name, queue=queue, priority=0, timeout_seconds=300.0, soft_timeout_seconds=None,
        max_attempts=5, max_crashes=3, min_backoff_seconds=10.0, max_backoff_seconds=3600.0,
        max_doublings=16, max_elapsed_seconds=None, ack="late", schema_version=1,
        key_ttl_seconds=86400.0, owner=None, link=None,
    )  # fmt: skip


@pytest.fixture
def metrics() -> Metrics:
    """Of a supervisor with one type in one queue and one pool, which leads."""
    return new_metrics([_type("send")])


def _families(metrics: Metrics) -> Iterator[Metric]:
    yield from families(metrics)


def _value(metrics: Metrics, name: str, /, **labels: str) -> float | None:
    for family in _families(metrics):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return None


def _labels(metrics: Metrics, name: str, label: str) -> set[str]:
    return {
        sample.labels[label]
        for family in _families(metrics)
        for sample in family.samples
        if sample.name == name
    }


def test_names_types_and_labels_are_the_contracts(metrics: Metrics) -> None:
    """Nothing more, nothing less; and each has a sample before anything has happened."""
    found = {}
    for family in _families(metrics):
        if family.name.startswith("process_"):
            continue
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[family.name] = (family.type, labels)
        assert family.samples, family.name
    assert found == CONTRACT


def test_conventions_of_prometheus(metrics: Metrics) -> None:
    """What `promtool check metrics` complains about."""
    text = b"".join(metrics.expose()).decode()
    for family in _families(metrics):
        assert family.documentation, family.name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)
        assert not re.search(r"_(total|count|sum|bucket|info)$", family.name.removesuffix("_info"))
        assert not re.search(r"(milli|micro|nano)seconds|_ms\b|_percent", family.name)
        for sample in family.samples:
            assert not {"job", "instance"} & sample.labels.keys()
            if family.type == "counter":
                assert sample.name.endswith("_total")
    assert "_created" not in text


def test_promtool_finds_nothing_to_mend(metrics: Metrics) -> None:
    """The conventions as Prometheus's own tool has them."""
    done = subprocess.run(
        [promtool(), "check", "metrics"], input=b"".join(metrics.expose()), capture_output=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_a_job_is_counted_from_claim_to_end(metrics: Metrics) -> None:
    """One retried job: two attempts, one finish."""
    series = metrics.of("mail", "send")
    series.claimed(0.2)
    series.started(0.01)
    series.ended("failed", 3.0)
    series.claimed(11.0)
    series.ended("succeeded", 4.0)
    series.finished("succeeded", 2, 18.0)
    of_job = {"queue": "mail", "job_type": "send"}
    assert _value(metrics, "jobctl_attempts_total", outcome="failed", **of_job) == 1
    assert _value(metrics, "jobctl_attempts_total", outcome="succeeded", **of_job) == 1
    assert _value(metrics, "jobctl_attempts_total", outcome="crashed", **of_job) == 0
    assert _value(metrics, "jobctl_jobs_finished_total", state="succeeded", **of_job) == 1
    assert _value(metrics, "jobctl_attempt_duration_seconds_sum", **of_job) == 7.0
    assert _value(metrics, "jobctl_wait_seconds_count", queue="mail") == 2
    assert _value(metrics, "jobctl_wait_seconds_bucket", queue="mail", le="10.0") == 1
    assert _value(metrics, "jobctl_claim_to_start_seconds_count", queue="mail") == 1
    name = "jobctl_attempts_per_finished_job_bucket"
    assert _value(metrics, name, job_type="send", le="1.0") == 0
    assert _value(metrics, name, job_type="send", le="2.0") == 1
    assert _value(metrics, "jobctl_job_duration_seconds_sum", job_type="send") == 18.0


def test_an_attempt_whose_length_nobody_knows_is_still_an_attempt(metrics: Metrics) -> None:
    """A lost host's attempt has an outcome and no duration."""
    metrics.of("mail", "send").ended("lost", None)
    of_job = {"queue": "mail", "job_type": "send"}
    assert _value(metrics, "jobctl_attempts_total", outcome="lost", **of_job) == 1
    assert _value(metrics, "jobctl_attempt_duration_seconds_count", **of_job) == 0


def test_every_word_of_ours_is_a_label_from_the_start(metrics: Metrics) -> None:
    """A first failure is an increase only if there was a zero before."""
    assert _labels(metrics, "jobctl_attempts_total", "outcome") == {o.value for o in Outcome}
    assert _labels(metrics, "jobctl_slot_exits_total", "reason") == {r.value for r in Reason}
    assert _labels(metrics, "jobctl_slots", "stage") == {
        stage.value for stage in Stage if stage is not Stage.GONE
    }
    assert _labels(metrics, "jobctl_lease_renewals_total", "result") == set(module.RENEWALS)
    assert _labels(metrics, "jobctl_redeliveries_total", "reason") == set(job_series.REDELIVERIES)


def test_labels_are_bounded_whatever_is_enqueued(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Types that the app has not registered, and queues beyond the first so many, are "other"."""
    for place in (module, gauges):
        monkeypatch.setattr(place, "MOST_QUEUES", 5)
    for number in range(20):
        metrics.of(f"q{number}", f"t{number}").ended("failed", 1.0)
    metrics.backlog([(f"q{number}", "queued", 2, float(number)) for number in range(20)])
    assert _labels(metrics, "jobctl_attempts_total", "job_type") == {"send", "other"}
    assert len(_labels(metrics, "jobctl_attempts_total", "queue")) == 6
    assert len(_labels(metrics, "jobctl_jobs", "queue")) == 6
    counted = _value(
        metrics, "jobctl_attempts_total", queue="other", job_type="other", outcome="failed"
    )
    assert counted == 16  # mail and q0 to q3 have labels of their own
    assert _value(metrics, "jobctl_jobs", queue="other", state="queued") == 30
    assert _value(metrics, "jobctl_queue_age_seconds", queue="other") == 19


def test_a_type_in_many_queues_and_an_app_of_many_types_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Queues are chosen by whoever enqueues: a type has a label of its own in its own queue, and
    only so many have one in another."""
    monkeypatch.setattr(module, "MOST_TYPES", 4)
    monkeypatch.setattr(module, "MOST_PAIRS", 6)
    metrics = new_metrics([_type(f"t{number}") for number in range(10)])
    for queue in range(20):
        for number in range(10):
            metrics.of(f"q{queue}", f"t{number}").ended("succeeded", 1.0)
    attempts = [
        sample
        for family in _families(metrics)
        for sample in family.samples
        if sample.name == "jobctl_attempts_total"
    ]
    assert sum(sample.value for sample in attempts) == 200
    assert _labels(metrics, "jobctl_attempts_total", "job_type") == {
        "t0", "t1", "t2", "t3", "other"
    }  # fmt: skip
    pairs = {(one.labels["queue"], one.labels["job_type"]) for one in attempts}
    own, foreign, other_queue, other_type = 4, 6, 4, 22
    assert len(pairs) <= own + foreign + other_queue + other_type


def test_what_a_scrape_with_500_types_costs() -> None:
    """So many lines and no more, in pieces of which none is long; what has not changed since the
    scrape before is not made again. (In figures: `python -m tests.grafana.scrape`.)"""
    types = [_type(f"type-{number}", f"queue-{number % 20}") for number in range(500)]
    metrics = new_metrics(types)
    first = list(metrics.expose())
    lines = b"".join(first).count(b"\n")
    per_type = lines / len(types)
    assert per_type < 75, "labels of a type have grown: is each of them needed?"
    assert max(piece.count(b"\n") for piece in first) <= 25 * 20
    for number in range(5):
        metrics.of(f"queue-{number}", f"type-{number}").ended("succeeded", 1.0)
    made = []
    lines_of = Histogram._lines

    def counted(histogram: Histogram, name: str, labels: str) -> Iterator[str]:
        made.append(name)
        return lines_of(histogram, name, labels)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Histogram, "_lines", counted)
        list(metrics.expose())
    assert len(made) == 5


def test_what_an_earlier_life_has_left_is_seen_as_an_increase() -> None:
    """It ends before the app is imported, and before anybody has scraped: a counter that began
    with it would never have grown. It counts once its type was seen at zero."""
    metrics = Metrics("1")
    metrics.of("mail", "send").poisoned()
    metrics.of("mail", "send").ended("lost", None)
    list(metrics.expose())  # somebody was quick
    metrics.know([_type("send")])
    metrics.of("mail", "unheard-of").poisoned()
    of_job = {"queue": "mail", "job_type": "send"}
    assert _value(metrics, "jobctl_poisoned_jobs_total", **of_job) == 0
    assert _value(metrics, "jobctl_poisoned_jobs_total", **of_job) == 1
    assert _value(metrics, "jobctl_attempts_total", outcome="lost", **of_job) == 1
    assert _value(metrics, "jobctl_poisoned_jobs_total", **of_job) == 1
    assert _labels(metrics, "jobctl_poisoned_jobs_total", "job_type") == {"send", "other"}


def test_enqueues_of_a_type_of_another_app_have_its_label(metrics: Metrics) -> None:
    """The leader counts for all hosts; what no host has registered is anybody's invention."""
    metrics.enqueued([("mail", "send", 3, True), ("web", "theirs", 2, True)])
    metrics.enqueued([("web", "invented", 5, False), ("web", "theirs", 2, True)])
    name = "jobctl_jobs_enqueued_total"
    assert _value(metrics, name, queue="mail", job_type="send") == 3
    assert _value(metrics, name, queue="web", job_type="theirs") == 4
    assert _value(metrics, name, queue="web", job_type="other") == 5


def test_a_type_learned_at_a_reload_has_its_own_label(metrics: Metrics) -> None:
    """It was "other" while nobody knew it; what was counted stays counted."""
    metrics.of("mail", "new").ended("failed", 1.0)
    metrics.know([_type("send"), _type("new")])
    metrics.of("mail", "new").ended("failed", 1.0)
    for name in ("other", "new"):
        value = _value(
            metrics, "jobctl_attempts_total", queue="mail", job_type=name, outcome="failed"
        )
        assert value == 1


def test_numbers_of_the_fleet_vanish_with_the_lead(metrics: Metrics) -> None:
    """Two hosts that both show the backlog would show it twice."""
    assert _value(metrics, "jobctl_jobs", queue="mail", state="queued") == 3
    assert _value(metrics, "jobctl_jobs", queue="mail", state="dead") == 0
    assert _value(metrics, "jobctl_queue_age_seconds", queue="mail") == 1.5
    assert _value(metrics, "jobctl_oldest_transaction_age_seconds") == 7.0
    metrics.leading(False)
    assert _value(metrics, "jobctl_jobs", queue="mail", state="queued") is None
    assert _value(metrics, "jobctl_queue_age_seconds", queue="mail") is None
    assert _value(metrics, "jobctl_oldest_transaction_age_seconds") is None
    assert _value(metrics, "jobctl_leader") == 0


def test_slots_are_asked_for_when_somebody_scrapes(metrics: Metrics) -> None:
    """Busy over all, and no division by nothing."""
    assert _value(metrics, "jobctl_saturation_ratio", pool="default") == 0
    metrics.watch_slots(
        lambda: [("default", Stage.BUSY), ("default", Stage.IDLE), ("default", Stage.GONE)]
    )
    assert _value(metrics, "jobctl_slots", pool="default", stage="busy") == 1
    assert _value(metrics, "jobctl_slots", pool="default", stage="killing") == 0
    assert _value(metrics, "jobctl_saturation_ratio", pool="default") == 0.5


def test_the_rest_is_what_it_is_told(metrics: Metrics) -> None:
    """Setters set, counters count."""
    metrics.database(True)
    metrics.draining(True)
    metrics.renewed("renewed")
    metrics.claim_lost()
    metrics.slot_gone("default", Reason.CRASH)
    metrics.of("mail", "send").redelivered("crash")
    metrics.of("mail", "send").killed("hard")
    assert _value(metrics, "jobctl_database_up") == 1
    assert _value(metrics, "jobctl_draining") == 1
    assert _value(metrics, "jobctl_lease_renewals_total", result="renewed") == 1
    assert _value(metrics, "jobctl_claims_lost_total") == 1
    assert _value(metrics, "jobctl_slot_exits_total", pool="default", reason="crash") == 1
    assert _value(metrics, "jobctl_redeliveries_total", queue="mail", reason="crash") == 1
    assert _value(metrics, "jobctl_deadline_kills_total", job_type="send", kind="hard") == 1


def test_the_worst_lag_is_remembered_and_then_forgotten(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape every fifteen seconds must see a stall of one."""
    now = 1000.0
    monkeypatch.setattr(gauges, "monotonic", lambda: now)
    metrics = Metrics("1")
    metrics.lagged(2.0)
    metrics.lagged(0.1)
    now += gauges.LAG_SECONDS + 1
    assert _value(metrics, "jobctl_loop_lag_seconds") == 2.0
    metrics.lagged(0.2)
    now += gauges.LAG_SECONDS + 1
    assert _value(metrics, "jobctl_loop_lag_seconds") == 0.2
    now += 10 * gauges.LAG_SECONDS
    assert _value(metrics, "jobctl_loop_lag_seconds") == 0.0


def test_an_observation_on_the_edge_belongs_to_the_bucket() -> None:
    """`le` is less or equal; negative ones, which two clocks make, are zero."""
    histogram = Histogram((1.0, 10.0))
    for value in (-5.0, 1.0, 1.1, 10.0, 11.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == pytest.approx(23.1)


def test_the_page_lets_others_have_their_turn(metrics: Metrics) -> None:
    """Between two metrics the loop goes round: a large scrape delays no deadline."""

    async def play() -> tuple[int, str, bytes]:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        answer = await metrics.page()
        task.cancel()
        return turns, answer.content_type, answer.body

    turns, content_type, body = asyncio.run(play())
    assert turns >= len(CONTRACT)
    assert content_type.startswith("text/plain; version=0.0.4")
    assert b"jobctl_build_info" in body


def test_crons_are_counted_by_the_leader_and_their_labels_are_bounded(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overdue cron grows old in the metrics; one that is gone has no lag any more."""
    monkeypatch.setattr(module, "MOST_CRONS", 2)
    fires, lag = "jobctl_cron_fires_total", "jobctl_cron_lag_seconds"
    assert _value(metrics, fires, name="nightly", result="fired") == 0
    metrics.cron_fired("nightly", "fired", 1, 0.25)
    metrics.cron_fired("weekly", "missed", 7, None)
    metrics.cron_fired("yearly", "fired", 1, 0.5)
    metrics.cron_fired("hourly", "fired", 1, 0.5)
    assert _value(metrics, fires, name="weekly", result="missed") == 7
    assert _value(metrics, fires, name="other", result="fired") == 2
    assert _value(metrics, lag, name="nightly") == 0.25
    metrics.crons({"nightly": 90.0})
    assert _value(metrics, lag, name="nightly") == 90
    metrics.crons({"weekly": 0.0})
    assert _value(metrics, lag, name="nightly") is None


def test_each_duty_has_its_own_age_while_it_leads(metrics: Metrics) -> None:
    age, errors = "jobctl_leader_duty_age_seconds", "jobctl_leader_duty_errors_total"
    metrics.duty_done("reap")
    first = _value(metrics, age, duty="reap")
    assert first is not None and 0 <= first < 5
    metrics.duty_failed("reap")
    assert _value(metrics, errors, duty="reap") == 1
    metrics.leading(False)
    assert _value(metrics, age, duty="reap") is None
