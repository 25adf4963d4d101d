"""What an operator can see and do: the one layer under command line, API and console.

Reads pass through to `redrive.store.reads.messages`. An act names its messages, its actor and its reason, is tried on
each message on its own, and says of each what became of it: nothing is raised for one message that refuses, because the
others go on. No SQL here and no words about terminals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never

from redrive.errors import ActRefused, ApproverNeeded, InvalidValue, NotFound
from redrive.message import CancelAnswer, MessageId, ParkReason
from redrive.store.reads.keys import gone_out, list_keys, show_key
from redrive.store.reads.messages import (
    find_messages,
    knows_destination,
    list_audit,
    list_destinations,
    list_messages,
    list_parked,
    proofs,
    show_message,
    show_parked,
)
from redrive.store.reads.models import LIMIT_MAX, KeyView, MessageView, ParkedFilter, Proof
from redrive.store.reads.status import status
from redrive.store.runtime.open_store import explained, opened
from redrive.store.runtime.postgres import PostgresStore

__all__ = [
    "FITS",
    "IDS_MAX",
    "Act",
    "ActResult",
    "Outcome",
    "Request",
    "count",
    "explained",
    "find_dead",
    "find_head",
    "list_audit",
    "list_destinations",
    "list_keys",
    "list_messages",
    "list_parked",
    "opened",
    "perform",
    "preview",
    "require_known",
    "show_message",
    "show_parked",
    "skip",
    "status",
]

IDS_MAX: Final = LIMIT_MAX


class Act(StrEnum):
    """What a person can do to a message."""

    REQUEUE = "requeue"
    CANCEL = "cancel"
    CONFIRM = "confirm"
    DENY = "deny"
    REPAIR = "repair"
    DISCARD = "discard"


class Outcome(StrEnum):
    """What became of an act on one message. asked: noted, not yet in effect. would: a dry run found that it fits."""

    DONE = "done"
    ASKED = "asked"
    WOULD = "would"
    REFUSED = "refused"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An act, by whom and why.

    stage: with requeue, where it starts again; None = where it failed. out_of_order: with requeue, also a message whose
    ordering key went on without it. reference: with confirm, the destination's id.
    only: leave alone what is parked for another reason.
    """

    act: Act
    actor: str
    reason: str
    stage: str | None = None
    out_of_order: bool = False
    reference: str | None = None
    only: ParkReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActResult:
    """One message of an act. detail: a sentence; next: the command that helps, or empty.

    needs_approver: refused, because the second person has to be an approver.
    """

    id: MessageId
    outcome: Outcome
    detail: str
    next: str = ""
    destination: str | None = None
    kind: str | None = None
    needs_approver: bool = False


# Where each act leads, from the state (or the reason of a parked message) that it needs.
FITS: Final[Mapping[Act, Mapping[str, str]]] = {
    Act.REQUEUE: {"dead": "pending again, with a fresh budget"},
    Act.CANCEL: {
        "pending": "cancelled: it is not sent any more",
        "leased": "no further attempt; the one under way ends as it ends",
    },
    Act.CONFIRM: dict.fromkeys(("dead", "held"), "delivered, on your word; it is never sent again"),
    Act.DENY: {"held": "pending again: it is sent once more, after a lookup where the destination can be asked"},
    Act.REPAIR: {"unrecorded": "its kept answer is recorded again; it is never sent"},
    Act.DISCARD: {reason.value: "discarded for good" for reason in ParkReason},
}

REFUSED_BY_EVIDENCE: Final = frozenset({Act.REQUEUE, Act.CANCEL, Act.DENY, Act.DISCARD})
_CANCELLED: Final[Mapping[CancelAnswer, str]] = {
    CancelAnswer.CANCELLED: "cancelled: it is not sent any more",
    CancelAnswer.IN_FLIGHT: "not cancelled yet, in flight: if it has begun it ends as it ends, else it is not sent",
    CancelAnswer.IN_DOUBT: "not cancelled yet, in doubt: it may have been sent; it is looked up, and not sent again",
}
_STAYS_OPEN: Final = frozenset({_CANCELLED[CancelAnswer.IN_FLIGHT], _CANCELLED[CancelAnswer.IN_DOUBT]})
_NOT_CANCELLED: Final[Mapping[CancelAnswer, tuple[str, str]]] = {
    CancelAnswer.PARKED: ("parked: it waits for a person", "redrive dead|held|unrecorded discard"),
    CancelAnswer.ALREADY_CLOSED: ("closed already", ""),
    CancelAnswer.BUSY: ("busy: another transaction holds it; nothing was changed", "try again in a second"),
}


