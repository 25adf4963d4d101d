"""`redrive held`: messages that may have been delivered; a person has to find out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from redrive.message import MessageId, ParkReason
from redrive.operate.cli import acts, parked
from redrive.operate.cli.context import Call, checked, example, store_command
from redrive.operate.operations import Act, Request
from redrive.store.runtime.postgres import PostgresStore


@click.group()
def command() -> None:
    """Held messages: the effect may have happened, and nobody could tell.

    Look at the destination's side. It happened: confirm. It did not: deny.
    """


parked.add_list(command, ParkReason.HELD, "Held messages, latest first.")
parked.add_show(command, ParkReason.HELD)
parked.add_discard(
    command,
    ParkReason.HELD,
    "Close held messages without an answer: nobody will know whether they happened. This cannot be undone.",
)


def _one_reference(values: Mapping[str, Any]) -> None:
    if values["reference"] and len(values["ids"]) > 1:
        raise click.UsageError("--reference belongs to one message; name one ID.")


@command.command(
    "confirm",
    epilog=example(f"redrive held confirm {parked.EXAMPLE_ID} --reference TX-8812 --reason 'seen in the ledger'"),
)
@acts.message_ids()
@click.option("--reference", help="The destination's own id of it, as evidence.")
@acts.dry_run
@acts.why
@checked(_one_reference)
@store_command
async def confirm(
    call: Call,
    store: PostgresStore,
    ids: tuple[MessageId, ...],
    reference: str | None,
    dry_run: bool,
    actor: str,
    reason: str,
) -> None:
    """It did happen: close it as delivered. It is never sent again; this cannot be undone."""
    request = Request(act=Act.CONFIRM, actor=actor, reason=reason, reference=reference, only=ParkReason.HELD)
    await acts.carry_out(call, store, request, ids, only_look=dry_run)


@command.command("deny", epilog=example(f"redrive held deny {parked.EXAMPLE_ID} --reason 'not in the ledger'"))
@acts.message_ids()
@acts.dry_run
@acts.why
@store_command
async def deny(
    call: Call, store: PostgresStore, ids: tuple[MessageId, ...], dry_run: bool, actor: str, reason: str
) -> None:
    """It did not happen: send it again, with a fresh budget and no doubt."""
    request = Request(act=Act.DENY, actor=actor, reason=reason)
    await acts.carry_out(call, store, request, ids, only_look=dry_run)
