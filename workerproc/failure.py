"""What an exception leaves behind: a record that can be stored, whatever the exception does.

`describe` never raises. Exceptions come from strangers: they may raise while they are printed, be
megabytes long, form circles, hold what PostgreSQL cannot store, or secrets. So nothing of theirs is
called outside a guard, attributes are read through the base class where one can lie, and every
text is bounded, redacted and made storable before it leaves.
"""

from __future__ import annotations

import linecache
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import CodeType, TracebackType
from typing import Any, Final

from jobctl.store.texts import TEXT_LIMIT, Redactor, redact, storable

#: How much of a chain, a tree of groups and a stack is written down.
CHAIN_LIMIT: Final = 10
GROUP_DEPTH: Final = 5
GROUP_WIDTH: Final = 10
FRAME_LIMIT: Final = 100
EXCEPTION_LIMIT: Final = 100
NAME_LIMIT: Final = 200
_LINE_LIMIT = 300
#: Redaction sees this much of a text, so that no secret is cut in two at the edge of what is kept.
_WINDOW = 4 * TEXT_LIMIT

_UNPRINTABLE = "<it could not be printed>"


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as it is stored: the words are those of the columns of `attempt`."""

    error_class: str
    error_code: str | None
    error: str
    stack: str


_LAST_RESORT = Failure("Exception", None, _UNPRINTABLE, "")


def describe(exception: BaseException, redactor: Redactor = redact) -> Failure:
    """The record of `exception`. Never raises, never runs longer than the limits allow."""
    try:
        return Failure(
            error_class=_clean(_class_name(exception), redactor, NAME_LIMIT),
            error_code=_code(exception, redactor),
            error=_clean(_message(exception), redactor),
            stack=_clean(_guarded(lambda: _stack(exception), "<the stack is lost>"), redactor),
        )
    except BaseException:  # out of memory or stack: a poorer record is better than none
        return _LAST_RESORT


def _guarded(read: Callable[[], str], otherwise: str) -> str:
    """What `read` returns, as a plain str; `otherwise` when it raises anything."""
    try:
        # str.__str__ makes a plain str of a subclass without asking the subclass.
        return str.__str__(read())
    except BaseException:  # SystemExit in a __str__ must not end the slot
        return otherwise


def _clean(text: str, redactor: Redactor, limit: int = TEXT_LIMIT) -> str:
    window = storable(text, _WINDOW)
    try:
        shown = redactor(window)
        if type(shown) is not str:
            raise TypeError("it did not return text")
    except BaseException as error:
        # What was to be hidden must not come out because the hook is broken.
        return f"<hidden: the redaction hook raised {_class_name(error)}>"
    return storable(shown, limit)


def _class_name(exception: BaseException) -> str:
    # Not `.__name__`: a metaclass may have one of its own.
    return _guarded(lambda: type.__dict__["__name__"].__get__(type(exception)), "Exception")


def _full_name(exception: BaseException) -> str:
    kind = type(exception)
    name = _guarded(lambda: type.__dict__["__qualname__"].__get__(kind), "Exception")
    module = _guarded(lambda: type.__dict__["__module__"].__get__(kind), "")
    return name if module in ("", "builtins", "__main__") else f"{module}.{name}"


def _message(exception: BaseException) -> str:
    return _guarded(lambda: str(exception), _UNPRINTABLE)


def _code(exception: BaseException, redactor: Redactor) -> str | None:
    """`code` of ours and of applications' errors, `sqlstate` of database drivers'."""
    return _code_in(exception, "code", redactor) or _code_in(exception, "sqlstate", redactor)


def _code_in(exception: BaseException, name: str, redactor: Redactor) -> str | None:
    try:
        value = getattr(exception, name, None)
        if type(value) is int:
            return str(value)
        return _clean(str.__str__(value), redactor, NAME_LIMIT) if isinstance(value, str) else None
    except BaseException:  # it may be a property that raises anything
        return None


def _stack(exception: BaseException) -> str:
    return "\n".join(_lines(exception, 0, set()))


def _lines(exception: BaseException, depth: int, seen: set[int]) -> Iterator[str]:
    """A chain of exceptions, the oldest first, as Python prints it."""
    chain: list[tuple[BaseException, str]] = []
    link: BaseException | None = exception
    while link is not None and id(link) not in seen and len(chain) < CHAIN_LIMIT:
        if len(seen) >= EXCEPTION_LIMIT:
            break
        seen.add(id(link))
        origin, words = _origin(link)
        chain.append((link, words))
        link = origin
    if link is not None:
        yield "[... the chain goes on ...]"
    oldest = len(chain) - 1
    for at in range(oldest, -1, -1):
        one, words = chain[at]
        if at < oldest:
            yield f"\n{words}\n"
        yield from _one(one, depth, seen)


def _origin(exception: BaseException) -> tuple[BaseException | None, str]:
    """What this one was raised from, and how Python words that."""
    cause = _slot(exception, "__cause__")
    if isinstance(cause, BaseException):
        return cause, "The above exception was the direct cause of the following exception:"
    context = _slot(exception, "__context__")
    if isinstance(context, BaseException) and not _slot(exception, "__suppress_context__"):
        return context, "During handling of the above exception, another exception occurred:"
    return None, ""


def _slot(exception: BaseException, name: str) -> Any:
    """The attribute that the interpreter keeps, whatever a subclass makes of its name."""
    return BaseException.__dict__[name].__get__(exception)


def _one(exception: BaseException, depth: int, seen: set[int]) -> Iterator[str]:
    trace = _slot(exception, "__traceback__")
    if isinstance(trace, TracebackType):
        yield "Traceback (most recent call last):"
        yield from _frames(trace)
    message = _message(exception)
    # Bounded here already: a stack has room for many of them.
    message = storable(message, TEXT_LIMIT // 4)
    yield f"{_full_name(exception)}: {message}" if message else _full_name(exception)
    yield from _notes(exception)
    if isinstance(exception, BaseExceptionGroup):
        yield from _members(exception, depth, seen)


def _frames(trace: TracebackType) -> Iterator[str]:
    """Head and tail of the stack: what called, and where it broke."""
    head: list[str] = []
    tail: deque[tuple[CodeType, int]] = deque(maxlen=FRAME_LIMIT // 2)
    count = 0
    step: TracebackType | None = trace
    while step is not None:
        count += 1
        if len(head) < FRAME_LIMIT // 2:
            head.append(_frame(step.tb_frame.f_code, step.tb_lineno))
        else:
            tail.append((step.tb_frame.f_code, step.tb_lineno))
        step = step.tb_next
    yield from head
    if count > len(head) + len(tail):
        yield f"  [... {count - len(head) - len(tail)} frames left out ...]"
    for code, line in tail:
        yield _frame(code, line)


def _frame(code: CodeType, line: int) -> str:
    where = f'  File "{code.co_filename}", line {line}, in {code.co_qualname}'
    # Without the frame's globals: a __loader__ of the application's is not asked for its source.
    source = _guarded(lambda: linecache.getline(code.co_filename, line).strip(), "")
    return f"{where}\n    {source[:_LINE_LIMIT]}" if source else where


def _notes(exception: BaseException) -> Iterator[str]:
    try:
        notes = getattr(exception, "__notes__", None)
    except BaseException:  # a property again
        return
    if type(notes) is list:
        for note in notes[:GROUP_WIDTH]:
            yield storable(_guarded(partial(str, note), _UNPRINTABLE), TEXT_LIMIT // 8)


def _members(group: BaseExceptionGroup[BaseException], depth: int, seen: set[int]) -> Iterator[str]:
    members = BaseExceptionGroup.__dict__["exceptions"].__get__(group)
    if depth + 1 >= GROUP_DEPTH:
        yield f"  [... {len(members)} exceptions deeper than {GROUP_DEPTH} groups left out ...]"
        return
    for number, member in enumerate(members[:GROUP_WIDTH], start=1):
        yield f"  ---- exception {number} of {len(members)} ----"
        for text in _lines(member, depth + 1, seen):
            yield "\n".join(f"  {line}" for line in text.split("\n"))
    if len(members) > GROUP_WIDTH:
        yield f"  [... {len(members) - GROUP_WIDTH} more exceptions left out ...]"
