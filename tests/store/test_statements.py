"""Every statement is a file with a header that stays at home."""

from __future__ import annotations

from importlib.resources import files

import pytest

from jobctl.store.statements import names, sql, without_header


@pytest.mark.parametrize("name", names())
def test_every_statement_has_a_header_and_a_body(name: str) -> None:
    """The file begins with its own name, and the text with SQL."""
    raw = (files("jobctl.store") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    assert raw.startswith(f"-- {name}: ")
    text = sql(name)
    assert text
    assert not text.startswith("--")
    assert text in raw


def test_an_unknown_name_says_which_there_are() -> None:
    """A typing mistake is a LookupError that helps."""
    with pytest.raises(LookupError, match="enqueue_many"):
        sql("enqueue_mony")


def test_a_header_ends_where_the_statement_begins() -> None:
    """Comments within the statement are its own."""
    assert without_header("-- a\n\n  -- b\nSELECT 1 -- c\n") == "SELECT 1 -- c"
    assert without_header("-- only\n") == ""
