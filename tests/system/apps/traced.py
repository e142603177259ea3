"""An app that traces, with the SDK's own exporter to memory; and a job that tells what is in it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import jobctl
import jobctl.otel
from jobctl import Retry

FOLDER = Path(os.environ["JOBCTL_TEST_FOLDER"])
EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))
jobctl.otel.instrument(PROVIDER)
TRACER = trace.get_tracer("app", tracer_provider=PROVIDER)


@jobctl.job(queue="mail", retry=Retry(max_attempts=3, min_backoff="10ms", max_backoff="20ms"))
def fail_once(ctx: jobctl.Context, secret: str) -> None:
    with TRACER.start_as_current_span("inside"):
        if ctx.attempt == 1:
            raise ValueError(secret)


@jobctl.job(queue="mail")
async def later(ctx: jobctl.Context) -> None:
    with TRACER.start_as_current_span("inside later"):
        pass


@jobctl.job(queue="mail", retry=Retry(max_attempts=3))
def snooze(ctx: jobctl.Context) -> None:
    raise jobctl.Snooze("1h")


@jobctl.job
def tell(ctx: jobctl.Context) -> None:
    """Writes down the spans that have ended in this process."""
    told = [_told(span) for span in EXPORTER.get_finished_spans()]
    (FOLDER / "spans.new").write_text(json.dumps(told))
    (FOLDER / "spans.new").rename(FOLDER / "spans")


def _told(span: ReadableSpan) -> dict[str, Any]:
    assert span.context is not None
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": f"{span.context.trace_id:032x}",
        "span": f"{span.context.span_id:016x}",
        "parent": None if span.parent is None else f"{span.parent.span_id:016x}",
        "links": [
            f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in span.links
        ],
        "status": span.status.status_code.name,
        "attributes": dict(span.attributes or {}),
        "events": len(span.events),
        "json": span.to_json(),
    }
