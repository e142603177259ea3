"""Traces with OpenTelemetry: a span for each enqueue, and one linked to it for each attempt.

An extra, `pip install 'pgjobctl[otel]'`; nothing of jobctl imports this. Call `instrument()` where
jobs are enqueued, and in the app that the slots import. The W3C `traceparent` of the span that
enqueues travels in the job's row, so that every attempt, also after a retry or on another host, is
a trace of its own with a link back: a job that runs tomorrow does not keep today's trace open.

Spans hold what metrics could: queue, type, id, attempt, the class of an error. Never arguments,
never an error's message. An attempt whose process is killed has no span: who is dead cannot send
one; the job's record says how it ended.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

try:
    from opentelemetry import trace
    from opentelemetry.context import Context as Baggage
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError(
        "jobctl.otel needs OpenTelemetry's API: pip install 'pgjobctl[otel]'"
    ) from error

from jobctl.store import tracing as enqueues
from jobctl.store.new_job import NewJob
from jobctl.workerproc import tracing as attempts
from jobctl.workerproc.errors import Cancelled, Snooze
from jobctl.workerproc.frames import Job

__all__ = ["instrument", "uninstrument"]

_PROPAGATOR = TraceContextTextMapPropagator()
#: What a handler raises that is no failure.
_NO_FAILURE = (Cancelled, Snooze)


def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """From now on this process makes spans, with the global provider if none is given.

    In the app that slots import, call it at the top of the module. A processor that starts a thread
    there (`BatchSpanProcessor`) makes jobctl import the app in each slot rather than fork it, as
    any thread does. Calling it again changes the provider.
    """
    tracer = trace.get_tracer("jobctl", tracer_provider=tracer_provider)
    enqueues.producer = _Producer(tracer)
    attempts.consumer = _Consumer(tracer)


def uninstrument() -> None:
    """No more spans."""
    enqueues.producer = attempts.consumer = None


class _Producer:
    """Spans of enqueues."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def __call__(self, jobs: Sequence[NewJob]) -> Iterator[str | None]:
        """One span for the call, whose context all of its jobs carry."""
        types = sorted({job.type for job in jobs})
        attributes: dict[str, Any] = {
            "messaging.system": "jobctl",
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
            "messaging.batch.message_count": len(jobs),
        }
        if len(types) == 1:
            attributes["jobctl.job.type"] = types[0]
        with self._tracer.start_as_current_span(
            f"enqueue {types[0]}" if len(types) == 1 else "enqueue",
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            carrier: dict[str, str] = {}
            _PROPAGATOR.inject(carrier)
            try:
                yield carrier.get("traceparent")
            except BaseException as error:
                _failed(span, error)
                raise


class _Consumer:
    """Spans of attempts."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def __call__(self, job: Job, handler: Callable[..., Any]) -> Callable[..., Any]:
        """`handler` within a span, which lasts until its coroutine has ended if it makes one."""

        def traced(*words: Any, **arguments: Any) -> Any:
            span = self._begin(job)
            with _current(span) as ends:
                result = handler(*words, **arguments)
                if inspect.iscoroutine(result):
                    ends.clear()
                    return _within(span, result)
                return result

        return traced

    def _begin(self, job: Job) -> Span:
        links = []
        if job.traceparent is not None:
            carrier = {"traceparent": job.traceparent}
            where = trace.get_current_span(_PROPAGATOR.extract(carrier, Baggage()))
            if where.get_span_context().is_valid:
                links.append(Link(where.get_span_context()))
        return self._tracer.start_span(
            f"process {job.type}",
            context=Baggage(),  # a trace of its own
            kind=SpanKind.CONSUMER,
            links=links,
            attributes={
                "messaging.system": "jobctl",
                "messaging.destination.name": job.queue,
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.message.id": str(job.job_id),
                "jobctl.job.type": job.type,
                "jobctl.job.attempt": job.attempt,
            },
        )


async def _within(span: Span, coroutine: Coroutine[Any, Any, Any]) -> Any:
    with _current(span):
        return await coroutine


@contextmanager
def _current(span: Span) -> Iterator[list[Span]]:
    """The span is the current one in the block, and ends with it; unless the list is emptied."""
    ends = [span]
    with trace.use_span(
        span, end_on_exit=False, record_exception=False, set_status_on_exception=False
    ):
        try:
            yield ends
        except BaseException as error:
            if not isinstance(error, _NO_FAILURE):
                _failed(span, error)
            raise
        finally:
            for one in ends:
                one.end()


def _failed(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR))
