"""Producing: a message in the caller's own transaction, on the caller's own connection (seam S1); what became of it.

`call` has the functions that enqueue, `steps` what they do without I/O, `payload` and `bounds` what is accepted, `keys`
the deterministic keys, `follow` the functions that ask, wait and cancel, `drivers` which connections are known. No
driver is imported before a connection of it was handed in: a producer needs nothing but the standard library and the
driver that it has already.
"""

from redrive.produce.api import aenqueue, aenqueue_many, enqueue, enqueue_many
from redrive.produce.keys import key
from redrive.produce.message_status import acancel, astatus, cancel, status, wait, wait_async

__all__ = [
    "acancel",
    "aenqueue",
    "aenqueue_many",
    "astatus",
    "cancel",
    "enqueue",
    "enqueue_many",
    "key",
    "status",
    "wait",
    "wait_async",
]
