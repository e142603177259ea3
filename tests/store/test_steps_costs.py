"""What letting go costs: the same whatever else waits, whenever it was planned."""

from __future__ import annotations

import json
from statistics import median

import pytest

from tests.claiming import Connection, claim, connect, register, run, succeed
from tests.store.measuring import Pages

SESSION = 7
WAITING = 20_000


def wait_for_ever(connection: Connection, many: int) -> None:
    """So many that come after one job that is never claimed."""
    (parent,) = connection.execute("SELECT enqueue('t', queue => 'never')").fetchone() or (0,)
    for _ in range(many // 1000):
        connection.execute(
            "SELECT count(*) FROM enqueue_many((SELECT jsonb_agg(jsonb_build_object("
            "'type', 't', 'after', jsonb_build_array(%s::bigint))) FROM generate_series(1, 1000)))",
            (parent,),
        )


def release(host: Connection, producer: Connection, pages: Pages) -> float:
    """Pages that the end of a parent of one child touches."""
    pair = json.dumps([{"type": "t"}, {"type": "t", "after": [{"item": 1}]}])
    producer.execute("SELECT enqueue_many(%s::jsonb)", (pair,))
    lanes = [("default", 0, "")]
    held = claim(host, SESSION, 1, lanes)
    before = pages.touched()
    assert len(succeed(host, held)) == 1
    cost = pages.touched() - before
    succeed(host, claim(host, SESSION, 1, lanes))
    return cost


@pytest.mark.parametrize("analysed", [False, True])
def test_a_release_costs_the_same_whatever_waits(database: str, analysed: bool) -> None:
    """Twenty thousand others wait, and plans are those of empty tables, or of now."""
    with connect(database) as host, connect(database, {}) as producer:
        if host.info.server_version < 150_000:
            pytest.skip("PostgreSQL 14 cannot be told to count at once")
        register(host, SESSION, lease=3600.0)
        producer.execute("ANALYZE blocked, job_edge, job, ready, history")
        pages = Pages(host, producer)
        before = median(release(host, producer, pages) for _ in range(10))
        wait_for_ever(producer, WAITING)
        if analysed:
            producer.execute("ANALYZE blocked, job_edge, job, ready, history")
        after = median(release(host, producer, pages) for _ in range(10))
        with connect(database) as new:
            newly = median(release(new, producer, Pages(new, producer)) for _ in range(10))
        # An index may have grown by a level, and some are asked several times.
        assert max(after, newly) < before * 1.5 + 30, (before, after, newly)
        sweep = pages.touched()
        run(host, "sweep_children", since=0, most=1000)
        assert pages.touched() - sweep < 1000 * 15
