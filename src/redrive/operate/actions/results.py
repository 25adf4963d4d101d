"""What became of an action on each message: one result per message, because the others go on where one refuses."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from redrive.errors import ActRefused, ApproverNeeded
from redrive.message import MessageId


class Outcome(StrEnum):
    """asked: noted, not yet in effect. would: a dry run found that it fits."""

    DONE = "done"
    ASKED = "asked"
    WOULD = "would"
    REFUSED = "refused"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActResult:
    """One message of an action. detail: a sentence; next: the command that helps, or empty.

    needs_approver: refused, because the second person has to be an approver.
    """

    id: MessageId
    outcome: Outcome
    detail: str
    next: str = ""
    destination: str | None = None
    kind: str | None = None
    needs_approver: bool = False


def not_found(id_: MessageId) -> ActResult:
    return ActResult(id=id_, outcome=Outcome.NOT_FOUND, detail="there is no such message")


def count(results: Sequence[ActResult]) -> dict[Outcome, int]:
    counted = Counter(result.outcome for result in results)
    return {outcome: counted[outcome] for outcome in Outcome}


def raise_refused(result: ActResult) -> None:
    if result.outcome is Outcome.REFUSED:
        kind = ApproverNeeded if result.needs_approver else ActRefused
        raise kind(f"Message {result.id}: {result.detail}.", next=result.next)
