"""Failures that are one, and failures that are not."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.store.error_group import ID_LENGTH, KEPT, group_of, normalised, top_frame
from jobctl.workerproc.failure import describe
from tests.exploring import explore


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("invoice 1842 is 30.5 EUR, 1,200 short", "invoice # is # EUR, # short"),
        ("order_1842 of 2026-11-30T01:02:03Z", "order_# of #-#-#T#:#:#Z"),
        ("no user 8f14e45f-ceea-467f-a34e-1b2c3d4e5f60", "no user <uuid>"),
        ("object at 0x7ffaf5a142c0", "object at <hex>"),
        ("commit deadbeef01 is gone", "commit <hex> is gone"),
        ("the facade is defaced", "the facade is defaced"),
        ("KeyError: 'customer_7'", "KeyError: '…'"),
        ('relation "shop" and `x`', "relation '…' and '…'"),
        ("it's o'clock's", "it's o'clock's"),
        ("can't open '/etc/shop.conf': no", "can't open '…': no"),
        ("No such file: /srv/releases/20261130/shop/x.py", "No such file: <path>"),
        ("either/or of 5", "either/or of #"),
        ("GET https://bank.example/pay?id=7 said 502", "GET <url> said #"),
        ("ann.b+c@shop.example bounced", "<address> bounced"),
        ("first line 1\nsecond line 2", "first line #"),
        ("  spaces \t and\ttabs  ", "spaces and tabs"),
        ("", ""),
        ("\n\n", ""),
        ("x" * 10_000, "x" * KEPT),
    ],
)
def test_what_varies_is_taken_out(message: str, kept: str) -> None:
    """And nothing else."""
    assert normalised(message) == kept


@explore(300)
@given(st.text(max_size=500), st.text(max_size=500))
def test_any_text(message: str, stack: str) -> None:
    """It has a group, always the same one, of a bounded size, that can be stored."""
    group = group_of("E", None, message, stack)
    assert group == group_of("E", None, message, stack)
    assert len(group.id) == ID_LENGTH
    assert group.id.isalnum()
    assert len(group.message) <= KEPT
    assert "\n" not in group.message + group.frame


@pytest.mark.parametrize(
    "evil",
    ["'", '"', "/a", "a@", "0", "a.b", "0x", "ab0", "a://", "-", "a@b.", "1,", "`'", "a'", ".~/",
     "0a-", "aaaaaaaa-bbbb-"],
)  # fmt: skip
def test_texts_that_were_made_to_be_slow(evil: str) -> None:
    """No pattern goes back and forth: a megabyte costs what its first line costs."""
    begun = time.perf_counter()
    for _ in range(20):
        normalised(evil * (1_000_000 // len(evil)))
    assert time.perf_counter() - begun < 2.0  # 20 ms would be plenty


def test_the_order_and_the_size_of_what_varies_do_not_matter() -> None:
    """One error, whatever job it happened to."""
    ids = {
        group_of("Refused", None, f"card {n} of 'customer {n}' refused: {n}.50", None).id
        for n in (1, 22, 333)
    }
    assert len(ids) == 1
    assert group_of("Refused", None, "card refused", None).id not in ids
    assert group_of("Other", None, "card 1 of 'customer 1' refused: 1.50", None).id not in ids


def test_an_error_with_a_code_is_known_by_it() -> None:
    """Its message may hold a name that nobody can tell from a word."""
    one = group_of("Permanent", "TEMPLATE_MISSING", "no template for Zoë", None)
    other = group_of("Permanent", "TEMPLATE_MISSING", "no template for Søren", None)
    assert one.id == other.id
    assert one.id != group_of("Permanent", "OTHER", "no template for Zoë", None).id
    assert one.id != group_of("Permanent", None, "TEMPLATE_MISSING", None).id
    assert (one.error_code, one.message) == ("TEMPLATE_MISSING", "no template for Zoë")


def test_it_is_the_same_on_every_host_and_after_every_deploy() -> None:
    """This very id is in people's scripts: lines and folders move, it does not."""
    frames = '  File "{}/shop/jobs.py", line {}, in charge\n    bank.pay()\n'
    head = "Traceback (most recent call last):\n"
    stacks = [head + frames.format(*at) for at in (("/srv/a", 41), ("/home/ann/shop-2", 97))]
    ids = {group_of("Refused", None, "card 7 refused", stack).id for stack in stacks}
    assert ids == {"5201425a10"}
    assert {top_frame(stack) for stack in stacks} == {"shop/jobs.py in charge"}


