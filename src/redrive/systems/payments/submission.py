"""`submit`: an instruction, its participant's next number and its message, in the caller's transaction (P-01).

One statement on a connection of any driver that `redrive.enqueue` knows; a refusal leaves the transaction usable. SQL:
`sql/verbs/submit.sql`.
"""

from dataclasses import dataclass
from typing import Any, Final, LiteralString
from uuid import UUID

from redrive import MessageId
from redrive.kit.statements import Steps, arun, as_headers, run, shown
from redrive.systems.payments.names import AMOUNT_HEADER, TENANT
from redrive.systems.payments.validation import Instruction, Payment, PaymentRefused, checked, text_field

_SUBMIT: Final[LiteralString] = (
    "SELECT result, field, outbox_id, sequence_id, state FROM redrive_payments.submit_1(%s::text, %s::text, %s::text,"
    " %s::text, %s::text, %s::text::numeric, %s::text, %s::bytea, %s::text::json, %s::bytea, %s::text::json)"
)
_ADD: Final[LiteralString] = "SELECT redrive_payments.add_participant_1(%s::text, %s::text, %s::text)"


@dataclass(frozen=True, slots=True)
class Submitted:
    """What `submit` gives back.

    outbox_id: of the message, and the token that the rail is given. sequence_id: the participant's number of it, from
    1, without gaps. already_existed: this instruction was submitted with this key before; the rest is the first one's.
    state: pending, leased, parked, or how it was closed.
    """

    outbox_id: MessageId
    sequence_id: int
    already_existed: bool
    state: str


def submit(conn: Any, instruction: Instruction) -> Submitted:
    """Submit a payment in the transaction of `conn`; it is made after the commit. Refused with `PaymentRefused`."""
    return run(conn, _submitting(checked(instruction)))


async def asubmit(conn: Any, instruction: Instruction) -> Submitted:
    """`submit` for an asynchronous connection."""
    return await arun(conn, _submitting(checked(instruction)))


def add_participant(conn: Any, participant_id: str, *, name: str = "", tenant: str = TENANT) -> bool:
    """Make a participant known, in the transaction of `conn`. False: he is already."""
    return run(conn, _adding(participant_id, name, tenant))


async def aadd_participant(conn: Any, participant_id: str, *, name: str = "", tenant: str = TENANT) -> bool:
    """`add_participant` for an asynchronous connection."""
    return await arun(conn, _adding(participant_id, name, tenant))


def _submitting(payment: Payment) -> Steps[Submitted]:
    rows = yield (
        _SUBMIT,
        (
            payment.tenant,
            payment.instruction_id,
            payment.idempotency_key,
            payment.participant_id,
            payment.rail_type,
            str(payment.amount),
            payment.currency,
            *payment.stored,
            as_headers({AMOUNT_HEADER: payment.amount_text}),
        ),
    )
    result, field, outbox_id, sequence_id, state = rows[0]
    if result not in ("new", "duplicate"):
        raise _refusal(payment, result, field, outbox_id, state)
    id = outbox_id if isinstance(outbox_id, UUID) else UUID(outbox_id)  # psycopg2 knows no uuid unless it was told
    return Submitted(MessageId(id), sequence_id, already_existed=result == "duplicate", state=state)


def _refusal(payment: Payment, result: str, field: str | None, outbox_id: object, state: str) -> PaymentRefused:
    match result:
        case "unknown_participant":
            rule = "no such participant is known; `redrive payments participants add`, or payments.add_participant."
            return PaymentRefused("PARTICIPANT_UNKNOWN", "participant_id", payment.participant_id, rule)
        case "instruction_reused":
            assert field is not None
            rule = f"instruction {shown(payment.instruction_id)} was submitted with another one, and stays what it is."
            value = payment.payload[field]
            said = str(payment.destination_shown) if field == "destination" else None
            return PaymentRefused("INSTRUCTION_REUSED", field, value, rule, said=said)
        case "already_submitted":
            rule = (
                f"the instruction was submitted under another key, as {outbox_id} ({state}), and that one may be paid:"
                " a second key is accepted once it is known that it was not."
            )
            return PaymentRefused("INSTRUCTION_ALREADY_SUBMITTED", "idempotency_key", payment.idempotency_key, rule)
    raise AssertionError(f"submit_1 answered {result!r}")


def _adding(participant_id: str, name: str, tenant: str) -> Steps[bool]:
    rows = yield _ADD, (text_field("tenant", tenant), text_field("participant_id", participant_id), name)
    return bool(rows[0][0])
