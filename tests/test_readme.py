"""README.md tells the truth: its tables are the code's, its examples run, what it names exists.

What is derived is compared with what makes it (`tests/derived.py`); what is written by hand is
held against the code where a test can.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import jobctl
from jobctl.store import cron_spec, grants, json_values, migrate, texts
from jobctl.store.reading import LARGEST_COUNT
from jobctl.store.rights import USUAL_NAMES, Kind
from jobctl.supervisor import (
    cron,
    dispatch,
    doorbell,
    duties,
    lanes,
    leases,
    misfires,
    outcomes,
    settings,
    signals,
)
from tests import derived
from tests.mentions import HERE, blocks, commands, spans, unknown_commands, unknown_targets

README = (HERE / "README.md").read_text()
DEPLOYING = derived.DEPLOYING.read_text()
CHANGELOG = (HERE / "CHANGELOG.md").read_text()


def _section(title: str) -> str:
    """What stands under a heading, down to the next of its kind."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.M | re.S)
    assert found, title
    return found[1]


# What is derived --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", derived.DERIVED)
def test_a_derived_table_is_what_the_code_says(name: str) -> None:
    """If not: python -m tests.derived."""
    assert derived.parts(README + DEPLOYING).get(name) == derived.DERIVED[name]()


def test_every_derived_part_is_known() -> None:
    """A part with a misspelt name would never be compared."""
    assert derived.parts(README + DEPLOYING).keys() == derived.DERIVED.keys()


# What it names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [README, CHANGELOG, DEPLOYING], ids=["README", "CHANGELOG", "deploy"]
)
def test_every_command_exists(text: str) -> None:
    """With its options."""
    typed = list(commands(text))
    assert unknown_commands(typed) == []
    assert unknown_targets(typed) == []


def test_a_command_that_does_not_exist_is_found() -> None:
    """The guard of the tests above."""
    lines = ["jobctl jobs lst", "jobctl drain --al", "jobctl status", "jobctl.jobs", "make tea"]
    assert unknown_commands(lines) == ["jobctl jobs lst", "jobctl drain --al"]
    assert unknown_targets(lines) == ["make tea"]


def test_every_file_exists() -> None:
    """Whatever looks like a path from the top of the repository."""
    tops = {path.name for path in HERE.iterdir()}
    paths = [
        span
        for span in spans(README)
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", span)
        and (span.split("/")[0] in tops or re.search(r"\.(md|py|sql|service|json|yaml)$", span))
    ]
    assert len(paths) > 8
    assert [path for path in paths if not (HERE / path).exists()] == []


def test_every_link_leads_to_a_heading() -> None:
    """As GitHub makes anchors of headings."""
    headings = re.findall(r"^#+ (.*)$", README, re.M)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", README)) <= anchors


def test_the_map_is_the_repository() -> None:
    """Every folder at the top is on it; what it says of their insides is there."""
    (drawn,) = blocks(_section("The repository"), "text")
    found = dict(re.findall(r"^(\S+)/ +(.*)$", drawn, re.M))
    assert {folder.split("/")[0] for folder in found} == _tracked_folders("")
    for folder, words in found.items():
        for inside in re.findall(r"(?<![\w/])([\w-]+/|\w+\.py)", words):
            assert (HERE / folder / inside).exists(), f"{folder}/{inside}"
    assert set(re.findall(r"(\w+)/", found["tests"])) == _tracked_folders("tests/")


def _tracked_folders(below: str) -> set[str]:
    if not (HERE / ".git").exists():
        pytest.skip("not a git working copy")
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={HERE}", "ls-files", f"{below}*"],
        cwd=HERE, capture_output=True, text=True, check=True,
    )  # fmt: skip
    inside = [path.removeprefix(below) for path in listed.stdout.splitlines()]
    return {path.split("/")[0] for path in inside if "/" in path}


def test_the_settings_that_it_speaks_of_exist() -> None:
    """Names in backticks that look like ours."""
    named = set(spans(README))
    known = {setting.environment for setting in settings.TABLE.values()}
    known.add("JOBCTL_MAX_ARGS_BYTES")  # of whoever enqueues, not of the supervisor
    known.add("JOBCTL_TEST_DSN")  # of an application's own tests
    for span in named:
        if span.startswith("JOBCTL_"):
            assert span in known, span
    for name in ("lease", "drain_timeout", "history_keep", "metrics_listen", "queues", "host"):
        assert name in named and name in settings.TABLE


# What it claims ---------------------------------------------------------------------------------


