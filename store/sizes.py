"""Amounts of memory as people type them: bytes, or text such as `512MiB`, `2GB`.

One reading for decorators and settings. What is refused is refused with a sentence.
"""

from __future__ import annotations

import re
from fractions import Fraction

Size = str | int

#: An exbibyte: more than any machine has, less than a bigint holds.
LARGEST = 2**60

_UNITS = {
    "": 1, "b": 1,
    "k": 2**10, "kib": 2**10, "kb": 10**3,
    "m": 2**20, "mib": 2**20, "mb": 10**6,
    "g": 2**30, "gib": 2**30, "gb": 10**9,
    "t": 2**40, "tib": 2**40, "tb": 10**12,
}  # fmt: skip
_TEXT = re.compile(r"\s*(\d{1,19}(?:\.\d{1,9})?)\s*([a-z]{0,3})\s*", re.ASCII | re.IGNORECASE)
_HOW = "write bytes or text such as 512MiB, 2GiB, 500MB"


def parse_size(value: Size) -> int:
    """The bytes that `value` means; a bare number counts bytes. `512M` is what `512MiB` is.

    Raises ValueError for everything else, and for nothing or more than an exbibyte.
    """
    if isinstance(value, str):
        found = _TEXT.fullmatch(value)
        if found is None or found[2].lower() not in _UNITS:
            raise ValueError(f"{value[:60]!r} is not an amount of memory: {_HOW}")
        size = int(Fraction(found[1]) * _UNITS[found[2].lower()])
    elif type(value) is int:
        size = value
    else:
        raise ValueError(f"{value!r:.60} is not an amount of memory: {_HOW}")
    if not 1 <= size <= LARGEST:
        raise ValueError(f"{value!r:.60} is out of range for an amount of memory: {_HOW}")
    return size


def format_size(size: int) -> str:
    """For people: `512 MiB`, `1.5 GiB`, `900 B`."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.4g} {unit}"
        amount /= 1024
    return f"{amount:.4g} TiB"


def exact_size(size: int) -> str:
    """The shortest text that reads back as the same size: `512MiB`, `1000000`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size % _UNITS[unit.lower()] == 0 and size:
            return f"{size // _UNITS[unit.lower()]}{unit}"
    return str(size)
