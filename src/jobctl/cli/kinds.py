"""Kinds of values that commands take: refused where they enter, with what they should be."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import click

#: A job's number is a bigint.
LARGEST_ID = 2**63 - 1


class _Id(click.IntRange):
    """A job's number."""

    name = "id"

    def __init__(self) -> None:
        super().__init__(1, LARGEST_ID)


class _Text(click.types.StringParamType):
    """Text that PostgreSQL can be asked about."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuses what is not UTF-8, and NUL."""
        text: str = super().convert(value, param, ctx)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            self.fail("it holds bytes that are not UTF-8", param, ctx)
        if "\0" in text:
            self.fail("it holds a NUL character, which PostgreSQL cannot store", param, ctx)
        return text


class _Rate(click.ParamType[float]):
    """So many a second; a number alone is that too."""

    name = "rate"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Refuses what is not above zero."""
        typed = re.fullmatch(r"(\d+(?:\.\d*)?)(?:/(s|m|h|d))?", str(value))
        rate = float(typed[1]) / _SECONDS[typed[2] or "s"] if typed else 0.0
        if not 0 < rate < math.inf:
            self.fail(f"{value!r} is no rate: write 50/s, 600/m, 100/h or 20/d", param, ctx)
        return rate


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

ID = _Id()
TEXT = _Text()
RATE = _Rate()


def read_json(text: str) -> Any:
    """What it says. Raises ValueError if it is not JSON, UsageError if it is and cannot be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise click.UsageError(
            "The JSON is nested too deeply: make it flatter, or store it elsewhere and pass a "
            "reference."
        ) from None
