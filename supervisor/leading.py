"""What the leader's duties find out about all hosts, for the log and the metrics of this one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jobctl.store.link import Row
from jobctl.store.states import State
from jobctl.supervisor.condition import Condition
from jobctl.supervisor.cron import FIRED, MISSED
from jobctl.supervisor.events import Event
from jobctl.supervisor.log import Log, first_line
from jobctl.supervisor.metrics import Metrics
from jobctl.supervisor.settle import Settlement, Settler


class Leading:
    """The ear of `duties.py` and `cron.py`: says what is new, counts what is counted."""

    def __init__(self, settler: Settler, condition: Condition, metrics: Metrics, log: Log) -> None:
        self._settler = settler
        self._condition = condition
        self._metrics = metrics
        self._log = log
        self._unrunnable: frozenset[tuple[str, int]] = frozenset()  # that was said already

    def settle(self, settlement: Settlement) -> None:
        self._settler.settle(settlement)

    def pending(self, session: int, token: int) -> bool:
        return (session, token) in self._settler.tokens()

    def database_was_away_at(self) -> float:
        return self._condition.away_at

    def on_sessions_expired(self, hosts: list[str]) -> None:
        self._log.say(Event.SESSIONS_EXPIRED, hosts=", ".join(sorted(set(hosts))))

    def on_clock_set(self, seconds: float) -> None:
        self._log.say(Event.CLOCK_SET, seconds=round(seconds, 1))

    def on_gauges(self, rows: list[Row]) -> None:
        self._metrics.backlog((q, state, jobs, age) for q, state, jobs, age in rows)
        due = [(jobs, age or 0.0) for _, state, jobs, age in rows if state == State.QUEUED]
        oldest = max((age for _, age in due), default=0.0)
        self._condition.backlog = (sum(jobs for jobs, _ in due), oldest)

    def on_unrunnable(self, rows: list[Row]) -> None:
        self._metrics.unrunnable(sum(row[3] for row in rows))
        waiting = {(row[0], row[1]): row for row in rows}
        for kind, (type_, version, _, jobs, because) in waiting.items():
            if kind not in self._unrunnable:
                self._log.say(
                    Event.UNRUNNABLE, type=type_, version=version, jobs=jobs, because=because
                )
        self._unrunnable = frozenset(waiting)

    def on_oldest_transaction(self, seconds: float) -> None:
        self._metrics.oldest_transaction(seconds)

    def on_places_mended(self, places: int) -> None:
        self._log.say(Event.PLACES_MENDED, places=places)
        self._metrics.places_mended(places)

    def on_limits(self, rows: list[Row]) -> None:
        self._metrics.limits(rows)

    def on_paused(self, queues: list[str]) -> None:
        self._metrics.paused(queues)

    def on_stuck(self, jobs: int) -> None:
        self._metrics.stuck(jobs)

    def on_tables(self, rows: list[Row]) -> None:
        self._metrics.tables((name, octets, dead) for name, octets, dead in rows)

    def on_enqueued(self, rows: Iterable[tuple[str, str, int, bool]]) -> None:
        self._metrics.enqueued(rows)

    def on_crons(self, late: Mapping[str, float]) -> None:
        self._metrics.crons(late)

    def on_fired(self, name: str, result: str, times: int, lag: float | None) -> None:
        self._metrics.cron_fired(name, result, times, lag)
        event = {FIRED: Event.CRON_FIRED, MISSED: Event.CRON_MISSED}.get(result, Event.CRON_SKIPPED)
        self._log.say(event, name=name, times=times, lag=lag)

    def on_cron_failed(self, name: str, error: BaseException) -> None:
        self._log.say(Event.CRON_FAILED, name=name, error=first_line(error))
