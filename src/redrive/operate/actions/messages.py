"""An action on messages: judged against where each message is, then carried out on each in a transaction of its own."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from redrive.errors import ActRefused, ApproverNeeded, InvalidValue, NotFound
from redrive.message import CancelAnswer, MessageId, ParkReason
from redrive.operate.actions.model import Action
from redrive.operate.actions.results import ActResult, Outcome, not_found
from redrive.store.reads.keys import gone_out
from redrive.store.reads.messages import find_messages, proofs
from redrive.store.reads.models import LIMIT_MAX, MessageView, Proof
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

IDS_MAX: Final = LIMIT_MAX
_CANCELLED: Final[Mapping[CancelAnswer, str]] = {
    CancelAnswer.CANCELLED: "cancelled: it is not sent any more",
    CancelAnswer.IN_FLIGHT: "not cancelled yet, in flight: if it has begun it ends as it ends, else it is not sent",
    CancelAnswer.IN_DOUBT: "not cancelled yet, in doubt: it may have been sent; it is looked up, and not sent again",
}
_NOT_CANCELLED: Final[Mapping[CancelAnswer, tuple[str, str]]] = {
    CancelAnswer.PARKED: ("parked: it waits for a person", "redrive dead|held|unrecorded discard"),
    CancelAnswer.ALREADY_CLOSED: ("closed already", ""),
    CancelAnswer.BUSY: ("busy: another transaction holds it; nothing was changed", "try again in a second"),
}
_NEXT: Final[Mapping[str, str]] = {
    "dead": "redrive messages requeue {id}",
    "held": "redrive held confirm {id}, or deny",
    "unrecorded": "redrive unrecorded repair {id}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An action, its actor and reason, and its options. only: refuse what is parked for another reason."""

    action: Action
    who: Who
    options: Mapping[str, Any] = field(default_factory=dict)
    only: ParkReason | None = None


async def perform(
    store: PostgresStore,
    request: Request,
    ids: Sequence[MessageId],
    *,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> list[ActResult]:
    """Do it to each message, in order. progress: told the action, and how many of how many are done."""
    results = []
    for judged in await preview(store, request, ids):
        results.append(await _perform_one(store, request, judged))
        progress(request.action.name, len(results), len(ids))
    return results


async def preview(store: PostgresStore, request: Request, ids: Sequence[MessageId]) -> list[ActResult]:
    """What `perform` would do now. Nothing is changed."""
    if not 1 <= len(ids) <= IDS_MAX:
        raise InvalidValue(f"{len(ids)} messages are named; an act takes 1 to {IDS_MAX} at a time.")
    found = await find_messages(store, ids)
    judged = [_judge(request, id_, found.get(id_)) for id_ in ids]
    if request.action.against_evidence:
        judged = await _revised(judged, partial(proofs, store), partial(_with_proof, request))
    if any(option.name == "out_of_order" for option in request.action.options):
        judged = await _revised(judged, partial(gone_out, store), partial(_overtaken, request))
    return judged


def place_of(view: MessageView) -> str:
    return view.detail if view.state == "parked" and view.detail else view.state


async def _revised(
    judged: Sequence[ActResult],
    look_up: Callable[[Sequence[MessageId]], Awaitable[Mapping[MessageId, Any]]],
    revise: Callable[[ActResult, Any], ActResult],
) -> list[ActResult]:
    """Those that fit so far, and of which something is found, are judged once more."""
    fitting = [result.id for result in judged if result.outcome is Outcome.WOULD]
    found = await look_up(fitting) if fitting else {}
    return [revise(result, found[result.id]) if result.id in found else result for result in judged]


def _with_proof(request: Request, result: ActResult, found: Sequence[Proof]) -> ActResult:
    """P-11: what evidence says was delivered is confirmed, and nothing else; a late answer elsewhere is shown."""
    proof = found[0]
    if not proof.counts:
        return replace(result, detail=f"{result.detail}; but a late answer says that it was delivered ({proof})")
    detail = f"something says that it was delivered ({proof}); {request.action.name} is refused"
    advice = f"redrive held confirm {result.id} --reference {proof.reference or '…'}"
    return replace(result, outcome=Outcome.REFUSED, detail=detail, next=advice)


def _overtaken(request: Request, result: ActResult, later: int) -> ActResult:
    """A message that would go after later ones of its key is requeued only with `out_of_order`."""
    went = f"{later:,} later {'message' if later == 1 else 'messages'} of its ordering key went out or ended without it"
    if request.options.get("out_of_order"):
        return replace(result, detail=f"{result.detail}, before all that still wait; {went}")
    return replace(
        result,
        outcome=Outcome.REFUSED,
        detail=went,
        next="the same with --out-of-order, if it may go before all that still wait",
    )


def _judge(request: Request, id_: MessageId, view: MessageView | None) -> ActResult:
    if view is None:
        return not_found(id_)
    place, leads = place_of(view), request.action.applies_to
    fits = {request.only.value: leads[request.only.value]} if request.only else leads
    result = ActResult(
        id=id_, outcome=Outcome.WOULD, detail=fits.get(place, ""), destination=view.destination, kind=view.kind
    )
    if place in fits:
        return result
    refusal = f"it is {place}; {request.action.name} applies to {' or '.join(fits)}"
    advice = _NEXT.get(place, "redrive messages show {id}").format(id=id_)
    return replace(result, outcome=Outcome.REFUSED, detail=refusal, next=advice)


async def _perform_one(store: PostgresStore, request: Request, judged: ActResult) -> ActResult:
    if judged.outcome is not Outcome.WOULD:
        return judged
    try:
        answer = await request.action.call(store, judged.id, request.who, **request.options)
        outcome, detail = _said(answer) if isinstance(answer, CancelAnswer) else (Outcome.DONE, judged.detail)
    except ActRefused as refused:  # it moved on since it was looked at
        detail = refused.message.removeprefix(f"Message {judged.id}: ").rstrip(".")
        lacking = isinstance(refused, ApproverNeeded)
        return replace(judged, outcome=Outcome.REFUSED, detail=detail, next=refused.next, needs_approver=lacking)
    except NotFound:
        return replace(not_found(judged.id), destination=judged.destination, kind=judged.kind)
    return replace(judged, outcome=outcome, detail=detail)


def _said(answer: CancelAnswer) -> tuple[Outcome, str]:
    if answer in _CANCELLED:
        return Outcome.DONE if answer is CancelAnswer.CANCELLED else Outcome.ASKED, _CANCELLED[answer]
    detail, advice = _NOT_CANCELLED[answer]
    raise ActRefused(detail, next=advice)
