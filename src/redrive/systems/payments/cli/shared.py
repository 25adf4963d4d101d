"""What the commands of payments share."""

from typing import Final

import click

from redrive.kit.cli import system_command
from redrive.kit.database import Row
from redrive.systems.payments.audit import account_of

payments_command: Final = system_command("payments")
page_limit = click.option(
    "--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="Rows of a page."
)


def money(row: Row) -> str:
    return f"{row['amount']} {row['currency']}" if row["amount"] is not None else "no amount"


def account(row: Row) -> str:
    return account_of(row["destination"])
