"""Jobs that behave badly beside jobs that do not: what it costs those."""

from __future__ import annotations

import re

from tests.system.host import Hosts, Jobs
from tests.waiting import until


def test_jobs_that_flood_hang_crash_and_eat_beside_jobs_that_do_not(
    hosts: Hosts, jobs: Jobs
) -> None:
    """No bystander loses an attempt or its process, the lease is kept, the supervisor's loop turns,
    and small jobs go on beside it all."""
    host = hosts.start("one", "--slots", "6", "--lease", "5s", app="rough").ready()
    patient = [jobs.enqueue("hold", {"name": f"patient-{number}"}) for number in range(2)]
    for number in range(2):
        until((hosts.folder / f"patient-{number}").exists, what="the bystanders")
    bystanders = {int((hosts.folder / f"patient-{n}").read_text().split()[2]) for n in range(2)}
    rough = {
        jobs.enqueue("flood", {"seconds": 4}): "succeeded",
        jobs.enqueue("hang_in_c", {"name": "hung"}): "dead",
        jobs.enqueue("eat", {"name": "eater"}): "dead",
        jobs.enqueue("poison", {"name": "poison"}): "dead",
    }
    small = []
    while any(jobs.job(job)["state"] not in ("succeeded", "dead") for job in rough):
        small.append(jobs.enqueue("nothing"))
        assert jobs.wait(small[-1], "succeeded", within=10)["attempt"] == 1
    for job, state in rough.items():
        assert jobs.job(job)["state"] == state
    assert len(small) > 20
    assert bystanders <= set(host.slots().values())
    for number, job in enumerate(patient):
        (hosts.folder / f"patient-{number}.go").touch()
        assert jobs.wait(job, "succeeded")["attempt"] == 1
    hurt = [job for job in (*patient, *small) if jobs.attempts(job)]
    assert hurt == []
    for event in ("lease_over", "session_lost", "claim_lost", "part_failed"):
        assert host.said(event) == [], event
    lag = re.search(r"^jobctl_loop_lag_seconds (\S+)$", host.get("/metrics")[1], re.MULTILINE)
    assert lag is not None and float(lag[1]) < 1.0
    jobs.nothing_is_misplaced()
