"""A type exists only when every field of it can be stored and obeyed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.store.job_type import JobType

GOOD: dict[str, Any] = {
    "name": "send",
    "queue": "mail",
    "priority": 0,
    "timeout_seconds": 30.0,
    "soft_timeout_seconds": 25.0,
    "max_attempts": 5,
    "max_crashes": 3,
    "min_backoff_seconds": 10.0,
    "max_backoff_seconds": 3_600.0,
    "max_doublings": 16,
    "max_elapsed_seconds": None,
    "ack": "late",
    "schema_version": 1,
    "key_ttl_seconds": 86_400.0,
    "owner": None,
    "link": "https://admin.example/{subject}",
    "memory_bytes": 512 * 2**20,
    "cpu_seconds": 120.0,
    "cancel": "anywhere",
    "on_cancel": False,
    "limit_key": "mail-provider",
}


def test_travels_as_json() -> None:
    """What the template sends is what the supervisor gets."""
    there = JobType.from_dict(GOOD)
    back = JobType.from_dict(json.loads(json.dumps(there.to_dict())))
    assert back == there
    assert there.to_dict() == GOOD


def test_whole_seconds_are_seconds() -> None:
    """JSON may write 30.0 as 30; the type holds floats all the same."""
    assert type(JobType.from_dict({**GOOD, "timeout_seconds": 30}).timeout_seconds) is float


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("memory_bytes", 0),
        ("limit_key", ""),
        ("limit_key", "tenant:*"),
        ("limit_key", "a\n"),
        ("limit_key", "x" * 201),
        ("memory_bytes", True),
        ("memory_bytes", 2**61),
        ("cpu_seconds", 0.0),
        ("cpu_seconds", float("nan")),
        ("name", "x" * 201),
        ("name", "a\0b"),
        ("name", "a\ud800"),
        ("name", None),
        ("name", 5),
        ("queue", ""),
        ("queue", "q" * 101),
        ("priority", 4),
        ("priority", -1),
        ("priority", True),
        ("priority", 1.0),
        ("timeout_seconds", 0),
        ("timeout_seconds", -1.0),
        ("timeout_seconds", float("nan")),
        ("timeout_seconds", float("inf")),
        ("timeout_seconds", "30"),
        ("timeout_seconds", 10**400),
        ("timeout_seconds", None),
        ("soft_timeout_seconds", 30.0),
        ("soft_timeout_seconds", 31.0),
        ("max_attempts", 0),
        ("max_attempts", 2**40),
        ("max_crashes", 0),
        ("min_backoff_seconds", 3_601.0),
        ("max_doublings", 65),
        ("max_elapsed_seconds", 1e300),
        ("ack", "never"),
        ("ack", []),
        ("schema_version", 2**31),
        ("key_ttl_seconds", -1.0),
        ("owner", ""),
        ("link", "x" * 2_001),
        ("link", {}),
    ],
)
def test_what_is_refused_names_the_field(field: str, value: object) -> None:
    """A stranger's mistake is a ValueError that says which field."""
    with pytest.raises(ValueError, match=field):
        JobType.from_dict({**GOOD, field: value})


@pytest.mark.parametrize("stranger", [None, [], "x", {}, {**GOOD, "more": 1}, {"name": "x"}])
def test_what_is_no_type(stranger: object) -> None:
    """Missing and unknown members are refused too."""
    with pytest.raises(ValueError, match="job type"):
        JobType.from_dict(stranger)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.fixed_dictionaries({name: st.just(value) | JSON for name, value in GOOD.items()}))
def test_a_stranger_gets_in_only_whole(members: dict[str, Any]) -> None:
    """Whatever JSON comes: a type that is what it says, or a ValueError, never another error."""
    try:
        job_type = JobType.from_dict(members)
    except ValueError:
        return
    assert job_type.to_dict() == members