async def perform(
    store: PostgresStore,
    request: Request,
    ids: Sequence[MessageId],
    *,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> list[ActResult]:
    """Do it to each message, in the order given. Each is a transaction of its own.

    progress: told the act, and how many of how many are done.
    """
    results = []
    for judged in await preview(store, request, ids):
        results.append(await _perform_one(store, request, judged))
        progress(request.act, len(results), len(ids))
    return results


async def preview(store: PostgresStore, request: Request, ids: Sequence[MessageId]) -> list[ActResult]:
    """What `perform` would do now. Nothing is changed."""
    if not 1 <= len(ids) <= IDS_MAX:
        raise InvalidValue(f"{len(ids)} messages are named; an act takes 1 to {IDS_MAX} at a time.")
    found = await find_messages(store, ids)
    judged = await _proven(store, request, [_judge(request, id_, found.get(id_)) for id_ in ids])
    return await _in_order(store, request, judged) if request.act is Act.REQUEUE else judged


async def _proven(store: PostgresStore, request: Request, judged: Sequence[ActResult]) -> list[ActResult]:
    """P-11: what evidence says was delivered is confirmed, and nothing else; a late answer elsewhere is shown."""
    fitting = [result.id for result in judged if result.outcome is Outcome.WOULD]
    found = await proofs(store, fitting) if fitting and request.act in REFUSED_BY_EVIDENCE else {}
    return [_with_proof(request, result, found[result.id][0]) if result.id in found else result for result in judged]


def _with_proof(request: Request, result: ActResult, proof: Proof) -> ActResult:
    if not proof.counts:
        return replace(result, detail=f"{result.detail}; but a late answer says that it was delivered ({proof})")
    detail = f"something says that it was delivered ({proof}); {request.act} is refused"
    advice = f"redrive held confirm {result.id} --reference {proof.reference or '…'}"
    return replace(result, outcome=Outcome.REFUSED, detail=detail, next=advice)


async def _in_order(store: PostgresStore, request: Request, judged: Sequence[ActResult]) -> list[ActResult]:
    """A message that later ones of its key have overtaken is requeued only if the operator says so."""
    fitting = [result.id for result in judged if result.outcome is Outcome.WOULD]
    later = await gone_out(store, fitting) if fitting else {}
    return [_overtaken(request, result, later[result.id]) if result.id in later else result for result in judged]


def _overtaken(request: Request, result: ActResult, later: int) -> ActResult:
    went = f"{later:,} later {'message' if later == 1 else 'messages'} of its ordering key went out or ended without it"
    if request.out_of_order:
        return replace(result, detail=f"{result.detail}, before all that still wait; {went}")
    return replace(
        result,
        outcome=Outcome.REFUSED,
        detail=went,
        next="the same with --out-of-order, if it may go before all that still wait",
    )


async def find_dead(store: PostgresStore, wanted: ParkedFilter) -> list[MessageId]:
    """The dead letters that a filter selects now, latest parked first; at most its limit."""
    return [record.id for record in (await list_parked(store, wanted)).rows]


async def find_head(store: PostgresStore, tenant: str, order_by: str, *, sequence: int | None = None) -> KeyView:
    """The head of an ordering key that can be skipped. sequence: it has to be this one."""
    found = await show_key(store, tenant, order_by)
    if found is None:
        raise ActRefused(f"Ordering key {order_by!r}: nothing of it waits.", next="redrive keys list")
    if found.state == "in_flight":
        raise ActRefused(
            f"Ordering key {order_by!r}: its head, number {found.sequence}, is being sent just now.",
            next="try again when it has come back",
        )
    if sequence not in (None, found.sequence):
        raise ActRefused(
            f"Ordering key {order_by!r}: its head is number {found.sequence}, not {sequence}; nothing was skipped.",
            next="redrive keys skip … --dry-run",
        )
    proven = [proof for proof in (await proofs(store, [found.head])).get(found.head, ()) if proof.counts]
    if proven and found.state != ParkReason.UNRECORDED:
        raise ActRefused(
            f"Ordering key {order_by!r}: something says that its head was delivered ({proven[0]}); skip is refused.",
            next=f"redrive held confirm {found.head} --reference {proven[0].reference or '…'}",
        )
    return found


async def skip(store: PostgresStore, head: KeyView, *, actor: str, reason: str) -> None:
    """Close this head for good, so that its key goes on; refused if the key has another one by now."""
    await store.skip(head.tenant, head.order_by, sequence=head.sequence, actor=actor, reason=reason)


async def require_known(store: PostgresStore, destination: str) -> None:
    """Raises NotFound for a destination that no relay registered and that has nothing open."""
    if not await knows_destination(store, destination):
        raise NotFound(f"There is no destination {destination!r}.", next="redrive destinations list")


def count(results: Sequence[ActResult]) -> dict[Outcome, int]:
    """How often each outcome occurs, all of them named."""
    counted = Counter(result.outcome for result in results)
    return {outcome: counted[outcome] for outcome in Outcome}


def _judge(request: Request, id_: MessageId, view: MessageView | None) -> ActResult:
    if view is None:
        return ActResult(id=id_, outcome=Outcome.NOT_FOUND, detail="there is no such message")
    place = view.detail if view.state == "parked" and view.detail else view.state
    leads = FITS[request.act]
    fits = {request.only.value: leads[request.only.value]} if request.only else leads
    result = ActResult(
        id=id_, outcome=Outcome.WOULD, detail=fits.get(place, ""), destination=view.destination, kind=view.kind
    )
    if place in fits:
        return result
    refusal = f"it is {place}; {request.act} applies to {' or '.join(fits)}"
    return replace(result, outcome=Outcome.REFUSED, detail=refusal, next=_what_applies(place, id_))


def _what_applies(place: str, id_: MessageId) -> str:
    match place:
        case "dead":
            return f"redrive messages requeue {id_}"
        case "held":
            return f"redrive held confirm {id_}, or deny"
        case "unrecorded":
            return f"redrive unrecorded repair {id_}"
        case _:
            return f"redrive messages show {id_}"


async def _perform_one(store: PostgresStore, request: Request, judged: ActResult) -> ActResult:
    if judged.outcome is not Outcome.WOULD:
        return judged
    try:
        detail = await _call(store, request, judged)
    except ActRefused as refused:  # it moved on since it was looked at
        detail = refused.message.removeprefix(f"Message {judged.id}: ").rstrip(".")
        lacking = isinstance(refused, ApproverNeeded)
        return replace(judged, outcome=Outcome.REFUSED, detail=detail, next=refused.next, needs_approver=lacking)
    except NotFound:
        return replace(judged, outcome=Outcome.NOT_FOUND, detail="there is no such message")
    asked = detail in _STAYS_OPEN
    return replace(judged, outcome=Outcome.ASKED if asked else Outcome.DONE, detail=detail)


async def _call(store: PostgresStore, request: Request, judged: ActResult) -> str:
    """The verb of the store; returns what became of the message."""
    id_, actor, reason = judged.id, request.actor, request.reason
    match request.act:
        case Act.CANCEL:
            return _cancelled(await store.cancel(id_, actor=actor, reason=reason))
        case Act.REQUEUE:
            await store.requeue(id_, actor=actor, reason=reason, stage=request.stage, out_of_order=request.out_of_order)
        case Act.CONFIRM:
            await store.confirm(id_, actor=actor, reason=reason, reference=request.reference)
        case Act.DENY:
            await store.deny(id_, actor=actor, reason=reason)
        case Act.REPAIR:
            await store.repair(id_, actor=actor, reason=reason)
        case Act.DISCARD:
            await store.discard(id_, actor=actor, reason=reason)
        case _:
            assert_never(request.act)
    return judged.detail


def _cancelled(answer: CancelAnswer) -> str:
    if answer in _CANCELLED:
        return _CANCELLED[answer]
    detail, advice = _NOT_CANCELLED[answer]
    raise ActRefused(detail, next=advice)
