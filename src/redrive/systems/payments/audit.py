"""The story of one instruction, from the archive alone (P-07)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from redrive.kit.database import Connection, Row
from redrive.systems.payments import reads
from redrive.systems.payments.reads import SQL

FIRST_EDITED: Final = 2
ACTS: Final = {
    "REQUEUE": "sent again",
    "CONFIRM": "confirmed as paid",
    "DENY": "denied: it was not paid, and is sent again",
    "DISCARD": "given up",
    "CANCEL": "cancelled",
    "SKIP": "skipped, so that the participant's next payment could go",
    "EXPIRE": "expired before it was sent",
    "REPAIR": "recorded again",
    "ADOPT": "adopted",
    "EDIT": "edited",
}


@dataclass(frozen=True, slots=True)
class Story:
    """intents: how each message of it stands now."""

    instruction: Row
    intents: Sequence[Row]
    events: Sequence[Row]


def story(conn: Connection, instruction_id: str, *, tenant: str) -> Story:
    """NotFound where there is no such instruction."""
    shown = reads.show(conn, instruction_id, tenant=tenant)
    found = SQL.rows(conn, "audit", {"tenant": tenant, "instruction_id": instruction_id})
    events = [
        {**event, "told": f"{told(event, shown.instruction)}{_changed(event, shown.instruction)}"} for event in found
    ]
    return Story(shown.instruction, shown.intents, events)


def told(event: Row, instruction: Row) -> str:
    match event["what"]:
        case "submitted":
            return _submitted(event, instruction)
        case "late answer":
            return _late(event)
        case "in hand":
            return f"{_who(event)} has it in hand."
        case "act":
            return _act(event)
    done = _attempt(event)
    return f"{_who(event)} {done}" if done else f"{_who(event)}: it was {event['state'].lower()}."


def account_of(destination: Row | None) -> str:
    """iban …3000, as far as it is shown; an edited payload may have none that can be read."""
    if not destination:
        return "an account that cannot be read"
    return ", ".join(f"{name} {value}" for name, value in destination.items())


def _changed(event: Row, instruction: Row) -> str:
    """The terms of an edit, and of each attempt of an edited payment."""
    if (event["version"] or 1) < FIRST_EDITED or (event["what"] == "act" and event["state"] != "EDIT"):
        return ""
    amount = f"{event['amount']} {event['currency']}" if event["amount"] is not None else "no amount that can be read"
    is_edit = event["what"] == "act"
    return (
        f" {'It is' if is_edit else 'That was'} version {event['version']}: {amount} to"
        f" {account_of(event['destination'])}, submitted as {instruction['amount']} {instruction['currency']} to"
        f" {account_of(instruction['destination'])}."
    )


def _submitted(event: Row, instruction: Row) -> str:
    return (
        f"Submitted as number {event['sequence_id']} of {instruction['participant_id']}, under the key"
        f" {event['idempotency_key']}: {instruction['amount']} {instruction['currency']} by {instruction['rail_type']}."
    )


def _act(event: Row) -> str:
    done = ACTS.get(event["state"], event["state"].lower())
    if event["actor"] is None:
        return f"It was {done}."
    return f"{event['actor']}: it is {done}{_reference(event)}. Reason: {event['reason']}."


def _attempt(event: Row) -> str:
    match event["state"]:
        case "DISPATCHED":
            how = "asked the rail and found it paid" if event["by_lookup"] else "paid it"
            said = f" (the rail said {event['rail_code']})" if event["rail_code"] else ""
            return f"{how}{said}{_reference(event)}."
        case "ZOMBIE_REQUEUE":
            return (
                f"was lost with it in hand ({event['code']}). Whether it was paid is not known; it comes"
                " back with the same token and the same number."
            )
        case "FAILED":
            how = "was refused" if event["answer"] == "terminal" else "gave up"
            return f"{how}: {_said(event)} That is final: it was not paid."
        case "HELD":
            return f"cannot know whether it was paid: {_said(event)} It is held until a person finds out."
        case "HAND_BACK":
            return "handed it back before anything was sent."
        case "RETRYABLE":
            return _retry(event)
    return ""


def _retry(event: Row) -> str:
    again = f" Next at {_clock(event['next_at'])}." if event["next_at"] else ""
    if event["answer"] == "unknown" and event["by_lookup"]:
        return f"asked the rail, which could not tell: {_said(event)} It was not sent again.{again}"
    if event["answer"] == "unknown":
        return f"does not know whether it was paid: {_said(event)} The rail comes first next time.{again}"
    return f"could not pay it: {_said(event)} Nothing was paid.{again}"


def _late(event: Row) -> str:
    said = "paid" if event["answer"] == "delivered" else (event["code"] or event["answer"] or "nothing")
    return (
        f"{_who(event)} came back with its answer: {said}{_reference(event)}. Its claim had been lost, so the answer"
        " was refused, and kept as evidence."
    )


def _who(event: Row) -> str:
    return f"Attempt {event['attempt_no']} (relay …{str(event['worker'])[-8:]})"


def _said(event: Row) -> str:
    if event["text"]:
        return f"{event['text'].rstrip('.')}."
    return f"{event['code'] or event['answer']}."


def _reference(event: Row) -> str:
    return f", reference {event['reference']}" if event["reference"] else ""


def _clock(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%H:%M:%S}"
