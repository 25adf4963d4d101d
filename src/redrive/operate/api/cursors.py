"""Where a page ended, as text that means nothing to who carries it; made and read here only."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.errors import InvalidValue
from redrive.message import MessageId
from redrive.store.reads.models import GroupPosition, KeyGroup, KeyPosition, ParkedPosition

LENGTH_MAX = 500


def encoded(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps([str(part) for part in parts]).encode()).decode().rstrip("=")


def of_id(position: UUID) -> str:
    return encoded(position)


def of_number(position: int) -> str:
    return encoded(position)


def of_parked(position: ParkedPosition) -> str:
    return encoded(position.parked_at.isoformat(), position.id)


def of_group(position: GroupPosition) -> str:
    return encoded(position.last_seen_at.isoformat(), position.fingerprint.hex())


def of_key(position: KeyPosition) -> str:
    return encoded(position.group.value, position.lane)


def to_id(cursor: str | None) -> MessageId | None:
    return None if cursor is None else _read(cursor, lambda one: MessageId(UUID(one)))


def to_number(cursor: str | None) -> int | None:
    return None if cursor is None else _read(cursor, _number)


def to_parked(cursor: str | None) -> ParkedPosition | None:
    return None if cursor is None else _read(cursor, lambda at, id_: ParkedPosition(_moment(at), MessageId(UUID(id_))))


def to_group(cursor: str | None) -> GroupPosition | None:
    return None if cursor is None else _read(cursor, lambda at, one: GroupPosition(_moment(at), bytes.fromhex(one)))


def to_key(cursor: str | None) -> KeyPosition | None:
    return None if cursor is None else _read(cursor, lambda group, lane: KeyPosition(KeyGroup(group), _number(lane)))


def _read(cursor: str, made: Any) -> Any:
    try:
        if len(cursor) > LENGTH_MAX:
            raise ValueError
        parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise ValueError
        return made(*parts)
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise InvalidValue("`after` is no position; use the `next` of a page.") from None


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError
    return moment


def _number(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**63:
        raise ValueError
    return number
