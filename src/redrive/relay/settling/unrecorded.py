"""Outcomes whose answer is known and whose `record` did not run: they keep the answer and are never sent again."""

import json
from dataclasses import replace
from typing import Any

from redrive import answers, redact
from redrive.answers import Advance, Answer, Delivered
from redrive.message import ParkReason
from redrive.policy import Settlement, SettlementKind
from redrive.ports import Outcome


def unrecorded(outcome: Outcome, code: str, cause: BaseException | None) -> Outcome:
    """Parked; `repair` runs `record` again with the kept answer."""
    settlement = outcome.settlement
    assert settlement.answer is not None
    parked = Settlement(
        kind=SettlementKind.PARK,
        answer=settlement.answer,
        park_reason=ParkReason.UNRECORDED,
        error_class=code,
        spent=outcome.attempt.spent,
        lookups=outcome.attempt.lookups,
        in_doubt=settlement.in_doubt,
        halts=True,
    )
    return replace(
        outcome,
        settlement=parked,
        text=redact.error_type(cause) if cause else None,
        stack=redact.stack(cause) if cause else None,
        context=redact.context(
            {
                "message_id": outcome.attempt.id,
                "attempt": outcome.attempt.number,
                "stage": outcome.attempt.stage,
            }
        ),
        kept_answer=_kept(settlement.answer),
    )


def to_be_recorded(outcome: Outcome) -> Outcome:
    """Back in pending, nothing spent; the next claim runs `record` with the kept answer."""
    settlement = outcome.settlement
    assert settlement.answer is not None
    back = Settlement(
        kind=SettlementKind.RETRY,
        answer=settlement.answer,
        error_class="RECORD_WAITS",
        spent=outcome.attempt.spent,
        lookups=outcome.attempt.lookups,
        in_doubt=outcome.attempt.in_doubt,
    )
    return replace(outcome, settlement=back, text=None, stack=None, context={}, kept_answer=_kept(settlement.answer))


def without_content(outcome: Outcome) -> Outcome:
    """Without all that the database may refuse."""
    answer = outcome.settlement.answer
    if isinstance(answer, Delivered | Advance):
        answer = replace(answer, result=None)
    settlement = replace(outcome.settlement, answer=answer)
    return replace(outcome, settlement=settlement, text=None, stack=None, context={})


def _kept(answer: Answer) -> dict[str, Any]:
    """The answer as JSON; a field that is not JSON (a UUID for a reference) is kept as text."""
    return {
        name: value if _is_json(value) else redact.storable(value) for name, value in answers.to_json(answer).items()
    }


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
