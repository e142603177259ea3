"""A bank that was away: what died of it is one error, and is run again when it is back."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.system.host import PROGRAM, Hosts, Jobs
from tests.waiting import until


def jobctl(dsn: str, *words: object) -> Any:
    """What a command prints as JSON."""
    ran = subprocess.run(
        [*PROGRAM, *map(str, words), "--json"],
        env={**os.environ, "JOBCTL_DSN": dsn},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_bank_that_was_away(hosts: Hosts, jobs: Jobs, tmp_path: Path) -> None:
    """Its class has a backoff of its own; the dead are two errors; each is dealt with at once."""
    host = hosts.start("a", "--slots", "2", app="bank").ready()
    cards = [jobs.enqueue("charge", {"card": n}) for n in range(5)]
    letters = [jobs.enqueue("welcome", {"customer": name}) for name in ("Zoë", "Søren")]
    for job_id in cards + letters:
        jobs.wait(job_id, "dead", within=60)
    # Not the hour of its type, and not a third attempt.
    assert {jobs.job(job_id)["attempt"] for job_id in cards} == {2}

    first, second = jobctl(hosts.dsn, "dead", "list", "--group")
    assert (first["jobs"], second["jobs"]) == (5, 2)
    assert first["message"] == "bank.example:# refused card '…' after # s"
    assert first["frame"] == "apps/bank.py in pay"
    assert first["types"] == ["charge"]
    assert sorted(first["samples"]) == cards
    assert (second["error_class"], second["error_code"]) == ("Permanent", "TEMPLATE_MISSING")
    (one, *_) = jobctl(hosts.dsn, "dead", "list", "--error-group", first["group"])
    assert one["link"] == f"https://admin.example/cards/{one['args']['card']}"
    assert one["first_failed_at"] < one["last_failed_at"]

    (tmp_path / "bank-is-back").touch()
    replayed = jobctl(
        hosts.dsn, "dead", "replay", "--error-group", first["group"], "--yes", "--rate", "20/s",
        "--reason", "the bank is back",
    )  # fmt: skip
    assert sorted(replayed["queued"]) == cards
    for job_id in cards:
        jobs.wait(job_id, "succeeded", within=60)
        assert len(jobs.attempts(job_id)) == 2  # those of before are kept

    jobctl(hosts.dsn, "dead", "replay", letters[0], "--set", "customer=Zoe")
    jobs.wait(letters[0], "succeeded", within=60)
    jobctl(hosts.dsn, "dead", "discard", letters[1], "--reason", "asked not to be written to")
    assert jobs.job(letters[1])["state"] == "discarded"
    assert jobctl(hosts.dsn, "dead", "list", "--group") == []
    jobs.nothing_is_misplaced()
    assert host.stop() == 0


def test_when_a_server_wants_to_be_asked_again(hosts: Hosts, jobs: Jobs) -> None:
    """A header's seconds, its date, and what is past, as the next attempt's time."""
    hosts.start("a", "--slots", "2", app="bank").ready()
    wanted = {
        "120": 120.0,
        "Sun, 06 Nov 1994 09:49:37 GMT": 3600.0,
        "9" * 40: 30 * 86_400.0,
    }
    made = {said: jobs.enqueue("poll", {"said": said}) for said in wanted}
    past = jobs.enqueue("poll", {"said": "Sat, 05 Nov 1994 08:49:37 GMT"})
    for said, job_id in made.items():
        job = jobs.wait(job_id, "retrying", within=60)
        wait = (job["run_at"] - job["last_failed_at"]).total_seconds()
        assert abs(wait - wanted[said]) < 1.0
    assert "cut to 30 days" in jobs.job(made["9" * 40])["last_error"]
    jobs.wait(past, "dead", within=60)
    until(lambda: len(jobs.attempts(past)) == 2, what="both attempts of what was past")
