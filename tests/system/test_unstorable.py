"""What cannot be kept, printed or run: each ends in a row that a person can read, alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jobctl.store.migrate import migrate
from jobctl.store.statements import sql
from jobctl.supervisor.dispatch import LARGEST_ARGS
from tests.system.apps.awkward_things import ERRORS, RESULTS
from tests.system.host import Host, Hosts, Jobs, jobs_of
from tests.waiting import until


def test_results_and_errors_that_resist_being_kept(hosts: Hosts, jobs: Jobs) -> None:
    """Not-a-number, NUL, half characters, circles, depth, 64 MiB; errors that raise, exit or lie
    while they are printed: every one ends as dead with words, and no slot dies of it."""
    host = hosts.start("one", "--slots", "2", app="rough").ready()
    plain = {case: jobs.enqueue("awkward", {"case": case}) for case in [*RESULTS, *ERRORS]}
    between = [jobs.enqueue("nothing") for _ in range(20)]
    for case, job in plain.items():
        row = jobs.wait(job, "dead", within=60)
        assert row["attempt"] == 1, case
        assert row["failure_class"], case
        (attempt,) = jobs.attempts(job)
        assert attempt["outcome"] == "failed", (case, attempt)
        assert attempt["error_class"] and attempt["error"] is not None, case
        assert (row["failure_class"] == "unstorable_result") == (case in RESULTS), case
        for column in ("error", "stack", "error_class", "error_code"):
            assert len(attempt[column] or "") <= 16 * 1024, (case, column)
    for job in between:
        jobs.wait(job, "succeeded")
    assert host.said("slot_died") == []
    assert host.said("row_unstorable") == []
    jobs.nothing_is_misplaced()


#: Rows as only raw SQL could write them, and which constraint refuses each.
REFUSED = {
    "type": ("repeat('t', 100000)", "names_are_short"),
    "queue": ("repeat('q', 100000)", "names_are_short"),
    "key": ("repeat('k', 100000)", "names_are_short"),
    "subject": ("repeat('s', 5000)", "names_are_short"),
    "timeout_seconds": ("'NaN'", "timeout_is_a_time"),
    "max_attempts": ("0", "budget_is_positive"),
    "schema_version": ("-1", "version_is_not_negative"),
    "attempt": ("2147483647", "counts_have_room"),
    "crashes": ("2147483647", "counts_have_room"),
    "created_at": ("'infinity'", "moments_are_dates"),
    "first_started_at": ("'-infinity'", "moments_are_dates"),
    "run_at": ("'infinity'", "run_at_is_a_date"),
    "args": ("'[]'", "args_are_an_object"),
}
_COLUMNS = {
    "type": "'size_of'", "queue": "'default'", "priority": "0", "args": "'{}'",
    "schema_version": "1", "run_at": "now()",
}  # fmt: skip


@pytest.mark.parametrize("column", REFUSED)
def test_the_schema_refuses_rows_that_would_spoil_a_batch(jobs: Jobs, column: str) -> None:
    """Whoever writes them learns it at once."""
    value, constraint = REFUSED[column]
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        insert(jobs, {column: value})
    assert refused.value.diag.constraint_name == constraint


@pytest.fixture
def unguarded_schema(fresh_database: str) -> str:
    """A migrated database whose table of jobs takes every row."""
    migrate(fresh_database)
    with psycopg.connect(fresh_database, autocommit=True) as connection:
        for (name,) in connection.execute(
            "SELECT conname FROM pg_constraint WHERE conrelid = 'jobctl.job'::regclass"
            " AND contype = 'c'"
        ).fetchall():
            connection.execute(f'ALTER TABLE jobctl.job DROP CONSTRAINT "{name}"')
    return fresh_database


@pytest.fixture
def poisoned(unguarded_schema: str, tmp_path: Path) -> Iterator[tuple[Hosts, Jobs]]:
    hosts = Hosts(unguarded_schema, tmp_path)
    try:
        with jobs_of(unguarded_schema) as jobs:
            yield hosts, jobs
    finally:
        hosts.end()


def _reads_nested(deep: int) -> bool:
    try:
        json.loads('{"a":' * deep + "1" + "}" * deep)
    except RecursionError:
        return False
    return True


#: What else raw SQL may do to a row, and how such a job ends.
POISON: dict[str, tuple[dict[str, str], str, str]] = {
    # Whether that is too deep is Python's affair: 3.13 reads it.
    "nested 3000 deep": (
        {"args": """(repeat('{"a":', 3000) || '1' || repeat('}', 3000))::jsonb"""},
        *(("succeeded", "") if _reads_nested(3000) else ("dead", "RecursionError")),
    ),
    "a payload of 5 MB": (
        {"args": "jsonb_build_object('text', repeat('x', 5000000))"}, "succeeded", "",
    ),
    "a payload of 20 MB": (
        {"args": "jsonb_build_object('text', repeat('x', 20000000))"}, "dead", "UngivableJob",
    ),
    "an endless type": ({"type": "repeat('t', 100000)"}, "queued", ""),
    "an endless key": ({"key": "repeat('k', 100000)"}, "dead", "UngivableJob"),
    "an endless subject": ({"subject": "repeat('s', 40000)"}, "dead", "UngivableJob"),
    "no time at all": ({"timeout_seconds": "-5"}, "dead", "UngivableJob"),
    "time that is no number": ({"timeout_seconds": "'NaN'"}, "dead", "UngivableJob"),
    "more time than there is": ({"timeout_seconds": "1e300"}, "dead", "UngivableJob"),
    "no attempts": ({"max_attempts": "-5"}, "dead", "UngivableJob"),
    "a negative version": ({"schema_version": "-5"}, "dead", "UngivableJob"),
    "the last attempt": ({"attempt": "2147483647"}, "succeeded", ""),
    "the last attempt, failing": (
        {"attempt": "2147483647", "type": "'awkward'", "args": """'{"case": "error nul"}'"""},
        "dead", "ValueError",
    ),
    "the last crash": (
        {"crashes": "2147483647", "type": "'die'", "args": """'{"how": "exit 7"}'"""},
        "dead", "crash",
    ),
    "due before history": ({"run_at": "'0044-03-15 BC'"}, "succeeded", ""),
    "due long ago": ({"run_at": "'1970-01-01Z'"}, "succeeded", ""),
    "made before history": ({"created_at": "'0044-03-15 BC'"}, "succeeded", ""),
}  # fmt: skip


def test_one_poison_row_and_its_neighbours(poisoned: tuple[Hosts, Jobs]) -> None:
    """Rows that no enqueue would write, in one batch with good ones: each ends by itself, in plain
    words, and the claims, settles and promotions of the others go on."""
    hosts, jobs = poisoned
    rows = {}
    with jobs.connection.transaction():
        good = []
        for name, (columns, _, _) in POISON.items():
            rows[name] = insert(jobs, columns)
            good.append(jobs.enqueue("nothing"))
            good.append(jobs.enqueue("nothing", delay="100 milliseconds"))
    host = hosts.start("one", "--slots", "2", app="rough").ready()
    for job in good:
        jobs.wait(job, "succeeded")
    for name, (_, state, failure) in POISON.items():
        row = until(lambda: stands(jobs, rows[name], state), within=30, what=name)  # noqa: B023
        assert row is not None
        assert (row["failure_class"] or "") == failure, name
        if state == "dead":
            assert row["last_error"], name
    assert host.process.poll() is None
    assert host.said("part_failed") == []
    jobs.nothing_is_misplaced()
    jobs.wait(jobs.enqueue("nothing"), "succeeded")


def test_a_job_whose_end_cannot_be_written(poisoned: tuple[Hosts, Jobs]) -> None:
    """PostgreSQL refuses its row whatever it says: it stays a claim in plain sight, and what ends
    in the same batch is written."""
    hosts, jobs = poisoned
    host = hosts.start("one", "--slots", "3", app="rough").ready()
    assert ends_beside_a_cursed_one(host, hosts, jobs)
    assert host.said("row_unstorable")
    assert jobs.wait(jobs.enqueue("nothing"), "succeeded")
    host.kill()  # it would try for as long as a stop may take


def test_without_the_guards_one_row_stops_everybody(poisoned: tuple[Hosts, Jobs]) -> None:
    """The negative controls: a row that cannot be given ends the supervisor, and one that cannot
    be settled takes its batch along."""
    hosts, jobs = poisoned
    insert(jobs, {"key": "repeat('k', 100000)"})
    host = hosts.start("one", "--slots", "1", app="rough", without="poison row")
    until(lambda: host.process.poll() is not None, within=30, what="its end")
    assert host.said("part_failed")
    jobs.connection.execute("DELETE FROM jobctl.claim")
    jobs.connection.execute("DELETE FROM jobctl.ready")
    host = hosts.start("two", "--slots", "3", app="rough", without="settle apart").ready()
    assert not ends_beside_a_cursed_one(host, hosts, jobs)
    host.kill()  # it would try for as long as it may


def ends_beside_a_cursed_one(host: Host, hosts: Hosts, jobs: Jobs) -> bool:
    """Whether a good job's end is written although one that ends beside it cannot be."""
    cursed, good = (jobs.enqueue("hold", {"name": name}) for name in ("cursed", "good"))
    for name in ("cursed", "good"):
        until((hosts.folder / name).exists, what=name)
    jobs.connection.execute(
        "CREATE FUNCTION jobctl.curse() RETURNS trigger LANGUAGE plpgsql AS $$"
        f"BEGIN IF old.id = {cursed} THEN RAISE check_violation USING CONSTRAINT = 'cursed';"
        " END IF; RETURN old; END $$"
    )
    jobs.connection.execute(
        "CREATE TRIGGER curse BEFORE UPDATE OR DELETE ON jobctl.job"
        " FOR EACH ROW EXECUTE FUNCTION jobctl.curse()"
    )
    (hosts.folder / "cursed.go").touch()
    until(lambda: host.said("row_unstorable") or host.said("database_refused"), what="a refusal")
    (hosts.folder / "good.go").touch()
    try:
        jobs.wait(good, "succeeded", within=5)
    except AssertionError:
        return False
    assert jobs.job(cursed)["state"] == "running"
    return True


