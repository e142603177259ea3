"""Figures that stand on more than one dashboard."""

from __future__ import annotations

from tests.grafana.dashboards.panels import AMBER, GREEN, RED, figure

BUSY_SLOTS = figure(
    "Busy slots",
    "Share of all slots that run a job. More: jobctl jobs list --state running",
    'sum(jobctl_slots{stage="busy"}) / sum(jobctl_slots{})',
    "percentunit",
    steps=((0.8, AMBER), (0.95, RED)),
    decimals=0,
)
LEADERS = figure(
    "Leaders",
    "Supervisors that lead: exactly one. More: jobctl hosts",
    "sum(jobctl_leader{})",
    steps=((1, GREEN), (2, AMBER)),
    below=RED,
)
SUPERVISORS = figure(
    "Supervisors",
    "How many tell Prometheus that they run. More: jobctl hosts",
    "count(jobctl_build_info{})",
    steps=((1, GREEN),),
    below=RED,
)
