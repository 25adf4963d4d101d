"""The workflow of a dead letter: triage, remediate, validate, replay, verify; or ignore, or discard (G-16).

Each step is audited and returns a result per message. SQL: verbs/workflow.sql.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from typing import Any, Final

from redrive.errors import APPROVER_ADVICE, ActRefused, InvalidValue, NotFound
from redrive.message import MessageId, ParkReason, is_json
from redrive.operate.actions.results import ActResult, Outcome, not_found
from redrive.operate.desk import json_patch
from redrive.operate.desk.causes import Cause
from redrive.produce import bounds, payload
from redrive.store.reads.desk import latest_requests, proposed_edit
from redrive.store.reads.messages import list_parked, show_message, show_parked
from redrive.store.reads.models import LIMIT_MAX, ParkedFilter, ParkedRecord, Payload, ProposedEdit, RequestView
from redrive.store.runtime import desk
from redrive.store.runtime.desk import StepResult
from redrive.store.runtime.postgres import PostgresStore
from redrive.store.runtime.verbs.acts import NOT_ALONE, not_alone
from redrive.who import Who, one_line_text

SELECTED_MAX: Final = desk.REPLAY_ITEMS_MAX
TEXT_MAX: Final = 500  # characters of a ticket or of evidence
LOOK_EVERY_SECONDS: Final = 0.2

# What the cause needs before a letter is validated; verbs/workflow.sql (lacks_evidence) is what enforces it.
EVIDENCE: Final[Mapping[Cause, str]] = {
    Cause.TRANSIENT: "evidence that the destination is up again and has room",
    Cause.DATA: "an edited payload, or the ticket by which the data were corrected elsewhere",
    Cause.AUTH_CONFIG: "evidence of what was changed: a credential, a permission, an address",
    Cause.CODE_DEFECT: "evidence of the release that has the fix",
}
DONE: Final[Mapping[str, str]] = {
    "triage": "triaged",
    "remediate": "remediated",
    "edit": "remediated: its payload has a new version",
    "ignore": "ignored: it stays parked and is not listed as open",
    "validate": "validated",
    "verify": "verified",
}
_WHY_NOT: Final[Mapping[str, tuple[str, str]]] = {
    "open": ("its cause is not set", "redrive dead triage {id} --cause … --reason '…'"),
    "triaged": ("nothing was done about it yet", "redrive dead remediate {id} --evidence '…' --reason '…'"),
    "ignored": ("it is ignored", "redrive dead triage {id} --cause … --reason '…'"),
    "no_evidence": ("what its cause needs is missing", "redrive dead remediate {id} --evidence '…' --reason '…'"),
    "in_doubt": ("it may have had an effect, so its payload must stay as it was", "redrive dead show {id}"),
    "changed": ("another change came first", "redrive dead show {id}"),
    "evidence": ("something says that it was delivered", "redrive held confirm {id} --reference …"),
    "second_person": (
        "it moves money: the new payload is noted, and a second person has to approve the same one",
        "redrive dead edit {id} --approve --reason '…' by another --actor, an approver, within a day",
    ),
    "approver": (
        "it moves money and another person has proposed this payload; to approve it takes the role approver",
        APPROVER_ADVICE,
    ),
    "not_replayed": ("it was not replayed", "redrive messages show {id}"),
    "verified": ("it is verified already", ""),
}


async def select(store: PostgresStore, wanted: ParkedFilter) -> list[MessageId]:
    """All that match; NotFound if none does."""
    if wanted.reason is not ParkReason.DEAD:
        raise InvalidValue(f"The workflow is that of dead letters, not of what is {wanted.reason}.")
    found: list[MessageId] = []
    async for record in all_parked(store, wanted):
        if len(found) == SELECTED_MAX:
            raise InvalidValue(f"More than {SELECTED_MAX:,} dead letters match; narrow the filter.")
        found.append(record.id)
    if not found:
        raise no_match()
    return found


def no_match() -> NotFound:
    return NotFound("No dead letter matches.", next="redrive dead list")


async def all_parked(store: PostgresStore, wanted: ParkedFilter) -> AsyncIterator[ParkedRecord]:
    """Page after page."""
    while True:
        page = await list_parked(store, replace(wanted, limit=LIMIT_MAX))
        for record in page.rows:
            yield record
        if page.next is None:
            return
        wanted = replace(wanted, before=page.next)


async def triage(
    store: PostgresStore, ids: Sequence[MessageId], cause: Cause, who: Who, *, owner: str | None = None
) -> list[ActResult]:
    return await _each(store, ids, desk.triage, who, cause=cause.value, owner=owner)


async def remediate(
    store: PostgresStore, ids: Sequence[MessageId], who: Who, *, evidence: str | None = None, ticket: str | None = None
) -> list[ActResult]:
    for name, given in (("evidence", evidence), ("ticket", ticket)):
        if given is not None:
            one_line_text(name, given, most=TEXT_MAX)
    if evidence is None and ticket is None:
        raise InvalidValue("A remedy needs evidence or a ticket, or an edited payload.")
    return await _each(store, ids, desk.remediate, who, evidence=evidence, ticket=ticket)


async def ignore(store: PostgresStore, ids: Sequence[MessageId], who: Who) -> list[ActResult]:
    return await _each(store, ids, desk.ignore, who)


async def verify(store: PostgresStore, ids: Sequence[MessageId], who: Who) -> list[ActResult]:
    return await _each(store, ids, desk.verify, who)


async def copy(store: PostgresStore, id_: MessageId, key: str, who: Who) -> MessageId:
    """Idempotent by the key."""
    bounds.key(key)
    result, copied = await desk.copy(store, id_, key, **asdict(who))
    match result:
        case "new" | "duplicate" if copied is not None:
            return copied
        case "not_found":
            raise NotFound.message_of(id_)
        case "conflict":
            raise ActRefused(f"The key {key!r} belongs to another message.", next="another --key")
        case "owned":
            raise ActRefused(
                f"Message {id_}: its destination belongs to a system, and only that system enqueues there.",
                next="submit it again by that system, under a new key (payments: redrive payments submit)",
            )
    if result in NOT_ALONE:
        proofs = await store.evidence(id_) if result == "evidence" else ()
        raise not_alone(result, "copy", id_, who.actor, proofs=proofs)
    raise ActRefused(
        f"Message {id_} is {result}; a copy is made of what was discarded.", next=f"redrive messages show {id_}"
    )


async def edit(
    store: PostgresStore, ids: Sequence[MessageId], patch: Any, who: Who, *, row_version: int | None = None
) -> list[ActResult]:
    """By a JSON Patch. Refused if it does not fit, or if the record has another row_version."""
    return [await _edit_one(store, id_, patch, who, row_version) for id_ in dict.fromkeys(ids)]


async def preview(store: PostgresStore, id_: MessageId, patch: Any) -> tuple[bytes, bytes]:
    found = await _payload(store, id_)
    return found.body, patched(found.body, found.content_type, patch)


async def proposal(store: PostgresStore, id_: MessageId) -> tuple[bytes, ProposedEdit]:
    """The payload as it is, and the one that another person has proposed. Needs a login that may read payloads."""
    return (await _payload(store, id_)).body, await _proposed(store, id_)


async def _payload(store: PostgresStore, id_: MessageId) -> Payload:
    details = await show_message(store, id_, payload=True)
    assert details.payload is not None
    return details.payload


async def _proposed(store: PostgresStore, id_: MessageId) -> ProposedEdit:
    proposed = await proposed_edit(store, id_)
    if proposed is None:
        raise NotFound(f"No other payload is proposed for message {id_}.", next=f"redrive dead show {id_}")
    return proposed


async def approve_seen(store: PostgresStore, id_: MessageId, sha256: str, who: Who) -> ActResult:
    """Refused if a payload with another checksum is proposed by now."""
    if await show_parked(store, id_) is None:
        raise NotFound(f"No message {id_} is parked.", next=f"redrive messages show {id_}")
    proposed = await _proposed(store, id_)
    if proposed.sha256 != sha256:
        return _edited(id_, "changed")
    return await approve(store, id_, proposed, who)


async def approve(store: PostgresStore, id_: MessageId, proposed: ProposedEdit, who: Who) -> ActResult:
    parked = await show_parked(store, id_)
    if parked is None:
        return _edited(id_, (await show_message(store, id_)).view.state)
    given: dict[str, Any] = {"body": proposed.body, "content_type": proposed.content_type, "paths": proposed.paths}
    return _edited(id_, await desk.edit(store, id_, row_version=parked.row_version, **given, **asdict(who)))


def _edited(id_: MessageId, result: str) -> ActResult:
    return _result(StepResult(id_, result), "edit")


def patched(body: bytes, content_type: str, patch: Any) -> bytes:
    """As canonical JSON."""
    if not is_json(content_type):
        raise InvalidValue(f"The payload is {content_type}; only JSON can be patched.")
    return payload.encode(json_patch.apply(json.loads(body, parse_float=exact), patch))[0]


def exact(digits: str) -> float:
    """What a float cannot hold is not rewritten: an amount must not lose a digit because a name was corrected."""
    number = float(digits)
    if Decimal(repr(number)) != Decimal(digits):
        raise InvalidValue("The payload has a number that a patch would round; correct it at its source.")
    return number


async def _edit_one(store: PostgresStore, id_: MessageId, patch: Any, who: Who, row_version: int | None) -> ActResult:
    details = await show_message(store, id_, payload=True)
    if details.parked is None or details.payload is None:
        return _edited(id_, details.view.state)
    if row_version not in (None, details.parked.row_version):
        return _edited(id_, "changed")
    try:
        body = patched(details.payload.body, details.payload.content_type, patch)
    except ValueError as error:
        return ActResult(
            id=id_, outcome=Outcome.REFUSED, detail=str(error).rstrip("."), next=f"redrive dead show {id_}"
        )
    kind, paths = details.payload.content_type, json_patch.paths(patch)
    given: dict[str, Any] = {"body": body, "content_type": kind, "paths": paths}
    return _edited(id_, await desk.edit(store, id_, row_version=details.parked.row_version, **given, **asdict(who)))


async def validate(
    store: PostgresStore, ids: Sequence[MessageId], who: Who, *, seconds: float = 30.0
) -> list[ActResult]:
    """Relays do it; waits `seconds` for their answers."""
    asked = await _each(store, ids, desk.validate, who)
    waiting = [result.id for result in asked if result.outcome is Outcome.DONE]
    answers = await _answers(store, waiting, seconds=seconds)
    return [_validated(result, answers.get(result.id)) if result.id in answers else result for result in asked]


async def _answers(
    store: PostgresStore, ids: Sequence[MessageId], *, seconds: float
) -> dict[MessageId, RequestView | None]:
    """None for what no relay answered in time."""
    answers: dict[MessageId, RequestView | None] = dict.fromkeys(ids)
    deadline = asyncio.get_running_loop().time() + seconds
    while open_ones := [id_ for id_, answer in answers.items() if answer is None]:
        found = await latest_requests(store, open_ones)
        answers |= {id_: request for id_, request in found.items() if request.answered_at is not None}
        if asyncio.get_running_loop().time() >= deadline:
            break
        if None in answers.values():
            await asyncio.sleep(LOOK_EVERY_SECONDS)
    return answers


def _validated(result: ActResult, request: RequestView | None) -> ActResult:
    if request is None or request.answer is None:
        detail = "asked; no relay has answered yet"
        return replace(result, outcome=Outcome.REFUSED, detail=detail, next="redrive status, then the same again")
    answer = request.answer
    if answer["valid"]:
        return result
    words = f"{answer['code']}: {answer['text']}" if answer.get("text") else str(answer["code"])
    if answer.get("lookup") == "found":
        words = "the destination has it already; it must not be sent again"
    return replace(
        result, outcome=Outcome.REFUSED, detail=f"not valid ({words})", next=f"redrive dead show {result.id}"
    )


async def _each(
    store: PostgresStore,
    ids: Sequence[MessageId],
    step: Callable[..., Awaitable[list[StepResult]]],
    who: Who,
    **values: Any,
) -> list[ActResult]:
    """In transactions of a thousand, in the order given."""
    wanted = list(dict.fromkeys(ids))
    if not 1 <= len(wanted) <= SELECTED_MAX:
        raise InvalidValue(f"{len(wanted)} messages are named; a step takes 1 to {SELECTED_MAX:,}.")
    results: dict[MessageId, ActResult] = {}
    for start in range(0, len(wanted), LIMIT_MAX):
        for one in await step(store, wanted[start : start + LIMIT_MAX], **values, **asdict(who)):
            results[one.id] = _result(one, step.__name__)
    return [results[id_] for id_ in wanted]


def _result(step: StepResult, act: str) -> ActResult:
    if step.result in {"done", "asked"}:
        return ActResult(id=step.id, outcome=Outcome.DONE, detail=DONE[act])
    if step.result == "not_found":
        return not_found(step.id)
    detail, advice = _WHY_NOT.get(
        step.result, (f"it is {step.result}; {act} applies to dead", "redrive messages show {id}")
    )
    return ActResult(
        id=step.id,
        outcome=Outcome.REFUSED,
        detail=detail,
        next=advice.format(id=step.id),
        needs_approver=step.result == "approver",
    )
