"""`redrive keys`: ordering keys, which of them do not go on, and what can be done about it."""

from dataclasses import asdict
from typing import Any, Final

import click

from redrive.operate import operations
from redrive.operate.actions.table import SKIP
from redrive.operate.cli import acts, output
from redrive.operate.cli.context import Call, example, narrowed, store_command
from redrive.operate.cli.output import Column
from redrive.operate.cli.paging import page_options, show_page
from redrive.operate.sanitize import one_line
from redrive.store.reads.models import WAITING_MAX, KeyFilter, KeyPosition, KeyView
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who

_COLUMNS: Final = (
    Column("tenant", grow=True),
    Column("ordering key", grow=True, of="order_by"),
    Column("head", "right", of="sequence"),
    Column("state", of=lambda key, _: output.state(output.words(key.state))),
    Column("destination", grow=True),
    output.since("since", "since"),
    Column("due", of=lambda key, at: output.until(key.due_at, at)),
    Column("behind it", "right", of=lambda key, _: f"{key.waiting:,}{'+' if key.waiting == WAITING_MAX else ''}"),
    Column("message", of="head"),
)


@click.group()
def command() -> None:
    """Ordering keys: what goes first, what waits behind it, and why.

    Messages of one key go out strictly one after the other. The next one to go is the key's head; while it waits, all
    of the key waits, and no other key does.
    """


@command.command("list", epilog=example("redrive keys list --blocked", "redrive keys list --tenant acme --json"))
@click.option("--tenant", help="Only of this tenant.")
@click.option("--destination", help="Only keys whose head goes to this destination.")
@click.option("--blocked", is_flag=True, help="Only keys that do not go on by themselves at once.")
@page_options("--after", KeyPosition)
@store_command
async def list_(call: Call, store: PostgresStore, **wanted: Any) -> None:
    """Ordering keys with anything open: first those that wait for a person, then those that wait for a time.

    The state is that of the head. It is dead, held or unrecorded: a person has to act. It is retrying, not due, paused
    (its destination), behind an open breaker, or a suspect (after a crash): it goes later. It is ready or in flight:
    nothing holds it up. What waits behind a head is counted up to 1,000. A look walks over 10,000 keys and says where
    to go on.
    """
    page = await operations.list_keys(store, KeyFilter(**wanted))
    looked = "Looked at {:,} keys only."
    show_page(call, "keys", page, _COLUMNS, nothing=_nothing(wanted), option="--after", looked=looked)


def _nothing(wanted: dict[str, Any]) -> str:
    if narrowed({**wanted, "blocked": None}):
        return "No ordering key matches."
    return "No ordering key is blocked." if wanted["blocked"] else "No ordering key has anything open."


@command.command(**acts.described(SKIP, "keys"))
@click.argument("tenant")
@click.argument("order_by", metavar="KEY")
@acts.options(SKIP)
@acts.confirmed
@acts.dry_run
@acts.why
@store_command
async def skip(
    call: Call,
    store: PostgresStore,
    tenant: str,
    order_by: str,
    sequence: int | None,
    yes: bool,
    dry_run: bool,
    who: Who,
) -> None:
    head = await operations.find_head(store, tenant, order_by, sequence=sequence)
    if not dry_run:
        if not yes:
            if acts.can_ask():
                output.note(f"  {_described(head)}")
            acts.confirm("Skip it?", what="skip")
        await SKIP.call(store, head, who)
    if call.json:
        said = {"act": "skip", "dry_run": dry_run, **asdict(who), "skipped": not dry_run}
        output.document("key_skip", {**said, "key": head})
        return
    output.show(f"{'Would close' if dry_run else 'Closed'} {_described(head)}")
    if dry_run:
        output.note("Dry run: nothing was changed.")


def _described(head: KeyView) -> str:
    waits = "nothing waits" if not head.waiting else "1 waits" if head.waiting == 1 else f"{head.waiting:,} wait"
    doubt = "" if head.state not in {"held", "unrecorded"} else " It may have been delivered."
    return (
        f"number {head.sequence} of {one_line(head.order_by)}: message {head.head} to {one_line(head.destination)},"
        f" {output.words(head.state)}; {waits} behind it.{doubt}"
    )
