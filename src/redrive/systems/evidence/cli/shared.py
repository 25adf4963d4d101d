"""What the commands of evidence share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from redrive.kit.cli import Call, plain_command
from redrive.kit.database import connected
from redrive.systems.evidence.names import TENANT

APPLICATION: Final = "redrive evidence"


def evidence_command(body: Callable[..., None]) -> Callable[..., None]:
    """`--dsn`, `--json` and `--tenant`: the body gets a Call, a connection in a transaction, and the tenant."""

    @wraps(body)
    def command(call: Call, **values: Any) -> None:
        with connected(call.dsn, name=APPLICATION) as conn:
            body(call, conn, **values)

    return plain_command(tenant_option(command))


def tenant_option(body: Callable[..., None]) -> Callable[..., None]:
    return click.option("--tenant", default=TENANT, show_default=True, help="Whose evidence.")(body)
