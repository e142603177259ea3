"""Functions that a job type has beside its handler: what is left to do after a cancel, and how old
arguments become new ones.

They are called in a slot like the handler, at a time when nobody can be asked any more, so whatever
can be known to be wrong with them is said at import. Every check raises ValueError, as a sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

_Kind = inspect.Parameter
#: What a handler was enqueued with, as a dict, and of which version that is; back comes the newest.
Upgrade = Callable[[dict[str, Any], int], dict[str, Any]]


def check_hook(hook: Any, handler: Any) -> None:
    """`on_cancel=`: a function, plain or async, that is called as the handler would be."""
    if not inspect.isfunction(hook):
        raise ValueError(f"on_cancel must be a function, not {hook!r:.80}")
    if inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
        raise ValueError(f"on_cancel: {hook.__name__} is a generator, so calling it does nothing")
    theirs = list(inspect.signature(handler).parameters.values())[1:]
    ours = list(inspect.signature(hook).parameters.values())
    if not ours or ours[0].kind not in (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD):
        raise ValueError(
            f"on_cancel: {hook.__name__} must take what the handler takes, ctx and its arguments"
        )
    takes_all = any(one.kind is _Kind.VAR_KEYWORD for one in ours)
    named = {one.name: one for one in ours[1:] if one.kind in _BY_NAME}
    for one in theirs:
        known = takes_all if one.kind is _Kind.VAR_KEYWORD else takes_all or one.name in named
        if not known:
            raise ValueError(
                f"on_cancel: {hook.__name__} is called like the handler, and cannot take {one}: "
                "add it, or **arguments"
            )
    always = {one.name for one in theirs if one.default is _Kind.empty}
    for one in ours[1:]:
        needed = one.kind in _BY_NAME and one.default is _Kind.empty
        if one.kind is _Kind.POSITIONAL_ONLY or (needed and one.name not in always):
            raise ValueError(
                f"on_cancel: {hook.__name__} is called like the handler, which does not always "
                f"have {one}: give it a default"
            )


def check_upgrade(upgrade: Any) -> None:
    """`upgrade=`: a plain function of (args, version)."""
    if not callable(upgrade):
        raise ValueError(f"upgrade must be a function of (args, version), not {upgrade!r:.80}")
    if inspect.iscoroutinefunction(upgrade) or inspect.isgeneratorfunction(upgrade):
        raise ValueError(
            "upgrade must be a plain function that returns the new arguments, neither async nor a "
            "generator"
        )
    try:
        inspect.signature(upgrade).bind({}, 1)
    except TypeError as error:
        raise ValueError(f"upgrade is called with (args, version): {error}") from None


_BY_NAME = (_Kind.POSITIONAL_OR_KEYWORD, _Kind.KEYWORD_ONLY)
