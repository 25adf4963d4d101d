"""Traces: the producer's context travels in the message, and a send is a span that links to it."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import redrive
from redrive import App, Attempt, Terminal
from redrive.operate import logs
from redrive.operate.observe import traces
from redrive.produce.trace_context import with_trace_context
from redrive.store.runtime.postgres import PostgresStore
from tests.relay.harness import Seen, relaying

pytestmark = pytest.mark.req("G-20")


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What the user's SDK would export."""
    provider, kept = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield kept
    provider.shutdown()


async def test_a_send_is_a_span_that_links_to_the_producer_and_is_current_in_the_handler(
    database: str, store: PostgresStore, app: App, exporter: InMemorySpanExporter
) -> None:
    tracer = trace.get_tracer("shop")
    inside: list[trace.SpanContext] = []

    @app.destination("erp")
    async def erp(message: Attempt) -> None:
        inside.append(trace.get_current_span().get_span_context())
        if message.payload["bad"]:
            raise Terminal("HTTP_409", "card 4711-secret")

    seen = Seen()
    traces.subscribe(seen.events)
    with psycopg.connect(database) as conn:
        with tracer.start_as_current_span("checkout") as checkout:
            redrive.enqueue(conn, "erp", {"bad": False}, headers={"x-a": "b"})
            redrive.enqueue(conn, "erp", {"bad": True})
            origin = checkout.get_span_context()
    stream = io.StringIO()
    logs.configure("json", "debug", stream=stream)
    logs.subscribe(seen.events)
    try:
        async with relaying(store, app, seen=seen):
            await seen.until("message.delivered")
            await seen.until("message.parked")
    finally:
        logs.configure("json", "error", stream=io.StringIO())
        logging.getLogger().setLevel(logging.WARNING)
    sent = [span for span in exporter.get_finished_spans() if span.name == "send erp"]
    assert len(sent) == 2
    for span in sent:
        assert (span.kind, span.parent) == (SpanKind.CLIENT, None)
        assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [
            (origin.trace_id, origin.span_id)
        ]
        assert _attributes(span)["messaging.operation.type"] == "send"
        assert _attributes(span)["messaging.destination.name"] == "erp"
    assert {_context(span).span_id for span in sent} == {context.span_id for context in inside}
    failed = next(span for span in sent if span.status.status_code is StatusCode.ERROR)
    assert (_attributes(failed)["error.type"], _attributes(failed)["redrive.outcome"]) == ("HTTP_409", "terminal")
    assert "4711" not in failed.to_json()
    parked = next(json.loads(line) for line in stream.getvalue().splitlines() if '"message.parked"' in line)
    assert parked["trace_id"] == trace.format_trace_id(_context(failed).trace_id)
    assert parked["span_id"] == trace.format_span_id(_context(failed).span_id)


def _context(span: ReadableSpan) -> trace.SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def _attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_a_context_that_the_producer_gave_is_left_alone(exporter: InMemorySpanExporter) -> None:
    with trace.get_tracer("shop").start_as_current_span("checkout"):
        assert with_trace_context({"traceparent": "mine"}) == {"traceparent": "mine"}
        assert with_trace_context([1]) == [1]  # refused later, with a sentence
        assert set(with_trace_context(None)) == {"traceparent"}
    assert with_trace_context(None) is None


@pytest.mark.parametrize("text", [None, "", "4711-secret", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "00-zz-11-01"])
def test_a_header_that_is_no_context_links_to_nothing(text: str | None) -> None:
    assert traces._links(text) == []


def test_nobody_who_does_not_use_it_loads_it() -> None:
    code = "import sys, redrive.produce.psycopg, redrive.operate.cli.relay; print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
