"""For producers: enqueue, status, wait and cancel on the caller's connection.

A driver is imported only after one of its connections was handed in: a producer needs nothing else.
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
