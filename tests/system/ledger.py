"""What crons of every second have left behind: no second twice, none left out.

Read from the tables alone, by the database's clock; it knows nothing of how the firing is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

#: Of the jobs, finished or not, how many there are for each planned time.
_BOOKS = """
    WITH jobs AS (
        SELECT id FROM jobctl.job WHERE type = %(name)s
        UNION ALL SELECT id FROM jobctl.history WHERE type = %(name)s
    ),
    fires AS (
        SELECT * FROM jobctl.cron_fire WHERE name = %(name)s
    ),
    planned AS (
        SELECT generate_series(min(scheduled_for), max(scheduled_for), '1 second') AS at FROM fires
    )
    SELECT
        (SELECT count(*) FROM planned) AS planned,
        (SELECT count(DISTINCT scheduled_for) FROM fires) AS dealt_with,
        (SELECT count(*) FROM fires) - (SELECT count(DISTINCT scheduled_for) FROM fires) AS doubles,
        (SELECT count(*) FROM planned AS p
         WHERE NOT EXISTS (SELECT FROM fires AS f WHERE f.scheduled_for = p.at)) AS gaps,
        (SELECT count(*) FROM fires WHERE result = 'fired') AS fired,
        (SELECT coalesce(sum(missed), 0) FROM fires) AS missed,
        (SELECT count(*) FROM jobs) AS jobs,
        (SELECT count(*) FROM jobs AS j
         WHERE NOT EXISTS (SELECT FROM fires AS f WHERE f.job_id = j.id)) AS orphans,
        (SELECT max(extract(epoch FROM fired_at - scheduled_for)) FROM fires)::float8 AS worst_lag,
        (SELECT percentile_cont(0.5) WITHIN GROUP (
             ORDER BY extract(epoch FROM fired_at - scheduled_for))
         FROM fires)::float8 AS median_lag,
        (SELECT min(extract(epoch FROM fired_at - scheduled_for)) FROM fires)::float8 AS earliest
"""


@dataclass(frozen=True)
class Books:
    """Of one cron."""

    name: str
    planned: int
    dealt_with: int
    doubles: int
    gaps: int
    fired: int
    missed: int
    jobs: int
    orphans: int
    worst_lag: float
    median_lag: float
    earliest: float

    @property
    def wrong(self) -> list[str]:
        """Sentences about what does not add up."""
        found = []
        if self.doubles:
            found.append(f"{self.doubles} planned times of {self.name} were fired twice")
        if self.gaps or self.missed:
            found.append(f"{self.gaps} planned times of {self.name} were never fired")
        if self.jobs != self.fired or self.orphans:
            found.append(
                f"{self.name} fired {self.fired} times and there are {self.jobs} jobs, "
                f"{self.orphans} of them of no firing"
            )
        if self.earliest < 0:
            found.append(f"{self.name} fired {-self.earliest:.3f} s before its time")
        return found

    def __str__(self) -> str:
        return (
            f"{self.name:6} {self.planned} planned, {self.fired} fired, {self.jobs} jobs, "
            f"{self.doubles} doubles, {self.gaps} gaps, {self.missed} missed, lag median "
            f"{self.median_lag * 1000:.0f} ms, worst {self.worst_lag:.1f} s"
        )


def books(dsn: str, name: str) -> Books:
    """As they are now."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        row: dict[str, Any] | None = connection.execute(_BOOKS, {"name": name}).fetchone()
    assert row is not None
    return Books(name, **row)
