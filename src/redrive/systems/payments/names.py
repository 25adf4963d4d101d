"""Names that the parts of the system share. The same rules in SQL: `sql/verbs/submit.sql`."""

from typing import Final, Literal

TENANT: Final = "default"
DESTINATION_PREFIX: Final = "payments."
ORDER_PREFIX: Final = "payments/"
# Beside the payload: an edit changes that, and not this.
AMOUNT_HEADER: Final = "payment-amount"

Meaning = Literal["delivered", "retryable", "terminal", "unknown"]


def destination_of(rail_type: str) -> str:
    return f"{DESTINATION_PREFIX}{rail_type}"


def order_of(participant_id: str) -> str:
    """The ordering key of a participant: his payments on all rails are one line."""
    return f"{ORDER_PREFIX}{participant_id}"


def key_of(instruction_id: str, idempotency_key: str) -> str:
    """The engine's key of a payment. The length goes first, so that no two pairs run together."""
    return f"payment:{len(instruction_id)}:{instruction_id}:{idempotency_key}"