# Where ------------------------------------------------------------------------------------------

VENV = "/opt/venv/lib/python3.11/site-packages"
OURS = f'  File "{VENV}/jobctl/workerproc/attempt.py", line 9, in _call\n'
HEAD = "Traceback (most recent call last):\n"


def frame(path: str, function: str) -> str:
    return f'  File "{path}", line 12, in {function}\n    some code\n'


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (HEAD + OURS + frame("/srv/shop/jobs.py", "charge"), "shop/jobs.py in charge"),
        (
            HEAD + OURS + frame("/srv/shop/jobs.py", "charge")
            + frame("/srv/shop/bank.py", "Bank.pay")
            + frame(f"{VENV}/requests/api.py", "get") + frame("/usr/lib/python3.11/ssl.py", "read"),
            "shop/bank.py in Bank.pay",
        ),
        # Installed like a library, and its own all the same.
        (
            HEAD + OURS + frame(f"{VENV}/shop/jobs.py", "charge")
            + frame(f"{VENV}/shop/bank.py", "pay") + frame(f"{VENV}/requests/api.py", "get"),
            "shop/bank.py in pay",
        ),
        # A coroutine's frames begin with ours and asyncio's.
        (
            HEAD + OURS + frame("/usr/lib/python3.11/asyncio/runners.py", "run")
            + frame("/srv/shop/jobs.py", "greet"),
            "shop/jobs.py in greet",
        ),
        # Of a chain, the error that came out.
        (
            HEAD + frame("/srv/shop/db.py", "query")
            + "KeyError: 1\n\nDuring handling of the above exception, another occurred:\n\n"
            + HEAD + OURS
            + frame("/srv/shop/jobs.py", "charge") + "Refused: no\n",
            "shop/jobs.py in charge",
        ),
        # A group's members are written further in.
        (
            HEAD + OURS + frame("/srv/shop/jobs.py", "charge") + "ExceptionGroup: two\n"
            + "  ---- exception 1 of 2 ----\n  " + HEAD
            + '    File "/srv/shop/bank.py", line 5, in pay\n',
            "shop/jobs.py in charge",
        ),
        (HEAD + OURS, ""),
        ("killed by SIGKILL", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_applications_own_frame(stack: str, expected: str) -> None:
    """The innermost that is neither Python's, nor a library's, nor ours."""
    assert top_frame(stack) == expected


def test_a_stack_that_a_fault_handler_dumped() -> None:
    """Of the thread that hung, the most recent first."""
    dump = (
        "Thread 0x00007f01 (most recent call first):\n"
        '  File "/srv/shop/metrics.py", line 8 in flush\n\n'
        "Current thread 0x00007f02 (most recent call first):\n"
        '  File "/usr/lib/python3.11/socket.py", line 706 in readinto\n'
        '  File "/srv/shop/bank.py", line 5 in pay\n'
        '  File "/srv/shop/jobs.py", line 41 in charge\n'
        '  File "/opt/jobctl/src/jobctl/workerproc/attempt.py", line 9 in _call\n'
    )
    assert top_frame(dump) == "shop/bank.py in pay"


def test_what_a_slot_writes_is_read() -> None:
    """A real exception, as it is described when a job fails."""

    def charge(number: int) -> None:
        raise LookupError(f"no card {number}")

    def group(number: int) -> Any:
        try:
            charge(number)
        except LookupError as error:
            failure = describe(error)
        return group_of(failure.error_class, failure.error_code, failure.error, failure.stack)

    assert group(1) == group(2)
    assert group(1).message == "no card #"
    assert group(1).frame.startswith("store/test_error_group.py in ")
    assert group(1).frame.endswith("charge")
