"""Texts that come from anywhere and must be kept: made storable, bounded, and without secrets.

This is the path of failures, so it refuses nothing: whatever the text holds, something that
PostgreSQL can store and a person can read comes out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

#: What errors, stacks and the like may take, in bytes.
TEXT_LIMIT: Final = 16 * 1024
MASK: Final = "***"

Redactor = Callable[[str], str]


def storable(text: str, limit: int = TEXT_LIMIT) -> str:
    """`text` as PostgreSQL can store it, in at most `limit` bytes of UTF-8.

    NUL becomes its picture (U+2400), lone surrogates their escape. Of one that is too long the head
    and the tail stay, around a marker that says how much is missing.
    """
    if len(text) <= limit:
        # The plain case, and at the same time a bound on the work below.
        encoded = _encoded(text)
        if len(encoded) <= limit:
            return encoded.decode()
        left_out = len(encoded) - limit
        head = tail = encoded
        unit = "bytes"
    else:
        left_out = len(text) - limit
        head, tail = _encoded(text[:limit]), _encoded(text[-limit:])
        unit = "characters"
    marker = f"\n[... about {left_out} {unit} left out ...]\n".encode()
    room = limit - len(marker)
    if room < 2:
        return head[: max(limit, 0)].decode(errors="ignore")
    kept = head[: room - room // 2].decode(errors="ignore")
    return kept + marker.decode() + tail[len(tail) - room // 2 :].decode(errors="ignore")


def _encoded(text: str) -> bytes:
    return text.replace("\0", "\u2400").encode("utf-8", "backslashreplace")


# What looks like a credential. Each pattern reads a text once (no nested repetition), because texts
# come from strangers and this runs on the path of failures.
_NAMES = (
    r"[\w.-]{0,40}(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|apikey|access[_-]?key"
    r"|private[_-]?key|client[_-]?secret|credentials?|session[_-]?id|signature)[\w.-]{0,40}"
)
_VALUE = r"""(?:"(?:[^"\\]|\\.){0,4000}"?|'(?:[^'\\]|\\.){0,4000}'?|[^\s"'&,;)}\]]{1,4000})"""
_MASKED: tuple[tuple[re.Pattern[str], str], ...] = (
    # https://user:password@host, postgresql://...; up to the last @ before the path.
    (
        re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,30}://[^\s:/@\"']{0,200}:)[^\s/\"']{1,2000}@"),
        r"\1***@",
    ),
    # Authorization: Bearer ..., Proxy-Authorization: Basic ..., 'authorization': 'token ...'
    (
        re.compile(
            r"(?i)\b((?:proxy-)?authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?)"
            r"((?:bearer|basic|digest|token|apikey|negotiate|aws4-hmac-sha256)\s{1,4})?"
            r"[^\s\"',;)}\]]{1,4000}"
        ),
        r"\1\2***",
    ),
    (re.compile(r"(?i)\b(bearer\s{1,4})[a-z0-9._~+/=-]{8,4000}"), r"\1***"),
    (re.compile(r"(?i)\b((?:set-)?cookie[\"']?\s{0,4}:\s{0,4}[\"']?)[^\r\n\"']{1,4000}"), r"\1***"),
    # password=..., "api_key": "...", token='...', --secret-key=...
    (re.compile(rf"(?i)(?<![\w.-])({_NAMES}[\"']?\s{{0,4}}=\s{{0,4}}){_VALUE}"), r"\1***"),
    (re.compile(rf"(?i)([\"']{_NAMES}[\"']\s{{0,4}}:\s{{0,4}}){_VALUE}"), r"\1***"),
    (
        re.compile(
            r"(?i)(?<![\w.-])((?:[\w.-]{0,40}(?:password|passwd|passphrase|api[_-]?key|secret)):\s{0,4})"
            rf"{_VALUE}"
        ),
        r"\1***",
    ),
    # Keys that are known by their shape: AWS, GitHub, Slack, Stripe, Google, JSON Web Tokens.
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b"), MASK),
    (re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,255}\b|\bgithub_pat_[A-Za-z0-9_]{20,255}\b"), MASK),
    (re.compile(r"\bxox[abeprs]-[A-Za-z0-9-]{10,255}\b"), MASK),
    (re.compile(r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,255}\b"), MASK),
    (re.compile(r"\bAIza[A-Za-z0-9_-]{35}\b"), MASK),
    (
        re.compile(r"\beyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{0,4000}"),
        MASK,
    ),
    (
        re.compile(
            r"-----BEGIN ([A-Z ]{0,40}PRIVATE KEY)-----[^-]{1,20000}(?:-----END [A-Z ]{0,40}-----)?"
        ),
        r"-----BEGIN \1----- ***",
    ),
)


def redact(text: str) -> str:
    """`text` without what looks like a credential: the default redaction hook.

    It masks passwords in URLs, `password=...` and its kin, Authorization headers, and keys that
    their shape gives away. It cannot know a secret that looks like any other word.
    """
    for pattern, replacement in _MASKED:
        text = pattern.sub(replacement, text)
    return text
