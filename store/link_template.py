"""The link of a job type: a template of a URL, and what a job makes of it.

`https://admin.example/invoices/{args[invoice_id]}`: the fields are {subject}, {key}, {id}, {type}
and {args[NAME]}. The template is the application's, the values are strangers': they only ever fill
a place behind the host, and are quoted so that they stay there. What cannot be filled safely makes
no link; a link is never worth an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

LONGEST_URL: Final = 2_000

_FIELD = re.compile(r"\{(?:(subject|key|id|type)|args\[(\w{1,100})\])\}")
#: http or https, a host, and perhaps something behind it. No user, no spaces, nothing unprintable.
_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:_]+(?:[/?#][!-~]*)?")


def check_link(template: str) -> None:
    """Raises ValueError, as a sentence, for a template that no job could make a link of."""
    plain = _FIELD.sub("x", template)
    if "{" in plain or "}" in plain:
        raise ValueError(
            "may hold {subject}, {key}, {id}, {type} and {args[NAME]}, and no other braces"
        )
    if not _URL.fullmatch(plain):
        raise ValueError("must be a URL of http or https, without a user and without spaces")
    host = template.split("/", 3)[2] if template.count("/") > 2 else template.split("/", 2)[2]
    if _FIELD.search(re.split(r"[?#]", host, maxsplit=1)[0]):
        raise ValueError("must name its host itself: fields come behind it")
    try:
        named = urlsplit(plain).hostname
        _ = urlsplit(plain).port
    except ValueError as error:
        raise ValueError(f"must be a URL of http or https: {error}") from None
    if not named:
        raise ValueError("must name a host")


def link_of(template: str | None, job: Mapping[str, Any]) -> str | None:
    """The URL of a job, which has `id`, `type`, `key`, `subject` and `args`; None if it has none.

    Never raises: the template may be anybody's row.
    """
    if not isinstance(template, str):
        return None
    try:
        check_link(template)
    except ValueError:
        return None
    filled: list[str] = []
    at = 0
    for field in _FIELD.finditer(template):
        value = _value(field, job)
        if value is None:
            return None
        filled += [template[at : field.start()], value]
        at = field.end()
    url = "".join([*filled, template[at:]])
    return url if len(url) <= LONGEST_URL else None


def _value(field: re.Match[str], job: Mapping[str, Any]) -> str | None:
    if field[1]:
        value = job.get(field[1])
    else:
        args = job.get("args")
        value = args.get(field[2]) if isinstance(args, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        text = str(value)
        # Whatever they are quoted as, browsers take dots for steps up the path.
        return None if text in ("", ".", "..") else quote(text, safe=":")
    except ValueError:  # half a character, or a number of thousands of digits
        return None
