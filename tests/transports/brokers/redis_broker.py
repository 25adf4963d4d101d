"""Valkey as the tests of transports use it: conditions, and what a stream holds."""

from __future__ import annotations

from typing import Any

from redrive.kit.proof.brokers import redis
from redrive.testing import Condition
from redrive.transports.redis import RedisTransport


class RedisBroker(redis.RedisServer):
    def transport(self, port: int, place: str, **options: Any) -> RedisTransport:
        return redis.transport(port, place, **options)

    def set_condition(self, place: str, condition: Condition) -> None:
        with self.client() as client:
            client.config_set("maxmemory", 1 if condition is Condition.BUSY else 0)
            if condition is Condition.REFUSING:
                client.set(place, "no stream")
            elif client.type(place) == b"string":
                client.delete(place)

    def stored(self, place: str) -> list[str]:
        return [fields[b"idempotency-key"].decode() for _, fields in self.read(place)]

    def read(self, place: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
        with self.client() as client:
            return list(client.xrange(place)) if client.type(place) == b"stream" else []
