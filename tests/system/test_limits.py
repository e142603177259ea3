"""Limits on real hosts: what the jobs call is not called more than it can take, whatever dies."""

from __future__ import annotations

from time import monotonic
from typing import Any

from tests.system.host import Hosts, Jobs
from tests.system.times import noted
from tests.waiting import until

LIMITED: dict[str, Any] = {"app": "limited"}
QUICK = ("--slots", "4", "--lease", "4s")


def most_at_once(spans: list[tuple[int, float, float]]) -> int:
    events = sorted([(began, 1) for _, began, _ in spans] + [(end, -1) for _, _, end in spans])
    now = most = 0
    for _, step in events:
        now += step
        most = max(most, now)
    return most


def set_limit(jobs: Jobs, key: str, **options: Any) -> None:
    words = "".join(f", {name} => %({name})s" for name in options)
    jobs.connection.execute(
        f"SELECT jobctl.set_limit(%(key)s{words})".encode(), {"key": key, **options}
    )


def all_done(jobs: Jobs) -> bool:
    row = jobs.connection.execute("SELECT count(*) AS n FROM jobctl.job").fetchone()
    assert row is not None
    return bool(row["n"] == 0)


def no_place_is_held(jobs: Jobs) -> None:
    assert jobs.connection.execute("SELECT * FROM jobctl.place").fetchall() == []
    assert jobs.connection.execute("SELECT * FROM jobctl.blocked").fetchall() == []
    jobs.nothing_is_misplaced()


def test_two_hosts_keep_a_limit_while_one_is_killed(hosts: Hosts, jobs: Jobs) -> None:
    """Eight slots, two places: never three at once; the places of a host that died come back."""
    set_limit(jobs, "partner", max_running=2)
    one, other = (hosts.start(name, *QUICK, **LIMITED).ready() for name in ("one", "other"))
    for _ in range(40):
        jobs.enqueue("call_partner", {"seconds": 0.1}, max_attempts=20)
    until(lambda: len(noted(hosts.folder)) > 6, what="some of them to have run")
    one.kill()
    until(lambda: all_done(jobs), within=60, what="all of them to end")
    spans = noted(hosts.folder)
    assert len({job for job, _, _ in spans}) == 40
    assert most_at_once(spans) == 2
    until(lambda: not jobs.connection.execute("SELECT FROM jobctl.place").fetchall(), what="places")
    no_place_is_held(jobs)
    assert other.stop() == 0


def test_a_limit_holds_up_nobody_else(hosts: Hosts, jobs: Jobs) -> None:
    """A thousand of a stopped key are ahead, and a job without a limit runs at once."""
    set_limit(jobs, "partner", max_running=0)
    jobs.connection.execute(
        "SELECT count(jobctl.enqueue('call_partner', limit_key => 'partner'))"
        " FROM generate_series(1, 1000)"
    )
    hosts.start("one", *QUICK, **LIMITED).ready()
    free = jobs.enqueue("call_partner", limit_key="another")
    jobs.wait(free, "succeeded")
    assert len(noted(hosts.folder)) == 1
    set_limit(jobs, "partner", max_running=3)
    until(lambda: all_done(jobs), within=60, what="the thousand")
    no_place_is_held(jobs)


def test_a_rate_is_kept_by_two_hosts(hosts: Hosts, jobs: Jobs) -> None:
    """Forty jobs at twenty a second take two seconds, whoever runs them; none is lost."""
    set_limit(jobs, "partner", per_seconds=0.05)
    for name in ("one", "two"):
        hosts.start(name, *QUICK, **LIMITED).ready()
    for _ in range(40):
        jobs.enqueue("call_partner")
    until(lambda: all_done(jobs), within=60, what="all of them to end")
    begins = sorted(began for _, began, _ in noted(hosts.folder))
    assert len(begins) == 40
    assert begins[-1] - begins[0] > 0.9 * 39 * 0.05
    # In no second more than rate and burst allow, and what late wake-ups of a busy machine add.
    assert max(sum(at <= other < at + 1 for other in begins) for at in begins) <= 25
    no_place_is_held(jobs)


def test_one_that_is_told_to_come_back_holds_all_of_its_key(hosts: Hosts, jobs: Jobs) -> None:
    """The partner has said 429: nobody calls it before the time that it named."""
    set_limit(jobs, "partner", max_running=1)
    hosts.start("one", *QUICK, **LIMITED).ready()
    told = jobs.enqueue("too_many_requests")
    until(lambda: jobs.job(told)["state"] in ("retrying", "blocked"), what="the first to be told")
    at = monotonic()
    others = [jobs.enqueue("call_partner") for _ in range(3)]
    for job in (*others, told):
        jobs.wait(job, "succeeded")
    begins = [began for _, began, _ in noted(hosts.folder)]
    assert min(begins) > at + 1
    no_place_is_held(jobs)


def test_the_leader_counts_limits_by_rule(hosts: Hosts, jobs: Jobs) -> None:
    """One label for all tenants; who waits, how long, and who holds."""
    set_limit(jobs, "tenant:*", max_running=0)
    for tenant in range(3):
        jobs.enqueue("call_partner", limit_key=f"tenant:{tenant}")
    host = hosts.start("one", *QUICK, **LIMITED).ready()
    wanted = 'jobctl_limit_waiting_jobs{limit="tenant:*"} 3.0'
    until(lambda: wanted in host.get("/metrics")[1], within=40, what="the gauge")
    assert 'jobctl_limit_places{limit="tenant:*"} 0.0' in host.get("/metrics")[1]
