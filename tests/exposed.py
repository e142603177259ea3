"""What /metrics shows before anything has happened: the one list that tables, dashboards and alerts
are held against."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from jobctl.store.job_type import JobType
from jobctl.supervisor.metrics import Metrics
from jobctl.supervisor.outcomes import UNREGISTERED


def new_metrics(types: Sequence[JobType] = (UNREGISTERED,), *, leads: bool = True) -> Metrics:
    """Of a supervisor with one pool that knows these types, and has asked PostgreSQL once."""
    metrics = Metrics("1.2.3")
    metrics.know(types)
    metrics.know_pools(["default"])
    metrics.know_duties(["reap"])
    metrics.statement("claim", 0.002)
    metrics.leading(leads)
    if leads:
        metrics.crons({"nightly": 0.0})
        metrics.backlog([("mail", "queued", 3, 1.5)])
        metrics.oldest_transaction(7.0)
        metrics.unrunnable(0)
        metrics.stuck(0)
        metrics.limits([("tenant:*", 5, 3, 2, 1.5, 0)])
        metrics.paused([])
        metrics.tables([("job", 8192, 0)])
    return metrics


def families(metrics: Metrics) -> list[Metric]:
    """As Prometheus reads them."""
    return list(text_string_to_metric_families(b"".join(metrics.expose()).decode()))
