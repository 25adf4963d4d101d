"""A span for every send, linked to the producer's trace (G-20), by OpenTelemetry's messaging conventions.

Kind CLIENT, a link and no parent, because a message may be sent hours later and several times. The span is current
while the handler runs.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import Token
from typing import Any, Final, NamedTuple

from opentelemetry import context, trace
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags

import redrive
from redrive.answers import clean_code
from redrive.events import Events

KEPT_MAX: Final = 10_000  # sends whose ids are kept for the log lines that come after them
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})\Z")

_sent: OrderedDict[str, tuple[str, str]] = OrderedDict()


class _Open(NamedTuple):
    span: Span
    token: Token[context.Context]


def subscribe(events: Events) -> Callable[[], None]:
    tracer = trace.get_tracer("redrive", redrive.__version__)
    spans: dict[tuple[object, object], _Open] = {}

    def note(name: str, values: Mapping[str, Any]) -> None:
        claim = (values["id"], values["attempt"])
        if name == "send.start":
            span = tracer.start_span(
                f"send {values['destination']}",
                kind=SpanKind.CLIENT,
                links=_links(values["traceparent"]),
                attributes=_attributes(values),
            )
            spans[claim] = _Open(span, context.attach(trace.set_span_in_context(span)))
            _keep(str(values["id"]), span.get_span_context())
        elif claim in spans:
            _end(*spans.pop(claim), values)

    return events.subscribe(note, "send.start", "send.stop", "send.exception")


def ids_of(message_id: object) -> tuple[str, str] | None:
    """Trace and span id in hexadecimal: of the current span, else of the last send of that message."""
    current = trace.get_current_span().get_span_context()
    return _hexadecimal(current) if current.is_valid else _sent.get(str(message_id))


def _links(traceparent: object) -> list[Link]:
    found = _TRACEPARENT.match(str(traceparent))
    if found is None:
        return []
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    origin = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return [Link(NonRecordingSpan(origin).get_span_context())] if origin.is_valid else []


def _attributes(values: Mapping[str, Any]) -> dict[str, str | int]:
    return {
        "messaging.system": "redrive",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": values["destination"],
        "messaging.message.id": str(values["id"]),
        "redrive.attempt": values["attempt"],
    }


def _end(span: Span, token: Token[context.Context], values: Mapping[str, Any]) -> None:
    """Records the type of an error, never its text."""
    failed = values.get("error") or values.get("code")
    span.set_attribute("redrive.outcome", str(values.get("answer", "interrupted")).lower())
    if failed:
        span.set_attribute("error.type", clean_code(failed))
        span.set_status(StatusCode.ERROR)
    span.end()
    context.detach(token)


def _keep(message_id: str, sent: SpanContext) -> None:
    if not sent.is_valid:
        return
    _sent[message_id] = _hexadecimal(sent)
    _sent.move_to_end(message_id)
    while len(_sent) > KEPT_MAX:
        _sent.popitem(last=False)


def _hexadecimal(given: SpanContext) -> tuple[str, str]:
    return trace.format_trace_id(given.trace_id), trace.format_span_id(given.span_id)
