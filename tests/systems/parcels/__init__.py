"""A system as small as one can be: a table, a destination that records into it, a duty, a command (seam S8)."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import click

import redrive
from redrive.policy import Settlement
from redrive.ports import Store
from redrive.transports.functions import FunctionTransport

SHIPPED: list[str] = []


async def ship(parcel: redrive.Attempt) -> redrive.Delivered:
    SHIPPED.append(parcel.payload["parcel"])
    return redrive.Delivered(reference=f"track-{parcel.payload['parcel']}")


async def note(conn: Any, parcel: redrive.Attempt, settlement: Settlement) -> None:
    """In the settle transaction: the parcel's row, or no settlement."""
    assert isinstance(settlement.answer, redrive.Delivered)
    await conn.execute(
        "INSERT INTO parcels.shipped (parcel, track) VALUES (%s, %s)",
        [parcel.payload["parcel"], settlement.answer.reference],
    )


async def count(store: Store) -> str:
    return f"{len(SHIPPED)} shipped at {await store.now():%Y}"


@click.command("parcels")
def command() -> None:
    """Say what was shipped."""
    click.echo("\n".join(SHIPPED))


system = redrive.System(
    name="parcels",
    migrations=files(__name__) / "sql",
    destinations=[redrive.Destination(name="parcels.ship", transport=FunctionTransport(ship, threads=1), record=note)],
    duties=[redrive.Duty(name="parcels.count", every_seconds=60, run_once=count)],
    cli=command,
)
