"""`redrive metrics`: the values of the database, once, as a scraper would read them."""

import click

from redrive.operate.cli import output
from redrive.operate.cli.context import Call, example, store_command
from redrive.operate.observe.metrics import database_exposition
from redrive.store.reads.gauges import read_gauges
from redrive.store.runtime.postgres import PostgresStore


@click.command("metrics", epilog=example("redrive metrics", "redrive metrics > /var/lib/node_exporter/redrive.prom"))
@store_command
async def command(call: Call, store: PostgresStore) -> None:
    """Print the values of the database in Prometheus' text format.

    A relay with --metrics-listen shows them too, with its own counters; this is for where no relay is scraped. It needs
    a login with the role redrive_relay.
    """
    gauges = await read_gauges(store)
    if call.json:
        output.document("metrics", {"gauges": [gauge._asdict() for gauge in gauges]})
    else:
        click.echo(database_exposition(gauges), nl=False)
