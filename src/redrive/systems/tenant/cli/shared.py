"""What the commands of the outbox share."""

from __future__ import annotations

import click

tenant_option = click.option("--tenant", metavar="TENANT", help="Only this tenant's events. Default: all you may see.")
