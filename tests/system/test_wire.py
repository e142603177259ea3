"""The wire between a host and its database breaks in the middle of a claim."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.claiming import connect
from tests.proxy import Proxy, Wire
from tests.system.host import Host, Hosts, Jobs
from tests.waiting import until

CONNECTIONS = "SELECT FROM pg_stat_activity WHERE application_name = 'jobctl one claim'"

# Whoever inserts a claim waits until the gate is opened; no lock_timeout ends that.
GATE = """
    CREATE SEQUENCE public.gate;
    CREATE FUNCTION public.wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        WHILE (SELECT last_value FROM public.gate) = 1 LOOP
            PERFORM pg_sleep(0.01);
        END LOOP;
        RETURN NEW;
    END $$;
    CREATE TRIGGER gate BEFORE INSERT ON claim
        FOR EACH STATEMENT EXECUTE FUNCTION public.wait_at_the_gate();
"""
NO_GATE = """
    DROP TRIGGER IF EXISTS gate ON claim;
    DROP FUNCTION IF EXISTS public.wait_at_the_gate();
    DROP SEQUENCE IF EXISTS public.gate;
"""


@contextmanager
def a_claim_that_waits(proxy: Proxy, folder: Path, jobs: Jobs) -> Iterator[Host]:
    """A host whose claim is at work in PostgreSQL until the block ends; the job must run then."""
    hosts = Hosts(proxy.dsn, folder)
    with connect(jobs.connection.info.dsn, {}) as gate:
        try:
            host = hosts.start("one", "--slots", "2").ready()
            jobs.wait(jobs.enqueue("add", {"a": 1, "b": 1}), "succeeded")
            gate.execute(GATE, prepare=False)
            job = jobs.enqueue("add", {"a": 1, "b": 1})
            until(lambda: _rows(jobs, f"{CONNECTIONS} AND wait_event = 'PgSleep'"), what="a claim")
            yield host
            gate.execute("SELECT setval('public.gate', 2)")
            until(lambda: _rows(jobs, "SELECT FROM jobctl.claim"), what="its commit")
            if proxy.wire is not Wire.WORKS:
                proxy.wire = Wire.WORKS
                proxy.cut()
            assert jobs.wait(job, "succeeded", within=40)["attempt"] == 1
            assert host.said("claims_disowned")
            assert _rows(jobs, "SELECT FROM jobctl.attempt") == []
            jobs.nothing_is_misplaced()
        finally:
            hosts.end()
            gate.execute(NO_GATE, prepare=False)


def test_the_answer_of_a_claim_is_lost(database: str, tmp_path: Path, jobs: Jobs) -> None:
    """PostgreSQL has committed it and the host has not heard: the job goes back and runs, and has
    lost no attempt."""
    with Proxy.to(database) as proxy, a_claim_that_waits(proxy, tmp_path, jobs):
        proxy.wire = Wire.DEAF


@pytest.mark.slow
def test_a_claim_is_committed_after_its_connection_was_lost(
    database: str, tmp_path: Path, jobs: Jobs
) -> None:
    """It was waiting while the host reconnected and asked what it holds: the host asks again when
    nothing of the old connection can be at work any more, and finds it."""
    with Proxy.to(database) as proxy, a_claim_that_waits(proxy, tmp_path, jobs) as host:
        proxy.cut()
        claims = f"{CONNECTIONS} AND query LIKE '%FROM ready%'"
        until(lambda: len(_rows(jobs, claims)) == 2, what="the host to be back, and to go on")
        assert host.said("claims_disowned") == []


def _rows(jobs: Jobs, query: str) -> list[dict[str, Any]]:
    return jobs.connection.execute(query.encode()).fetchall()
