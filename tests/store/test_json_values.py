"""What is let in comes back as it went in; what is refused says where it is and what to do."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import uuid
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jobctl.store.errors import InvalidJob, UnstorableValue
from jobctl.store.json_values import MAX_DEPTH, arguments_text, result_text

Row = namedtuple("Row", "a b")


class Colour(enum.Enum):
    RED = "red"


class Shout(enum.StrEnum):
    HEY = "hey"


class Number(enum.IntEnum):
    SEVEN = 7


@dataclasses.dataclass
class Point:
    x: int


#: Everything that JSON in PostgreSQL holds.
STORABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.text(st.characters(categories=["Cs", "Cc"]))
    | st.binary()
    | st.datetimes()
    | st.decimals()
    | st.uuids(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        | st.sets(st.integers(), max_size=2)
    ),
    max_leaves=20,
)


@pytest.fixture(scope="module")
def stored(postgres: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        yield connection


def through_postgresql(connection: psycopg.Connection[Any], text: str) -> tuple[Any, int]:
    """What a handler would be given, and how many bytes it takes in the database."""
    row = connection.execute(
        "SELECT stored::text, octet_length(stored::text) FROM (SELECT %s::jsonb AS stored) AS s",
        (text,),
    ).fetchone()
    assert row is not None
    return json.loads(row[0]), row[1]


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down: 1 is not 1.0, and not True."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=STORABLE)
@example(value={"\x7f": "\x7f"})
def test_what_is_let_in_comes_back(stored: psycopg.Connection[Any], value: Any) -> None:
    """Every JSON value comes back from PostgreSQL exactly, ints and floats kept apart."""
    text = result_text(value)
    assert text.isascii()
    back, size = through_postgresql(stored, text)
    assert same(back, value)
    # The limit counts what is stored: one byte less is too little. (Keys are not told twice.)
    arguments = {"v": value}
    stored_size = size + len('{"v": }')
    assert same(json.loads(arguments_text(arguments, limit=stored_size)), arguments)
    with pytest.raises(UnstorableValue, match="bytes"):
        arguments_text(arguments, limit=stored_size - 1)


@settings(deadline=None)
@given(value=ANYTHING)
def test_lets_in_or_refuses(value: Any) -> None:
    """Whatever comes, text that reads back comes out, or our own ValueError."""
    try:
        text = result_text(value)
    except UnstorableValue as error:
        assert str(error).startswith("result $")
        return
    assert json.loads(text) == _as_lists(value)


def _as_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_lists(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_lists(inner) for inner in value]
    return value


@pytest.mark.parametrize("value", [1e16, 1e23, -1e300, 1.7976931348623157e308, 5e-324, 2.0**70])
def test_large_floats_stay_floats(stored: psycopg.Connection[Any], value: float) -> None:
    """PostgreSQL writes numbers out; a float must not come back as an int of another value."""
    back, _ = through_postgresql(stored, result_text([value]))
    assert same(back, [value])


def test_large_ints_stay_exact(stored: psycopg.Connection[Any]) -> None:
    """Far above 64 bits, up to what Python itself reads."""
    value = [2**63, -(2**64) - 1, 10**4_000]
    back, _ = through_postgresql(stored, result_text(value))
    assert same(back, value)


def test_what_passes_for_text_and_numbers() -> None:
    """Enums that are text or numbers are that; tuples are arrays."""
    assert json.loads(result_text([Shout.HEY, Number.SEVEN, (1, 2), True])) == [
        "hey",
        7,
        [1, 2],
        True,
    ]


@pytest.mark.parametrize(
    ("value", "path", "advice"),
    [
        ({"items": [0, 1, 2, {"price": decimal.Decimal("1")}]}, "$.items[3].price", "str(value)"),
        ({"at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)}, "$.at", "isoformat"),
        ({"at": dt.date(2024, 1, 1)}, "$.at", "isoformat"),
        ({"d": dt.timedelta(1)}, "$.d", "total_seconds"),
        ({"id": uuid.UUID(int=5)}, "$.id", "str(value)"),
        ({"b": b"x"}, "$.b", "base64"),
        ({"s": {1, 2}}, "$.s", "sorted"),
        ({"c": Colour.RED}, "$.c", "value.value"),
        ({"p": Point(1)}, "$.p", "asdict"),
        ({"r": Row(1, 2)}, "$.r", "_asdict"),
        ({"f": Path("/x")}, "$.f", "str(value)"),
        ({"g": (i for i in range(3))}, "$.g", "list(value)"),
        ({"o": object()}, "$.o", "the id of a record"),
        ({"x": math.nan}, "$.x", "None"),
        ({"x": [math.inf]}, "$.x[0]", "None"),
        ({"x": -math.inf}, "$.x", "None"),
        ({"t": "a\0b"}, "$.t", "NUL"),
        ({"t": "\ud800"}, "$.t", "surrogate"),
        ({"odd key": {"\udfff": 1}}, '$["odd key"]["\\udfff"]', "surrogate"),
        ({"a": {"b\0": 1}}, '$.a["b\\u0000"]', "NUL"),
        ({"a": {5: 1}}, '$.a["5"]', "str(key)"),
        ({None: 1}, "$.None", "str(key)"),
        ({"n": 10**5_000}, "$.n", "hexadecimal"),
    ],
)
def test_what_is_refused(value: dict[Any, Any], path: str, advice: str) -> None:
    """The path leads to it, and the sentence says what to do."""
    with pytest.raises(UnstorableValue) as caught:
        arguments_text(value)
    assert caught.value.path == path
    assert advice in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("value", [None, [], "x", 5, [("a", 1)]])
def test_arguments_are_an_object(value: Any) -> None:
    """Arguments have names."""
    with pytest.raises(UnstorableValue, match="dict"):
        arguments_text(value)


def test_depth_has_a_limit() -> None:
    """As deep as allowed is fine; deeper is refused, however deep, without recursion."""

    def nested(levels: int) -> Any:
        value: Any = []
        for _ in range(levels - 1):
            value = [value]
        return value

    assert json.loads(result_text(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    for levels in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(UnstorableValue, match="deeper than 64"):
            result_text(nested(levels))


def test_circles_are_refused() -> None:
    """Also those through several levels; what merely comes twice is fine."""
    circle: dict[str, Any] = {"a": []}
    circle["a"].append(circle)
    with pytest.raises(UnstorableValue, match="contains itself") as caught:
        arguments_text(circle)
    assert caught.value.path == "$.a[0]"
    twice = [1]
    assert json.loads(result_text([twice, twice])) == [[1], [1]]


def test_an_enormous_value_costs_no_more_than_the_limit() -> None:
    """It stops at the limit instead of writing out everything first."""

    class Endless(list[int]):
        def __iter__(self) -> Iterator[int]:
            while True:
                yield 1

    with pytest.raises(UnstorableValue, match="65536 bytes"):
        result_text(Endless())


def test_the_limit_counts_bytes_not_characters() -> None:
    """Vietnamese takes more bytes than letters."""
    with pytest.raises(UnstorableValue, match="JOBCTL_MAX_ARGS_BYTES"):
        arguments_text({"t": "\u1ec7" * 30_000})
    arguments_text({"t": "\u1ec7" * 20_000})


def test_the_limit_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """JOBCTL_MAX_ARGS_BYTES, and nonsense in it is said."""
    monkeypatch.setenv("JOBCTL_MAX_ARGS_BYTES", "100000")
    arguments_text({"t": "x" * 90_000})
    for nonsense in ("many", "0", "-1", "1e6", "99999999999", "\u0663"):
        monkeypatch.setenv("JOBCTL_MAX_ARGS_BYTES", nonsense)
        with pytest.raises(InvalidJob, match="JOBCTL_MAX_ARGS_BYTES"):
            arguments_text({})


def test_a_value_that_changes_while_it_is_read() -> None:
    """Another thread may do that; it is refused like anything else that cannot be stored."""

    class Changing(dict[str, int]):
        pass

    value = Changing(a=1, b=2)

    class Meddler(str):
        __slots__ = ()

        def isascii(self) -> bool:
            value["c"] = 3
            return True

    value.clear()
    value[Meddler("a")] = 1
    value["b"] = 2
    with pytest.raises(UnstorableValue, match="changed while"):
        result_text(value)
