"""Reads rows that Python cannot represent, so that one of them never takes the others along.

`enqueue` refuses such values; an earlier version or the owner of the tables may have written them. A time outside
Python's years becomes the nearest one, unreadable JSON an empty `Undecodable`. Lists show such a row; a claim parks it.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import AsyncConnection, DataError
from psycopg.abc import Buffer
from psycopg.types.datetime import TimestamptzBinaryLoader, TimestamptzLoader
from psycopg.types.json import JsonBinaryLoader, JsonLoader

EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
LATEST: Final = datetime.max.replace(tzinfo=UTC)


class Undecodable(dict[str, Any]): ...


class _Json(JsonLoader):
    def load(self, data: Buffer) -> Any:
        return _read(super().load, data)


class _JsonBinary(JsonBinaryLoader):
    def load(self, data: Buffer) -> Any:
        return _read(super().load, data)


def _read(load: Callable[[Buffer], Any], data: Buffer) -> Any:
    try:
        return load(data)
    except (ValueError, RecursionError):
        return Undecodable()


class _Moment(TimestamptzLoader):
    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except DataError:
            text = bytes(data)
            return EARLIEST if text.endswith(b"BC") or text.startswith(b"-") else LATEST


class _MomentBinary(TimestamptzBinaryLoader):
    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except DataError:
            return EARLIEST if int.from_bytes(bytes(data), "big", signed=True) < 0 else LATEST


def register(conn: AsyncConnection[Any]) -> None:
    for loader in (_Json, _JsonBinary):
        conn.adapters.register_loader("json", loader)
    for moments in (_Moment, _MomentBinary):
        conn.adapters.register_loader("timestamptz", moments)
