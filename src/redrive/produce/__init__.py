"""For producers: enqueue in the caller's own transaction, on the caller's connection; status, wait and cancel.

`api` has the functions that enqueue, `protocol` what they do without I/O, `payload` and `bounds` what is accepted,
`keys` the deterministic keys, `message_status` the functions that ask, wait and cancel, `drivers` which connections are
known. A driver is imported only after one of its connections was handed in: a producer needs nothing else.
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
