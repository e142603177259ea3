"""Any text can be kept, within its bounds and without its secrets."""

from __future__ import annotations

import time

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobctl.store.embedded import EmbeddedPostgres
from jobctl.store.texts import TEXT_LIMIT, redact, storable

ANY_TEXT = st.text(st.characters()) | st.text(st.characters(categories=["Cs", "Cc", "So"]))


@given(ANY_TEXT, st.integers(0, 200))
def test_everything_becomes_storable_within_its_limit(text: str, limit: int) -> None:
    """No NUL, no surrogates, never more bytes than allowed."""
    kept = storable(text, limit)
    assert "\0" not in kept
    assert len(kept.encode()) <= limit


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300))
def test_what_can_be_stored_stays_as_it_is(text: str) -> None:
    """Nothing is touched that need not be."""
    assert storable(text) == text


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=ANY_TEXT)
def test_postgresql_takes_it(postgres: EmbeddedPostgres, text: str) -> None:
    """The proof is in the database."""
    with psycopg.connect(postgres.dsn()) as connection:
        row = connection.execute("SELECT %s::text", (storable(text),)).fetchone()
    assert row == (storable(text),)


def test_what_is_written_for_what_cannot_be_stored() -> None:
    """NUL's picture, and the escapes of surrogates."""
    assert storable("a\0b\ud800c") == "a\u2400b\\ud800c"


@pytest.mark.parametrize("letter", ["x", "\u1ec7", "\U0001f600"])
def test_head_and_tail_are_kept_around_a_marker(letter: str) -> None:
    """Both ends say most; the cut never splits a character."""
    kept = storable("begin " + letter * 100_000 + " end")
    assert kept.startswith("begin " + letter)
    assert kept.endswith(letter + " end")
    assert " left out ...]" in kept
    assert TEXT_LIMIT - 16 < len(kept.encode()) <= TEXT_LIMIT


def test_an_enormous_text_costs_little() -> None:
    """A quarter of a gigabyte is cut before it is encoded."""
    text = "\u1ec7" * 64_000_000
    begun = time.monotonic()
    storable(text)
    assert time.monotonic() - begun < 1


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("connection to postgresql://app:hunter2@db:5432/shop failed", "hunter2"),
        ("amqp://u:p%40ss:w@h/", "p%40ss:w"),
        ("redis://:hunter2@cache:6379/0", "hunter2"),
        ("password=hunter2 host=db", "hunter2"),
        ("PASSWORD = 'two words'", "two words"),
        ("host=db password='it\\'s' port=1", "it\\'s"),
        ("{'password': 'hunter2', 'user': 'bob'}", "hunter2"),
        ('{"api_key": "hunter2"}', "hunter2"),
        ('{"aws_secret_access_key": "hunter2/+x"}', "hunter2/+x"),
        ("?token=hunter2&page=5", "hunter2"),
        ("STRIPE_API_KEY=hunter2", "hunter2"),
        ("client_secret=hunter2,", "hunter2"),
        ("db.password: hunter2", "hunter2"),
        ("Authorization: Bearer abc.def-ghi", "abc.def-ghi"),
        ("'Authorization': 'Basic dXNlcjpwYXNz'", "dXNlcjpwYXNz"),
        ("authorization=hunter2", "hunter2"),
        ("curl -H 'authorization: token hunter2'", "hunter2"),
        ("sent bearer abcdefghijkl", "abcdefghijkl"),
        ("Cookie: session=abc; other=def", "other=def"),
        ("key AKIAIOSFODNN7EXAMPLE was refused", "AKIAIOSFODNN7EXAMPLE"),
        ("ghp_abcdefghijklmnopqrstuvwxyz012345", "ghp_abcdefghijklmnopqrstuvwxyz012345"),
        ("xoxb-1234567890-abcdef", "xoxb-1234567890-abcdef"),
        ("sk_live_abcdefghijklmnop", "sk_live_abcdefghijklmnop"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def", "eyJzdWIiOiIxIn0"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
    ],
)
def test_credentials_are_masked(text: str, secret: str) -> None:
    """What looks like a credential is not kept; masking again changes nothing."""
    assert secret in text
    masked = redact(text)
    assert secret not in masked
    assert "***" in masked
    assert redact(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "invoice 1842 is not there",
        "unexpected token: 'x' at line 5",
        "https://example.com/a?page=2",
        "user bob@example.com has no mailbox",
        "the password of bob is too short",
        "KeyError: 'invoice_id'",
        'File "/srv/shop/tokens.py", line 5, in read_token',
    ],
)
def test_other_words_stay(text: str) -> None:
    """A masked sentence helps nobody."""
    assert redact(text) == text


@settings(deadline=2_000)
@given(
    st.text(max_size=50),
    st.sampled_from(["password", "a-", "://", '"', "\\", "token=", "eyJ", ".", "authorization: "]),
)
def test_redaction_is_quick_whatever_the_text(seed: str, piece: str) -> None:
    """No text makes it try for ever."""
    redact((seed + piece) * 500)
