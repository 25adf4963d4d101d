"""A proxy in front of PostgreSQL on a socket of its own: that of the proofs, `redrive.kit.proof.proxy`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redrive.kit.proof.proxy import Proxy
from tests.support.scratch import scratch

__all__ = ["Proxy", "proxied"]


@asynccontextmanager
async def proxied(dsn: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A running proxy, and the DSN of the same database through it."""
    with scratch("redrive-proxy-") as directory:
        async with Proxy(directory, dsn) as proxy:
            yield proxy, proxy.dsn
