"""Names that the parts of the tenant outbox share."""

from __future__ import annotations

from typing import Final

SYSTEM: Final = "tenant"
DESTINATION_PREFIX: Final = "tenant."
OUTBOX_DEFAULT: Final = "events"
LOGGER: Final = "redrive.tenant"


def destination_of(outbox: str) -> str:
    return f"{DESTINATION_PREFIX}{outbox}"