def test_numbers_in_the_prose_are_the_codes() -> None:
    """A constant that changes takes its sentence with it."""
    text = " ".join(README.split())
    margin = leases.LARGEST_MARGIN
    claims = {
        f"kills what runs {margin:g} seconds before the lease is over": True,
        f"a third of a lease that is shorter than {margin * 3:g} seconds": True,
        "within the last minute always fires": misfires.TOLERANCE.total_seconds() == 60,
        f"declared for {cron.RETIRE_SECONDS / 60:g} minutes": True,
        f"at most `misfire_limit` ({cron_spec.MISFIRE_LIMIT})": True,
        "(`lease`, 1 minute)": settings.TABLE["lease"].default({}) == 60,
        f"after `max_crashes` ({outcomes.UNREGISTERED.max_crashes})": True,
        f"after the lease and {duties.GRACE_SECONDS:g} seconds more": True,
        f"within {dispatch.MOMENT_SECONDS:g} seconds goes back": True,
        "one claimed job in eight": lanes.TURN_OF_THE_LOWER == 8,
        f"at most every {doorbell.RING_SPACING_SECONDS * 1000:g} milliseconds": True,
        "polls about once a second": doorbell.POLL_SECONDS == 1,
        "once a minute a look starts from the beginning": doorbell.WHOLE_SECONDS == 60,
        "JSON of at most 64 KiB": json_values.MAX_ARGS_BYTES
        == json_values.MAX_RESULT_BYTES
        == 65536,
        f"up to {texts.TEXT_LIMIT // 1024} KiB each": True,
        f"PostgreSQL {migrate._OLDEST_SERVER // 10_000} or newer": True,
        "within half a second": signals.SAME_PRESS_SECONDS == 0.5,
        f"Counts in `jobctl status` and the metrics stop at {LARGEST_COUNT:,}": LARGEST_COUNT
        == duties.LARGEST_COUNT,
        "the last fifth is chance": True,
    }
    for words, holds in claims.items():
        assert words in text, words
        assert holds, words


def test_what_it_says_is_not_there_is_not_there() -> None:
    """Whoever builds one of these has to take it off the list."""
    missing = _section("Limits, and what it does not do").split("not there yet:")[1]
    named = set(spans(missing))
    public = {f"jobctl.{name}" for name in jobctl.__all__}
    context = {f"ctx.{name}" for name in dir(jobctl.Context)}
    options = set(inspect.signature(jobctl.job).parameters)
    assert named & (public | context | options) == set()


# What it shows ----------------------------------------------------------------------------------


def test_the_shown_job_is_the_shops() -> None:
    """The first example is a quotation."""
    shop = (HERE / "examples" / "shop" / "jobs.py").read_text()
    first, *_ = blocks(README, "python")
    assert _function(first, "send_invoice_email") == _function(shop, "send_invoice_email")
    shown = re.search(r"line (\d+) in render_thumbnail", README)
    assert shown is not None
    guilty = shop.splitlines()[int(shown[1]) - 1]
    assert "PyDLL" in guilty, f"the tour says that line {shown[1]} is the guilty one"


def _function(text: str, name: str) -> str:
    """However it is formatted."""
    (found,) = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return ast.dump(found)


@pytest.fixture
def shop(database: str) -> Iterator[str]:
    """The DSN of an application's role, which does not own the schema, with a table of its own."""
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("CREATE ROLE shop LOGIN")
        owner.execute("CREATE TABLE public.upload (image text)")
        owner.execute("GRANT ALL ON public.upload TO shop")
        groups = [(USUAL_NAMES[kind], kind) for kind in (Kind.PRODUCER, Kind.READ_ONLY)]
        grants.grant(database, groups)
        owner.execute(blocks(README, "sql")[1].encode())
        name = sql.Identifier(owner.info.user)
        try:
            # The server knows only its own user by the kernel's word: that one becomes the role.
            owner.execute(sql.SQL("GRANT shop TO {}").format(name))
            yield psycopg.conninfo.make_conninfo(database, options="-c role=shop")
        finally:
            owner.execute("DROP TABLE public.upload")
            for role in ("shop", *dict(groups)):
                owner.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
                owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_the_examples_run(shop: str, database: str, tmp_path: Path) -> None:
    """All of the Python as one program, then the SQL, with the rights that the README grants."""
    program = tmp_path / "example.py"
    program.write_text("\n\n".join(blocks(README, "python")))
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env={**os.environ, "SHOP_DSN": shop},
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with psycopg.connect(shop) as connection:
        for statement in blocks(README, "sql")[0].strip().split("\n\n"):
            last = connection.execute(statement.encode()).fetchall()
        assert [row[1] for row in last] == ["queued"]
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT type, state, count(*) FROM jobctl.jobs GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall()
    # cat.png was enqueued in Python and found again by its key in SQL.
    assert rows == [
        ("greet", "queued", 1),
        ("render_pdf", "blocked", 1),
        ("render_pdf", "queued", 3 + 1),
        ("resize", "cancelled", 1),
        ("resize", "queued", 1 + 1 + 1000 + 2),
        ("resize", "scheduled", 1),
        ("sign_pdf", "blocked", 3),
        ("sync_order", "blocked", 1),
    ]
