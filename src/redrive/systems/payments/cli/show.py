"""`redrive payments show`: how an instruction stands."""

from typing import Final

import click

from redrive.kit.cli import Call, Column, example, output
from redrive.kit.database import Connection, Row
from redrive.systems.payments import reads
from redrive.systems.payments.cli.shared import account, money, payments_command

_COLUMNS: Final = (
    Column("number", "right"),
    Column("outbox id"),
    Column("key", grow=True),
    Column("state"),
    Column("attempts", "right"),
    Column("next", fold=True),
)
_VERSIONS: Final = (
    *output.right("number", "version", "amount"),
    Column("to", grow=True),
    Column("attempts", "right"),
    Column("by", fold=True),
)


@click.command("show", epilog=example("redrive payments show pay-7"))
@click.argument("instruction_id", metavar="INSTRUCTION")
@payments_command
def command(call: Call, conn: Connection, instruction_id: str, tenant: str) -> None:
    """What is to be paid, and how far it is; where it was edited, the terms of each version."""
    shown = reads.show(conn, instruction_id, tenant=tenant)
    if call.json:
        output.document("payment", {"instruction": shown.instruction, "intents": shown.intents})
        return
    one = shown.instruction
    output.show(
        output.pairs(
            [
                ("instruction", one["instruction_id"]),
                ("participant", " ".join(filter(None, (one["participant_id"], one["participant"])))),
                ("amount", money(one)),
                ("rail", one["rail_type"]),
                ("to", account(one)),
                ("submitted", output.moment(one["created_at"])),
            ]
        ),
        output.table(_COLUMNS, [_row(intent) for intent in shown.intents]),
    )
    edited = [intent for intent in shown.intents if intent["version"] > 1]
    if edited:
        rows = [_version(intent, one) for intent in edited for one in intent["versions"]]
        output.show(output.table(_VERSIONS, rows))
    output.note(f"Every attempt: redrive payments audit {instruction_id}")


def _row(intent: Row) -> tuple[object, ...]:
    following = intent["reference"] if intent["state"] == "delivered" else intent["error_class"]
    if intent["due_at"] is not None:
        following = f"due {output.short_moment(intent['due_at'])}"
    state = output.state(intent["state"], intent["park_reason"])
    return (
        intent["sequence_id"],
        intent["outbox_id"],
        intent["idempotency_key"],
        state,
        intent["attempts"] or 0,
        following or "–",
    )


def _version(intent: Row, one: Row) -> tuple[object, ...]:
    by = f"edited by {one['edited_by']}" if one["edited_by"] else "as submitted"
    return intent["sequence_id"], one["version"], money(one), account(one), one["attempts"], by
