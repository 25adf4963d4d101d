"""An attempt made by hand, to call a handler or a transport without a relay."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from redrive.message import FIRST_STAGE, FIRST_VERSION, Attempt, MessageId
from redrive.produce.payload import encode


def make_attempt(payload: Any, **values: Any) -> Attempt:
    """The first claim of a message with this payload; any field of `Attempt` may be given."""
    body, content_type = encode(payload)
    now = datetime.now(UTC)  # a test stands in for the database here
    plain: dict[str, Any] = {
        "id": MessageId(uuid4()),
        "number": 1,
        "destination": "test",
        "tenant": "default",
        "kind": "",
        "key": None,
        "body": body,
        "content_type": content_type,
        "stage": FIRST_STAGE,
        "version": FIRST_VERSION,
        "spent": 0,
        "lookups": 0,
        "crashes": 0,
        "alone": False,
        "claimed_at": now,
        "created_at": now,
        "lease_seconds": 60.0,
    }
    return Attempt(**{**plain, **values})
