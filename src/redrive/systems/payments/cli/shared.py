"""What the commands of payments share."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from redrive.kit.cli import Call, plain_command
from redrive.kit.database import Row, connected
from redrive.systems.payments.audit import account_of
from redrive.systems.payments.names import TENANT


def payments_command(body: Callable[..., None]) -> Callable[..., None]:
    """`--dsn`, `--json` and `--tenant`: the body gets a Call, a connection in a transaction, and the tenant."""

    @wraps(body)
    def command(call: Call, **values: Any) -> None:
        with connected(call.dsn, name="redrive payments") as conn:
            body(call, conn, **values)

    with_tenant = click.option("--tenant", default=TENANT, show_default=True, help="Whose payments.")(command)
    return plain_command(with_tenant)


page_limit = click.option(
    "--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="Rows of a page."
)


def money(row: Row) -> str:
    return f"{row['amount']} {row['currency']}" if row["amount"] is not None else "no amount"


def account(row: Row) -> str:
    return account_of(row["destination"])
