"""Which failures are one: the class of the error, its code or its message, and where it was.

Two thousand dead jobs are a few errors. One that has a code is known by it; of other messages, what
varies from job to job - numbers, hex, UUIDs, quoted values, paths, addresses - is taken out. Of the
stack counts the innermost frame that is the application's, by the end of its path and the function,
not by its line, which every deploy moves. What is left has a short id, the same on every host and
after every deploy. Pure, bounded, and it never raises: this runs on the path of failures, on texts
of strangers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

#: How much of a message is looked at, and how much of it is kept.
LOOKED_AT: Final = 400
KEPT: Final = 160
ID_LENGTH: Final = 10
_FRAMES = 400
_NAME = 100

#: Each reads the text once, and only if one of these characters is in it; what is more particular
#: goes first.
_VARIES: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (":", re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s\"'<>]+", re.I), "<url>"),
    # An apostrophe inside a word opens nothing.
    (
        "'\"`",
        re.compile(r"(?<!\w)'[^'\n]{0,400}'(?!\w)|\"[^\"\n]{0,400}\"|`[^`\n]{0,400}`"),
        "'…'",
    ),
    ("@", re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,5}"), "<address>"),
    ("-", re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.I), "<uuid>"),
    ("/", re.compile(r"(?<![\w/.])[.~]{0,2}(?:/[^\s/:;,'\"()<>|]{1,200}){2,40}/?"), "<path>"),
    ("xX", re.compile(r"\b0x[0-9a-f]{1,400}\b", re.I), "<hex>"),
    # A word of letters alone is a word.
    (
        "0123456789",
        re.compile(r"\b(?=[a-f]{0,40}[0-9])(?=[0-9]{0,40}[a-f])[0-9a-f]{8,400}\b", re.I),
        "<hex>",
    ),
    ("0123456789", re.compile(r"[0-9]+(?:[.,][0-9]+)*"), "#"),
)
_SPACE = re.compile(r"\s+")

#: At the start of a line: members of a group are written further in, and are not the error itself.
_TRACEBACK = "\nTraceback (most recent call last):"
_CURRENT = re.compile(r"^Current thread 0x[0-9a-f]+.*$", re.M)
#: Python's own: `File "x", line 5, in f`; faulthandler's: `File "x", line 5 in f`.
_FRAME = re.compile(r'^  File "([^"\n]{1,1000})", line [0-9]{1,9},? in ([^\n]{1,500})$', re.M)
_LIBRARY = re.compile(r"/(?:lib(?:64)?/python3(?:\.[0-9]+)?t?|site-packages|dist-packages)/|^<")
_PACKAGE = re.compile(r"^.*/(?:site|dist)-packages/[^/]+")
_OURS = re.compile(r"/jobctl/(?:workerproc|store|supervisor|bench)/|^<frozen ")


@dataclass(frozen=True)
class ErrorGroup:
    """What failures have in common. `frame` is '' when no stack is known."""

    id: str
    error_class: str
    error_code: str | None
    message: str
    frame: str


def group_of(
    error_class: str | None, error_code: str | None, error: str | None, stack: str | None
) -> ErrorGroup:
    """The group of a failure, from what is kept of it. Never raises."""
    named = (error_class or "unknown")[:_NAME]
    code = error_code[:_NAME] if error_code else None
    message, frame = normalised(error or ""), top_frame(stack or "")
    identity = "\0".join((named, f"code {code}" if code else message, frame))
    digest = sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()[:ID_LENGTH]
    return ErrorGroup(digest, named, code, message, frame)


def normalised(message: str) -> str:
    """The first line of a message without what varies from job to job."""
    line = message[:LOOKED_AT].strip().split("\n", 1)[0]
    for characters, pattern, instead in _VARIES:
        if any(character in line for character in characters):
            line = pattern.sub(instead, line)
    return _SPACE.sub(" ", line).strip()[:KEPT]


def top_frame(stack: str) -> str:
    """`shop/jobs.py in charge`: the innermost frame of the application's, or ''."""
    frames = _frames(stack)
    # Those before are jobctl's, which calls the handler.
    own = next((path for path, _ in frames if not _OURS.search(path) and path[:1] != "<"), None)
    if own is None:
        return ""
    package = _PACKAGE.match(own)  # an application that is installed like a library
    for path, function in reversed(frames):
        if _OURS.search(path):
            continue
        if not _LIBRARY.search(path) or (package and path.startswith(package[0] + "/")):
            return f"{'/'.join(path.split('/')[-2:])} in {function}"[: 2 * _NAME]
    return ""


def _frames(stack: str) -> list[tuple[str, str]]:
    """Path and function, the outermost first; of a chain, those of the error that came out."""
    current = _CURRENT.search(stack)
    if current is not None:  # a dump: the most recent first, a block a thread
        block = stack[current.end() :].split("\n\n", 1)[0].split("\nThread 0x", 1)[0]
        return _FRAME.findall(block)[:_FRAMES][::-1]
    return _FRAME.findall(f"\n{stack}".rpartition(_TRACEBACK)[2])[-_FRAMES:]
