"""Statements in the caller's transaction, on every kind of connection that `redrive.enqueue` takes.

A generator yields `(sql, values)`, gets the rows and returns the result; `run` and `arun` carry it over the driver.
`as_headers` checks the headers of a message and adds the current trace.
"""

from collections.abc import Mapping

from redrive.produce import bounds
from redrive.produce.bounds import shown
from redrive.produce.drivers import arun, run
from redrive.produce.payload import canonical_json
from redrive.produce.protocol import Steps
from redrive.produce.trace_context import with_trace_context

__all__ = ["Steps", "arun", "as_headers", "canonical_json", "run", "shown"]


def as_headers(headers: Mapping[str, str]) -> str | None:
    """Headers of a message as JSON, with the context of the current trace; None where there are none."""
    return bounds.headers(with_trace_context(headers))
