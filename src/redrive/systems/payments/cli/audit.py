"""`redrive payments audit`: what happened to an instruction, attempt by attempt."""

from dataclasses import asdict
from typing import Final

import click
from rich.text import Text

from redrive.kit.cli import Call, Column, example, one_line, output
from redrive.kit.database import Connection, Row
from redrive.systems.payments import audit
from redrive.systems.payments.audit import Story
from redrive.systems.payments.cli.shared import account, money, payments_command

_COLUMNS: Final = (Column("when (UTC)"), Column("state"), Column("what happened", fold=True))
_STYLES: Final = {
    "DISPATCHED": "green",
    "CONFIRM": "green",
    "FAILED": "red",
    "HELD": "magenta",
    "ZOMBIE_REQUEUE": "yellow",
    "LATE_ANSWER": "yellow",
}


@click.command("audit", epilog=example("redrive payments audit pay-7", "redrive payments audit pay-7 --json"))
@click.argument("instruction_id", metavar="INSTRUCTION")
@payments_command
def command(call: Call, conn: Connection, instruction_id: str, tenant: str) -> None:
    """The story of a payment: every attempt and act, in order, who, when, what and why, from the archive alone."""
    story = audit.story(conn, instruction_id, tenant=tenant)
    if call.json:
        output.document("payment_audit", asdict(story))
        return
    output.show(Text(_title(story), style="bold"), output.table(_COLUMNS, [_row(event) for event in story.events]))
    for intent in story.intents:
        output.show(Text(one_line(_now(intent))))


def _title(story: Story) -> str:
    one = story.instruction
    return one_line(
        f"{one['instruction_id']}: {money(one)} of {one['participant_id']} by {one['rail_type']} to {account(one)}"
    )


def _row(event: Row) -> tuple[object, ...]:
    return output.moment(event["at"]), Text(event["state"], style=_STYLES.get(event["state"], "")), event["told"]


def _now(intent: Row) -> str:
    held = f" ({intent['park_reason']}, {intent['error_class']})" if intent["park_reason"] else ""
    return f"Now: number {intent['sequence_id']}, key {intent['idempotency_key']}, is {intent['state']}{held}."
