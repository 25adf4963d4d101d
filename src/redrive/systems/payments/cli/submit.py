"""`redrive payments submit`: one payment, or a file of them, in one transaction."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final, TextIO

import click

from redrive.kit.cli import Call, Column, checked, example, output
from redrive.kit.database import Connection
from redrive.systems.payments.cli.shared import payments_command
from redrive.systems.payments.submission import Submitted, submit
from redrive.systems.payments.validation import Instruction, PaymentRefused

_COLUMNS: Final = (
    Column("instruction", grow=True),
    Column("participant", grow=True),
    Column("number", "right"),
    Column("outbox id"),
    Column("state"),
)
_NAMED: Final = ("instruction_id", "participant_id", "rail_type", "amount", "currency")


def _one_or_file(values: Mapping[str, Any]) -> None:
    if values["file"] is None and not all(values[name] for name in _NAMED):
        raise click.UsageError("Give --instruction, --participant, --rail, --amount, --currency and --to, or --file.")


@click.command(
    "submit",
    epilog=example(
        "redrive payments submit --instruction pay-7 --participant acme --rail sepa --amount 12.34 --currency EUR "
        "--to iban=DE75512108001245126199",
        "redrive payments submit --file payments.ndjson",
    ),
)
@click.option("--instruction", "instruction_id", help="The application's own name for the payment.")
@click.option("--key", "idempotency_key", default="", help="Of this submission. Default: the instruction's name.")
@click.option("--participant", "participant_id", help="Who pays; his payments are made one after the other.")
@click.option("--rail", "rail_type", help="Such as sepa, ach, card, wallet.")
@click.option("--amount", help="Plain decimal, such as 12.34.")
@click.option("--currency", help="ISO 4217, such as EUR.")
@click.option(
    "--to", "destination", multiple=True, metavar="FIELD=VALUE", help="Where to: iban=…, wallet_id=…; repeatable."
)
@click.option("--file", type=click.File(encoding="utf-8"), help="One JSON object a line, or - for stdin; all or none.")
@checked(_one_or_file)
@payments_command
def command(call: Call, conn: Connection, file: TextIO | None, tenant: str, **given: Any) -> None:
    """Submit payments: each is checked, gets its participant's next number, and is made after the commit.

    The same instruction and key again change nothing. One that cannot be accepted is refused with field, value and
    rule, and then none of the file is submitted.
    """
    wanted = list(_read(file, tenant)) if file is not None else [_given(tenant, **given)]
    done = [(instruction, submit(conn, instruction)) for instruction in wanted]
    if call.json:
        output.document("payments_submitted", {"items": [_item(*one) for one in done]})
        return
    output.show(output.table(_COLUMNS, [_row(*one) for one in done]))


def _given(tenant: str, *, destination: tuple[str, ...], **values: Any) -> Instruction:
    fields = dict(one.partition("=")[::2] for one in destination)
    return Instruction(tenant=tenant, destination=fields, **values)


def _read(file: TextIO, tenant: str) -> Iterator[Instruction]:
    for number, line in enumerate(file, 1):
        try:
            # A number stays the text that it was written as: 0.1 must not become a float on its way.
            given = json.loads(line, parse_float=str)
        except ValueError:
            raise click.UsageError(f"Line {number} is no JSON.") from None
        if not isinstance(given, dict):
            raise click.UsageError(f"Line {number} is no JSON object.")
        try:
            yield Instruction.read({"tenant": tenant, **given})
        except PaymentRefused as refused:
            raise click.UsageError(f"Line {number}: {refused}") from refused


def _item(instruction: Instruction, submitted: Submitted) -> dict[str, Any]:
    named = {"instruction_id": instruction.instruction_id, "participant_id": instruction.participant_id}
    return {**named, **asdict(submitted)}


def _row(instruction: Instruction, submitted: Submitted) -> tuple[object, ...]:
    state = output.state(submitted.state, "submitted before" if submitted.already_existed else None)
    return instruction.instruction_id, instruction.participant_id, submitted.sequence_id, submitted.outbox_id, state
