"""Lines of output on their way into the log: what was printed and what was logged, as that."""

from __future__ import annotations

from jobctl.supervisor import app_records
from jobctl.supervisor.app_records import AppRecord
from jobctl.supervisor.claimed import Claimed
from jobctl.supervisor.events import Event
from jobctl.supervisor.log import Log
from jobctl.supervisor.slot import Slot


class Relay:
    """Passes them on, each with the job that has written it."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def pass_on(self, slot: Slot | None, job_id: int | None, line: str) -> None:
        """A line of a slot, or of the template (None), while it ran this job (None: none)."""
        printed, record = app_records.split(line)
        if printed or record is None:
            number = None if slot is None else slot.number
            self._log.say(Event.OUTPUT, slot=number, job=job_id, line=printed)
        if record is not None:
            self._logged(slot, job_id, record)

    def _logged(self, slot: Slot | None, job_id: int | None, record: AppRecord) -> None:
        running = None if slot is None else slot.running
        claim = None if running is None else running.claim
        if not isinstance(claim, Claimed) or claim.job_id != job_id:
            claim = None  # it has ended, and the slot runs another by now
        self._log.pass_on(
            Event.LOGGED, record.level, slot=slot and slot.number, job=job_id,
            type=claim and claim.type, attempt=claim and claim.attempt + 1,
            logger=record.logger, extra=record.extra, line=record.message,
        )  # fmt: skip