def stands(jobs: Jobs, job: int, state: str) -> dict[str, Any] | None:
    """What people see of it, if it is in this state; without its arguments, which Python cannot
    always read."""
    return jobs.connection.execute(
        "SELECT failure_class, last_error FROM jobctl.jobs WHERE id = %s AND state = %s",
        (job, state),
    ).fetchone()


def insert(jobs: Jobs, columns: dict[str, str]) -> int:
    """A job written by hand, ready."""
    row = {**_COLUMNS, **columns}
    inserted = jobs.connection.execute(
        f"WITH born AS (INSERT INTO jobctl.job ({', '.join(row)})"  # noqa: S608 - by a test
        f" VALUES ({', '.join(row.values())})"
        " RETURNING id, queue, priority), placed AS (INSERT INTO jobctl.ready (queue, priority,"
        " job_id) SELECT queue, priority, id FROM born), seen AS (INSERT INTO jobctl.queue_seen"
        " (name) SELECT left(queue, 100) FROM born) SELECT id FROM born"
    ).fetchone()
    assert inserted is not None
    return int(inserted["id"])


def test_what_a_claim_leaves_out_is_what_no_frame_carries() -> None:
    """The number stands in the statement as well as in the code."""
    assert f"octet_length(args) > {LARGEST_ARGS} " in sql("claim")


def test_the_corpus_is_what_it_says() -> None:
    """None of the results can be written as plain JSON that PostgreSQL takes."""
    for name, make in RESULTS.items():
        if name.endswith(("huge", "wide")):
            continue
        with pytest.raises((ValueError, TypeError, RecursionError, AssertionError, RuntimeError)):
            text = json.dumps(make(), allow_nan=False)
            assert "\\u0000" not in text and "\\ud" not in text
            assert name not in ("result int keys", "result huge number")
