"""Text, stack and context that an outcome leaves for operators, redacted: of an exception its type, not its text."""

import hashlib
from typing import Any

from redrive import redact
from redrive.answers import Answer
from redrive.message import Attempt
from redrive.policy import Settlement, SettlementKind


def text_of(answer: Answer | None, failure: BaseException | None, *, limit: int) -> str | None:
    given = getattr(answer, "text", "")
    if given:
        return redact.text(given, limit=limit)
    return redact.error_type(failure) if failure else None


def context_of(
    attempt: Attempt, settlement: Settlement, failure: BaseException | None, rules_version: str
) -> dict[str, Any]:
    if settlement.kind is not SettlementKind.PARK:
        return {}
    return redact.context(
        {
            "message_id": attempt.id,
            "attempt": attempt.number,
            "spent": settlement.spent,
            "lookups": settlement.lookups,
            "crashes": attempt.crashes,
            "stage": attempt.stage,
            "version": attempt.version,
            "token": attempt.token,
            "in_doubt": settlement.in_doubt,
            "exhausted": settlement.exhausted,
            "upstream_code": getattr(settlement.answer, "code", None),
            "error_type": redact.error_type(failure) if failure else None,
            "content_type": attempt.content_type,
            "body_bytes": len(attempt.body),
            "body_sha256": hashlib.sha256(attempt.body).hexdigest(),
            "policy_version": rules_version,
        }
    )
