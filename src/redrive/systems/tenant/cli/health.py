"""`redrive tenant health`: the numbers against their thresholds."""

from __future__ import annotations

import sys

import click

from redrive.kit.cli import Call, Column, Exit, example, output, store_command
from redrive.kit.database import Database
from redrive.systems.tenant import reads
from redrive.systems.tenant.cli.shared import tenant_option
from redrive.systems.tenant.documents import HealthReport
from redrive.systems.tenant.health import Verdict, judge

_COLUMNS = (Column("check"), Column("value", "right"), Column("verdict"), Column("reached", "right"))


@click.command("health", epilog=example("redrive tenant health"))
@tenant_option
@store_command
async def command(call: Call, store: Database, tenant: str | None) -> None:
    """Whether the outbox is healthy, degraded or unhealthy, and why. Exit code 6 unless it is healthy.

    The thresholds are options of the relays: BacklogDegraded, OldestAgeUnhealthySeconds and so on.
    """
    options = await reads.published_options(store)
    health = judge(await reads.numbers(store, tenant=tenant, options=options), options)
    if call.json:
        output.document("outbox_health", HealthReport.of(health).model_dump(mode="json", by_alias=True))
    else:
        rows = [
            (one.name, f"{one.value:g}", one.verdict, "–" if one.limit is None else f"{one.limit:g}")
            for one in health.checks
        ]
        output.show(output.table(_COLUMNS, rows))
        output.note(f"The outbox is {health.verdict}.")
    if health.verdict is not Verdict.HEALTHY:
        sys.exit(Exit.FINDINGS)
