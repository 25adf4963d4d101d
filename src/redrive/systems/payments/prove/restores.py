"""Backups, restores and promotions in a history: the database is older than what the rail was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from redrive.kit.proof.commands import Command
from redrive.kit.proof.history_environment import OPERATOR_ROLE
from redrive.kit.proof.runner import Carry, by_name

if TYPE_CHECKING:
    from redrive.systems.payments.prove.running import PaymentsRun

# As `redrive db restored` does.
_DECLARE: Final = "SELECT * FROM redrive.declare_restored_1('alice', 'history')"


async def _backup(run: PaymentsRun, _: Command) -> None:
    await run.database.back_up()


async def _restore(run: PaymentsRun, command: Command) -> str:
    if not run.database.has_backup:
        return "no backup"
    run.disordered.update(one.payment for one in run.history.submits)
    run.faults[f"restore: {command.values['kind']}"] += 1
    if command.values["kind"] == "promotion":
        await _promote(run, command.values["overlap_seconds"])
    else:
        await _put_back(run, command)
    return "done"


async def _promote(run: PaymentsRun, overlap_seconds: float) -> None:
    """Relays of the old primary go on for a while."""
    old = list(run.relays)
    await run.database.promote()
    for _ in old:
        await run.start_relay()
    await asyncio.sleep(overlap_seconds)
    await run.end_relays(old)
    await run.database.close_old()


async def _put_back(run: PaymentsRun, command: Command) -> None:
    killed = 0
    if command.values["relays"] == "killed" or command.values.get("declared"):
        killed = await run.end_relays(run.relays)
    await run.database.put_back()
    if command.values.get("declared"):
        await run.database.rows(_DECLARE, role=OPERATOR_ROLE)
    for _ in range(killed):
        await run.start_relay()


COMMANDS: Final[Mapping[str, Carry]] = by_name(_backup, _restore)
