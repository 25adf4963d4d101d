"""What tests of your own stand on: a store without a database, and a clock that moves when told to.

`ModelStore` keeps the promises of `redrive.ports.Store` in memory (the conformance suite holds PostgreSQL
and the model to the same ones); `ManualClock` is a `redrive.ports.Clock`. Nothing here reads the wall
clock or draws a random number of its own, so a run with the same seed is the same run.
"""

from redrive.testing.clock import ManualClock
from redrive.testing.kit import (
    Drained,
    Enqueued,
    aassert_enqueued,
    adrain,
    aenqueued,
    assert_enqueued,
    drain,
    enqueued,
)
from redrive.testing.model import ModelStore

__all__ = [
    "Drained",
    "Enqueued",
    "ManualClock",
    "ModelStore",
    "aassert_enqueued",
    "adrain",
    "aenqueued",
    "assert_enqueued",
    "drain",
    "enqueued",
]
