"""The statements of the inbox, for `run` and `arun` of `redrive.kit.statements`."""

from redrive.produce.inbox import Deferred, Received, defer, receive

__all__ = ["Deferred", "Received", "defer", "receive"]
