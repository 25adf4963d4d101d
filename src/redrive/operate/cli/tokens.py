"""`redrive tokens`: who may come in over HTTP."""

from typing import Any, Final
from uuid import UUID

import click

from redrive.operate.cli import output
from redrive.operate.cli.acts import why
from redrive.operate.cli.context import Call, example, store_command
from redrive.operate.cli.output import Column
from redrive.operate.cli.paging import page_options
from redrive.operate.web import tokens
from redrive.operate.web.principal import Role
from redrive.operate.web.tokens import DAYS_DEFAULT, DAYS_MAX, NewToken
from redrive.store.runtime.postgres import PostgresStore
from redrive.store.runtime.tenant_store import ALL_TENANTS
from redrive.who import Who

_COLUMNS: Final = (
    Column("token", of="id"),
    Column("name", grow=True),
    *map(Column, ("role", "tenant")),
    *(output.utc(name, f"{name}_at") for name in ("expires", "used", "revoked")),
)


@click.group()
def command() -> None:
    """Tokens for the API and to log in to the console: a name, a role, a tenant, an end."""


@command.command(
    "create",
    epilog=example(
        "redrive tokens create anna --role operator --reason 'on call'",
        "redrive tokens create acme-bot --role viewer --tenant acme --days 7 --reason 'their dashboard'",
    ),
)
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True, help="What it may do.")
@click.option("--tenant", default=ALL_TENANTS, show_default=True, help="The one tenant that it sees; * = all.")
@click.option(
    "--days",
    type=click.FloatRange(0, DAYS_MAX, min_open=True),
    default=DAYS_DEFAULT,
    show_default=True,
    help="Its end.",
)
@why
@store_command
async def create(call: Call, store: PostgresStore, name: str, role: str, tenant: str, days: float, who: Who) -> None:
    """Make one, and print its secret. It is printed once: only its hash is kept.

    NAME is who acts, in the audit; two people need two tokens, because some acts need a second person.
    """
    wanted = NewToken(name=name, role=Role(role), tenant=tenant, days=days)
    id_, secret = await tokens.create(store, wanted, who)
    if call.json:
        output.document("token", {"id": id_, "name": name, "role": role, "tenant": tenant, "secret": secret})
        return
    output.raw(secret)
    output.note(f"Token {id_} of {name}: {role}, {'all tenants' if tenant == ALL_TENANTS else f'tenant {tenant}'}.")


@command.command("list", epilog=example("redrive tokens list", "redrive tokens list --json"))
@page_options("--before", UUID)
@store_command
async def list_(call: Call, store: PostgresStore, **wanted: Any) -> None:
    """All of them, latest first, without their secrets."""
    found = await tokens.listed(store, **wanted)
    if call.json:
        output.document("tokens", found)
    elif found.items:
        output.show(output.records(_COLUMNS, found.items))
    else:
        output.note("There are none. Next: redrive tokens create NAME --role operator --reason '…'")


@command.command("revoke", epilog=example("redrive tokens revoke 0199b2c4-… --reason 'left the team'"))
@click.argument("id_", metavar="TOKEN", type=click.UUID)
@why
@store_command
async def revoke(call: Call, store: PostgresStore, id_: UUID, who: Who) -> None:
    """Revoke a token and the sessions that were opened with it."""
    was_good = await tokens.revoke(store, id_, who)
    if call.json:
        output.document("token_revoked", {"id": id_, "revoked_now": was_good})
        return
    output.note(f"Token {id_} is revoked." if was_good else f"Token {id_} was revoked before.")
