"""`redrive tenant metrics`: the numbers of the outbox."""

from __future__ import annotations

import click

from redrive.kit.cli import Call, example, output, store_command
from redrive.kit.database import Database
from redrive.systems.tenant import reads
from redrive.systems.tenant.cli.shared import tenant_option
from redrive.systems.tenant.documents import Snapshot
from redrive.systems.tenant.prometheus import exposition


@click.command("metrics", epilog=example("redrive tenant metrics", "redrive tenant metrics --tenant acme --json"))
@tenant_option
@click.option("--prometheus", is_flag=True, help="In Prometheus' text format.")
@store_command
async def command(call: Call, store: Database, tenant: str | None, prometheus: bool) -> None:
    """Backlog, failures, age, latency, throughput and failure ratio, of one moment.

    Throughput and failure ratio are counted over the window that the relays' options name (WindowSeconds).
    """
    numbers = await reads.numbers(store, tenant=tenant)
    if prometheus:
        click.echo(exposition(numbers), nl=False)
    elif call.json:
        output.document("outbox_metrics", Snapshot.of(numbers).model_dump(mode="json", by_alias=True))
    else:
        output.show(
            output.pairs(
                [
                    ("backlog", numbers.backlog_size),
                    ("failed, unprocessed", numbers.failed_pending),
                    ("old failures", numbers.old_failures),
                    ("dead letters", numbers.dead_letters),
                    ("oldest", f"{numbers.oldest_age_seconds:.1f} s"),
                    ("mean wait", f"{numbers.processing_latency_seconds:.1f} s"),
                    ("window", f"{numbers.window_seconds:g} s"),
                    ("processed in it", f"{numbers.processed}, {numbers.throughput:.2f} a second"),
                    ("attempts that failed", f"{numbers.failures}, {numbers.failure_ratio:.1%}"),
                ]
            )
        )
