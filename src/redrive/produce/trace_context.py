"""The producer's trace, kept with the message as W3C headers (G-20). OpenTelemetry is never imported from here."""

import sys
from collections.abc import Mapping
from typing import Any, Final

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"


def with_trace_context(headers: Any) -> Any:
    """The headers with the current span's context; unchanged where there is none."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not (headers is None or isinstance(headers, Mapping)):
        return headers
    context = trace.get_current_span().get_span_context()
    if not context.is_valid or TRACEPARENT in (headers or {}):
        return headers
    found = {TRACEPARENT: f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
    if context.trace_state:
        found[TRACESTATE] = context.trace_state.to_header()
    return {**(headers or {}), **found}
