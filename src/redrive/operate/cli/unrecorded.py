"""`redrive unrecorded`: messages that were answered, but whose `record` failed."""

from __future__ import annotations

import click

from redrive.message import MessageId, ParkReason
from redrive.operate.cli import acts, parked
from redrive.operate.cli.context import Call, example, store_command
from redrive.operate.operations import Act, Request
from redrive.store.runtime.postgres import PostgresStore


@click.group()
def command() -> None:
    """Unrecorded messages: the destination answered, but your `record` failed.

    Fix `record`, then repair: it runs again with the answer that was kept. Nothing is sent.
    """


parked.add_list(command, ParkReason.UNRECORDED, "Unrecorded messages, latest first.")
parked.add_show(command, ParkReason.UNRECORDED)
parked.add_discard(
    command,
    ParkReason.UNRECORDED,
    "Close unrecorded messages: their answer is never recorded on your side. This cannot be undone.",
)


@command.command(
    "repair", epilog=example(f"redrive unrecorded repair {parked.EXAMPLE_ID} --reason 'missing column added'")
)
@acts.message_ids()
@acts.dry_run
@acts.why
@store_command
async def repair(
    call: Call, store: PostgresStore, ids: tuple[MessageId, ...], dry_run: bool, actor: str, reason: str
) -> None:
    """Run `record` again with the kept answer; a relay does it. The message is never sent."""
    request = Request(act=Act.REPAIR, actor=actor, reason=reason)
    await acts.carry_out(call, store, request, ids, only_look=dry_run)
