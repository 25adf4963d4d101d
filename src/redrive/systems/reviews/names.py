"""Names that the parts of the system share: stages, destinations, keys and token seeds of notifications."""

from __future__ import annotations

import hashlib
from typing import Final

TENANT: Final = "default"
PIPELINE: Final = "reviews"
FETCH: Final = "fetch"
LLM: Final = "llm"
NOTIFY: Final = "notify"
STAGES: Final = (FETCH, LLM, NOTIFY)
DESTINATION_PREFIX: Final = f"{PIPELINE}."
FIRST_DESTINATION: Final = f"{PIPELINE}.{FETCH}"


def destination_of(provider: str) -> str:
    """Where the notifications of a provider go."""
    return f"{PIPELINE}.{NOTIFY}.{provider}"


def triple_of(changelist_id: str, recipient: str, review_version: int) -> str:
    """Key and token seed of a notification (R-11). Lengths go first, so that no two triples run together.

    Keys are shown to people who may not see addresses (G-15): the recipient is in the digest only.
    """
    parts = f"{len(changelist_id)}:{changelist_id}:{len(recipient)}:{recipient}:{review_version}"
    return f"notify:{changelist_id}:{review_version}:{hashlib.sha256(parts.encode()).hexdigest()}"
