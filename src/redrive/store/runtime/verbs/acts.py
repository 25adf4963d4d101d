"""Acts of operators in PostgreSQL, and why one is refused."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import wraps
from typing import Any, Final, LiteralString, ParamSpec

from redrive.errors import ActRefused, ApproverNeeded, NotFound
from redrive.message import CancelAnswer, HistoryEntry, MessageId
from redrive.ports import Now, OperatorVerbs
from redrive.store.reads.models import Proof
from redrive.store.runtime import wire
from redrive.store.runtime.verbs import from_port
from redrive.store.runtime.verbs.connected import Connected
from redrive.who import require_actor_and_reason

P = ParamSpec("P")
_HISTORY: LiteralString = (
    "SELECT attempt, verb, stage, version, settlement, answer, code, text, reference, result, closed, worker, actor,"
    " reason, claimed_at, completed_at, latency_ms, spent, due_at"
    " FROM redrive.attempt WHERE message_id = %s ORDER BY completed_at, attempt"
)
_EVIDENCE: LiteralString = (
    "SELECT kind, subject, reference, at FROM redrive.evidence WHERE message_id = %s ORDER BY at, kind, subject"
)
_HEAD: LiteralString = (
    "SELECT h.id FROM redrive.stream s CROSS JOIN LATERAL redrive.lane_head(s.id, clock_timestamp()) h"
    " WHERE s.tenant = %s AND s.order_by = %s"
)
NOT_ALONE: Final = frozenset({"evidence", "second_person", "approver"})
_WHY_NOT_SKIPPED: Mapping[str, str] = {
    "in_flight": "its head is being sent just now; it cannot be skipped before it comes back.",
    "moved_on": "its head is another one by now; nothing was skipped.",
    "empty": "nothing of it waits.",
}
_WHAT_APPLIES: Mapping[str, str] = {
    "held": "redrive held confirm | deny | discard",
    "unrecorded": "redrive unrecorded repair",
    "dead": "redrive messages requeue, or discard",
}


def _act(port: Callable[P, Awaitable[None]]) -> Callable[P, Coroutine[Any, Any, None]]:
    """A method that calls the SQL function of an act on one message, and raises its refusals."""
    verb, signature = port.__name__, inspect.signature(port)

    @wraps(port)
    async def method(*args: P.args, **options: P.kwargs) -> None:
        store, values = from_port.bound(signature, args, options)
        id, actor = values[:2]
        answer = await store.value(f"{verb}_1", *values)
        if answer == "not_found":
            raise NotFound.message_of(id)
        await store.refuse(answer, verb, id, actor)
        if answer == "moved_on":
            raise ActRefused(
                f"Message {id}: later messages of its ordering key went out without it.",
                next="the same with --out-of-order, if it may go before all that still wait",
            )
        if answer == "one_stage":
            raise ActRefused(
                f"Message {id}: its destination moves money, and a payment has one stage; another has another token.",
                next="the same without --stage",
            )
        if answer != "done":
            raise ActRefused(f"Message {id} is {answer}; {verb} does not apply.", next=_WHAT_APPLIES.get(answer, ""))

    return method


class PostgresActs(Connected):
    """`redrive.ports.OperatorVerbs`."""

    async def cancel(
        self, id: MessageId, *, actor: str | None = None, reason: str | None = None, now: Now = None
    ) -> CancelAnswer:
        if actor is not None:
            require_actor_and_reason(actor, reason or "")
        answer = await self.value("cancel_1", id, actor, reason, now)
        if answer == "not_found":
            raise NotFound.message_of(id)
        await self.refuse(answer, "cancel", id, actor or "")
        return CancelAnswer(answer)

    requeue = _act(OperatorVerbs.requeue)
    confirm = _act(OperatorVerbs.confirm)
    deny = _act(OperatorVerbs.deny)
    repair = _act(OperatorVerbs.repair)
    discard = _act(OperatorVerbs.discard)

    async def skip(
        self, tenant: str, order_by: str, *, actor: str, reason: str, sequence: int | None = None, now: Now = None
    ) -> None:
        require_actor_and_reason(actor, reason)
        answer = await self.value("skip_1", tenant, order_by, actor, reason, sequence, now)
        if answer == "not_found":
            raise NotFound(f"There is no ordering key {order_by!r} of tenant {tenant!r}.", next="redrive keys list")
        if answer in NOT_ALONE:
            ((head,),) = await self.rows(_HEAD, [tenant, order_by])
            await self.refuse(answer, "skip", head, actor)
        if answer != "done":
            raise ActRefused(f"Ordering key {order_by!r}: {_WHY_NOT_SKIPPED[answer]}", next="redrive keys list")

    async def history(self, id: MessageId) -> Sequence[HistoryEntry]:
        return wire.objects(HistoryEntry, await self.rows(_HISTORY, [id]))

    async def evidence(self, id: MessageId) -> Sequence[Proof]:
        """What says that a message was delivered, the earliest first."""
        return wire.objects(Proof, await self.rows(_EVIDENCE, [id]))

    async def refuse(self, answer: str, verb: str, id: MessageId, actor: str) -> None:
        if answer in NOT_ALONE:
            raise not_alone(answer, verb, id, actor, proofs=await self.evidence(id) if answer == "evidence" else ())


def not_alone(answer: str, verb: str, id: MessageId, actor: str, *, proofs: Sequence[Proof] = ()) -> ActRefused:
    match answer:
        case "second_person":
            return ActRefused(
                f"Message {id}: its destination moves money; {verb} is noted, and a second person has to ask too.",
                next=f"the same command by another --actor, an approver, within a day ({actor} has asked)",
            )
        case "approver":
            return ApproverNeeded(
                f"Message {id}: another person has asked for {verb}; to be the second takes the role approver."
            )
        case _:
            told = str(proofs[0]) if proofs else "evidence"
            reference = next((proof.reference for proof in proofs if proof.reference), "…")
            return ActRefused(
                f"Message {id}: something says that it was delivered ({told}); {verb} is refused.",
                next=f"redrive held confirm {id} --reference {reference}",
            )
