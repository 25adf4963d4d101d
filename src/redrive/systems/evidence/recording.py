"""What is written when an attempt is settled, in the same transaction: artifact, roll-up of its row, result event.

The outcome of the engine's message is the outcome of the attempt: delivered is ATTACHED, a dead letter is FAILED with
the code of the taxonomy. What is held or rests has no outcome yet. All of it is one call of the one writer,
`record_attempt_1` of `sql/verbs/attempts.sql`, which records an attempt once.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from redrive import Attempt, Delivered, Settlement
from redrive.kit.transport import Record
from redrive.systems.evidence.case_api import ATTEMPT_OVER, ATTEMPT_UNKNOWN
from redrive.systems.evidence.case_codes import error_code_of
from redrive.systems.evidence.settings import EvidenceSettings

_RECORD: Final = """
SELECT redrive_evidence.record_attempt_1(%s, %s, p_error_code => %s, p_error_message => %s, p_reference => %s,
                                         p_delay_seconds => %s, p_attempts_max => %s)
"""


def recording(settings: EvidenceSettings, random: Random) -> Record:
    """random: for the jitter of the delay before a retry."""

    async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
        outcome = outcome_of(settlement)
        if outcome is not None:
            delay = settings.delay_seconds(attempt.payload["attempt"], random)
            values = [attempt.id, *outcome, delay, settings.max_attempts]
            await conn.execute(_RECORD, values)

    return record


def outcome_of(settlement: Settlement) -> tuple[str, str | None, str | None, str | None] | None:
    """Status, error code, error message, reference; None where the attempt goes on, or is none."""
    answer = settlement.answer
    if settlement.closed == "delivered" and isinstance(answer, Delivered):
        return "ATTACHED", None, None, answer.reference
    if settlement.park_reason != "dead" or settlement.error_class in (ATTEMPT_OVER, ATTEMPT_UNKNOWN):
        return None
    return "FAILED", error_code_of(settlement.error_class or "SYSTEM_ERROR"), _text(answer), None


def _text(answer: Any) -> str | None:
    return str(getattr(answer, "text", "")) or None
