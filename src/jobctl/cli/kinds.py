"""Kinds of values that commands take: refused where they enter, with what they should be."""

from __future__ import annotations

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


ID = _Id()
TEXT = _Text()
