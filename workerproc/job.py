"""A job as the application declares it: `@jobctl.job(...)` above a function.

The declaration says once what holds for every job of the type, and everything wrong with it is said
when the module is imported, not when the first job runs at night. What is decorated stays callable
like the function that it was, which is how tests call it; `enqueue` is how everybody else does.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    Never,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from jobctl.store import callers
from jobctl.store.callers import AsyncConnection, Connection
from jobctl.store.durations import Duration, parse_duration
from jobctl.store.enqueue import enqueue_one
from jobctl.store.job_type import JobType
from jobctl.store.new_job import FOREVER, OPTIONS, NewJob, new_job
from jobctl.store.sizes import Size, parse_size
from jobctl.workerproc.beside import Upgrade, check_hook, check_upgrade
from jobctl.workerproc.context import Context
from jobctl.workerproc.errors import DeclarationError
from jobctl.workerproc.registry import registry
from jobctl.workerproc.retry import Retry

P = ParamSpec("P")
R = TypeVar("R")
Handler = Callable[Concatenate[Context, P], R]

#: Words of `enqueue` that a handler's parameter cannot have.
RESERVED = OPTIONS
_DEFAULT_RETRY = Retry()
_Kind = inspect.Parameter


class Job(Generic[P, R]):
    """A declared job type and its handler."""

    __name__: str
    __qualname__: str

    def __init__(
        self,
        handler: Handler[P, R],
        job_type: JobType,
        retry: Retry,
        on_cancel: Callable[..., Any] | None = None,
        upgrade: Upgrade | None = None,
    ) -> None:
        functools.update_wrapper(self, handler, updated=())
        self.handler = handler
        self.job_type = job_type
        self.retry = retry
        self.on_cancel = on_cancel
        self.upgrade = upgrade
        self.has_commit_point = job_type.cancel == "before_commit"
        self._signature = inspect.signature(handler)
        arguments = list(self._signature.parameters.values())[1:]
        self._parameters = [one.name for one in arguments if one.kind is not _Kind.VAR_KEYWORD]
        self._closed = len(self._parameters) == len(arguments)  # it has no **arguments
        self._allowed = frozenset(self._parameters)
        self._required = frozenset(one.name for one in arguments if one.default is _Kind.empty)

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the handler, here and now."""
        return self.handler(ctx, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<jobctl.Job {self.job_type.name}>"

    @overload
    def enqueue(self, conn: Connection, /, **options_and_args: Any) -> int: ...
    @overload
    def enqueue(self, conn: Context, /, **options_and_args: Any) -> NewJob: ...
    @overload
    def enqueue(self, conn: AsyncConnection, /, **options_and_args: Any) -> Awaitable[int]: ...
    def enqueue(
        self, conn: Connection | AsyncConnection | Context, /, **options_and_args: Any
    ) -> int | Awaitable[int] | NewJob:
        """Enqueues a job of this type in the caller's transaction and returns its id.

        With an async connection the id has to be awaited; with a handler's `ctx` the job is a next
        step, and its item is returned: see `Context.enqueue`. `key`, `subject`, `queue`,
        `priority`, `delay`, `run_at`, `timeout`, `max_attempts`, `after` and `on_dead` are options,
        everything else is an argument of the handler. Raises TypeError when the arguments are not
        the handler's, InvalidJob for other mistakes; nothing was sent then.
        """
        item = self.item(**options_and_args)
        return conn.enqueue(item) if isinstance(conn, Context) else enqueue_one(conn, item)

    async def aenqueue(self, conn: AsyncConnection, /, **options_and_args: Any) -> int:
        """`enqueue`, for those who like to see that a coroutine is one."""
        callers.require_async(conn, "aenqueue", "enqueue")
        return await enqueue_one(conn, self.item(**options_and_args))

    def item(self, /, **options_and_args: Any) -> NewJob:
        """One job for `jobctl.enqueue_many`, checked as `enqueue` checks it."""
        options = {name: options_and_args.pop(name, None) for name in OPTIONS}
        self.bind(options_and_args)
        kind = self.job_type
        declared = {"queue": kind.queue, "priority": kind.priority, "limit": kind.limit_key}
        for name, value in declared.items():
            if options[name] is None:
                options[name] = value
        return new_job(
            kind.name,
            options_and_args,
            schema_version=kind.schema_version,
            key_ttl_seconds=FOREVER if kind.key_ttl_seconds is None else kind.key_ttl_seconds,
            **options,
        )

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, if the handler can be called with them. Raises TypeError if not."""
        # The road of every job, 8 us shorter than asking the signature.
        if self._closed and self._required <= arguments.keys() <= self._allowed:
            return dict(arguments)
        try:
            self._signature.bind(None, **arguments)
        except TypeError as error:
            raise TypeError(self._cannot_be_called(arguments, str(error))) from None
        return dict(arguments)

    def _cannot_be_called(self, arguments: Mapping[str, Any], why: str) -> str:
        takes = ", ".join(self._parameters) or "no arguments"
        sentence = f"{self.job_type.name} cannot be called like this: {why}. It takes {takes}"
        for name in arguments:
            if name not in self._parameters:
                close = difflib.get_close_matches(name, [*self._parameters, *OPTIONS], n=1)
                if close:
                    return f"{sentence}; did you mean {close[0]!r}?"
        return sentence


class _Declare(Protocol):
    """What `@jobctl.job(...)` leaves to be done: take the function."""

    @overload
    def __call__(self, handler: Handler[P, R], /) -> Job[P, R]: ...
    @overload
    def __call__(self, handler: Callable[..., R], /) -> Job[..., R]: ...


@overload
def job(handler: Handler[P, R], /) -> Job[P, R]: ...
@overload
def job(handler: Callable[..., R], /) -> Job[..., R]: ...
@overload
def job(
    *,
    name: str | None = None,
    queue: str = "default",
    priority: int = 0,
    timeout: Duration = "5m",
    soft_timeout: Duration | None = None,
    retry: Retry = ...,
    schema_version: int = 1,
    key_ttl: Duration = "24h",
    owner: str | None = None,
    link: str | None = None,
    memory: Size | None = None,
    cpu: Duration | None = None,
    ack: Literal["late", "early"] = "late",
    cancel: Literal["anywhere", "before_commit"] = "anywhere",
    on_cancel: Callable[..., Any] | None = None,
    upgrade: Upgrade | None = None,
    limit: str | None = None,
) -> _Declare: ...
def job(
    handler: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    queue: str = "default",
    priority: int = 0,
    timeout: Duration = "5m",
    soft_timeout: Duration | None = None,
    retry: Retry = _DEFAULT_RETRY,
    schema_version: int = 1,
    key_ttl: Duration = "24h",
    owner: str | None = None,
    link: str | None = None,
    memory: Size | None = None,
    cpu: Duration | None = None,
    ack: Literal["late", "early"] = "late",
    cancel: Literal["anywhere", "before_commit"] = "anywhere",
    on_cancel: Callable[..., Any] | None = None,
    upgrade: Upgrade | None = None,
    limit: str | None = None,
    **unknown: Never,
) -> Any:
    """Declares a job type: a plain function or a coroutine function whose first parameter is ctx.

    `name` is the function's unless it is given. `priority` is 0 to 3, 3 runs first. When `timeout`
    is over the process is killed; `soft_timeout` raises SoftTimeout in the handler before that.
    `schema_version` grows when the arguments change. `key_ttl` is how long a key is held after its
    job has ended, "forever" for always. `owner` is whom the dead letters belong to, `link` a
    template of a URL with {subject}. `memory` and `cpu` are what the slot's process may hold and
    use while it runs one of these jobs; above that it is killed. `limit` is the key of a limit that
    they share, unless an enqueue names another (`jobctl limits`). `ack="early"`: at most once; what
    is lost is dead and never runs again. `cancel="before_commit"`: not once `ctx.commit_point()`
    has returned. `on_cancel(ctx, **arguments)` makes good what a cancelled job may have begun.
    `upgrade(args, version)` brings arguments of an older schema version up to this one. Raises
    DeclarationError, at import.
    """

    def declare(function: Callable[..., R]) -> Job[..., R]:
        where = _checked_handler(function)
        _refuse_unknown(unknown, where)
        if not isinstance(retry, Retry):
            raise DeclarationError(f"{where}: retry must be a jobctl.Retry, not {retry!r:.60}")
        try:
            if on_cancel is not None:
                check_hook(on_cancel, function)
            if upgrade is not None:
                check_upgrade(upgrade)
            job_type = JobType(
                name=function.__name__ if name is None else name,
                queue=queue,
                priority=priority,
                timeout_seconds=_seconds("timeout", timeout),
                soft_timeout_seconds=_optional_seconds("soft_timeout", soft_timeout),
                max_attempts=retry.max_attempts,
                max_crashes=retry.max_crashes,
                min_backoff_seconds=retry.min_backoff_seconds,
                max_backoff_seconds=retry.max_backoff_seconds,
                max_doublings=retry.max_doublings,
                max_elapsed_seconds=retry.max_elapsed_seconds,
                ack=ack,
                schema_version=schema_version,
                key_ttl_seconds=None if key_ttl == "forever" else _seconds("key_ttl", key_ttl),
                owner=owner,
                link=link,
                memory_bytes=_optional_size("memory", memory),
                cpu_seconds=_optional_seconds("cpu", cpu),
                cancel=cancel,
                on_cancel=on_cancel is not None,
                limit_key=limit,
            )
        except ValueError as error:
            raise DeclarationError(f"{where}: {error}") from None
        declared = Job(function, job_type, retry, on_cancel, upgrade)
        registry.register(declared)
        return declared

    if handler is None:
        return declare
    if isinstance(handler, str):
        raise DeclarationError(
            f"@jobctl.job takes its options by name: @jobctl.job(name={handler!r})"
        )
    return declare(handler)


_OPTIONS = tuple(
    one.name for one in inspect.signature(job).parameters.values() if one.kind is _Kind.KEYWORD_ONLY
)


def _checked_handler(function: Any) -> str:
    """Where the function is, for sentences. Raises DeclarationError when it can be no handler."""
    if not inspect.isfunction(function):
        raise DeclarationError(f"@jobctl.job belongs above a function, not on {function!r:.80}")
    code = function.__code__
    where = (
        f"{function.__module__}.{function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
    )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DeclarationError(
            f"{where} is a generator, so calling it does nothing: return instead of yielding"
        )
    if function.__name__ == "<lambda>":
        raise DeclarationError(f"{where}: a lambda has no name for its job type: use def")
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or not _is_context(parameters[0]):
        found = f"not {parameters[0].name!r}" if parameters else "and it has none"
        raise DeclarationError(
            f"{where}: the first parameter of a handler must be ctx (a jobctl.Context), {found}"
        )
    for parameter in parameters[1:]:
        if parameter.kind in (_Kind.POSITIONAL_ONLY, _Kind.VAR_POSITIONAL):
            raise DeclarationError(
                f"{where}: arguments come by name, so {parameter} cannot be filled: make it a "
                "plain parameter"
            )
        if parameter.name in RESERVED and parameter.kind is not _Kind.VAR_KEYWORD:
            raise DeclarationError(
                f"{where}: the parameter {parameter.name!r} has the name of an option of enqueue: "
                f"call it something else, such as {parameter.name}_"
            )
    return where


def _is_context(parameter: inspect.Parameter) -> bool:
    if parameter.kind not in (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD):
        return False
    annotation = parameter.annotation
    kind = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return parameter.name in ("ctx", "_ctx", "_", "context") or kind.endswith("Context")


def _refuse_unknown(unknown: Mapping[str, object], where: str) -> None:
    for option in unknown:
        close = difflib.get_close_matches(option, _OPTIONS, n=1)
        retry = difflib.get_close_matches(option, tuple(Retry.__dataclass_fields__), n=1)
        if close:
            hint = f"did you mean {close[0]!r}?"
        elif retry:
            hint = f"it belongs into retry=jobctl.Retry({retry[0]}=...)"
        else:
            hint = f"there are {', '.join(_OPTIONS)}"
        raise DeclarationError(f"{where}: @jobctl.job has no option {option!r}; {hint}")


def _seconds(option: str, value: Duration) -> float:
    try:
        return parse_duration(value).total_seconds()
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


def _optional_seconds(option: str, value: Duration | None) -> float | None:
    return None if value is None else _seconds(option, value)


def _optional_size(option: str, value: Size | None) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
