"""Amounts of memory are read in one way, and what cannot be one is refused with a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobctl.store.sizes import LARGEST, exact_size, format_size, parse_size


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (1, 1),
        ("512MiB", 512 * 2**20),
        (" 512 mib ", 512 * 2**20),
        ("512M", 512 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("2GB", 2 * 10**9),
        ("900", 900),
        ("1kb", 1000),
    ],
)
def test_reads(value: str | int, size: int) -> None:
    assert parse_size(value) == size


@pytest.mark.parametrize(
    "value", ["", "lots", "-1MiB", "1e9", "0", 0, -5, True, 1.5, None, "1QiB", 2**61, "9" * 30]
)
def test_refuses_with_a_sentence(value: object) -> None:
    with pytest.raises(ValueError, match="an amount of memory"):
        parse_size(value)  # type: ignore[arg-type]  # that is the test


@given(st.integers(1, LARGEST))
def test_the_exact_text_reads_back(size: int) -> None:
    assert parse_size(exact_size(size)) == size


def test_is_shown_for_people() -> None:
    assert [format_size(size) for size in (900, 2**20, 3 * 2**29, 2**42)] == [
        "900 B",
        "1 MiB",
        "1.5 GiB",
        "4 TiB",
    ]
