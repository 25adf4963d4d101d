"""Faults that only histories of the engine have: a stop, a read-only database, a clock that is set, a bad row."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from redrive.kit.proof.commands import Command
from redrive.kit.proof.runner import LOOK_SECONDS, LOST, Carry, by_name

if TYPE_CHECKING:
    from redrive.prove.histories.running import EngineRun

_UNREADABLE: Final = '{"a":' + "9" * 8000 + "}"


async def _stop(run: EngineRun, command: Command) -> str:
    relay = run.relay_of(command)
    if relay is None or relay.frozen_at is not None:
        return "no relay"
    relay.ending = True
    run.relays.remove(relay)
    await run.start_relay()
    return await run.stop_relay(relay)


async def _jump_clock(run: EngineRun, command: Command) -> str:
    if run.database.clock is None:
        return "not here"
    run.ahead_seconds += command.values["by_seconds"]
    run.database.clock.set_off(run.ahead_seconds)
    run.disturb("clock")
    return "done"


async def _read_only(run: EngineRun, command: Command) -> str:
    if run.refuses:
        return "is so"
    run.refusing = asyncio.create_task(_refuse_writes(run, command.values["seconds"]))
    return "begins"


async def _refuse_writes(run: EngineRun, seconds: float) -> None:
    began = time.time()
    try:
        with contextlib.suppress(*LOST):
            await run.database.set_read_only(True)
        await asyncio.sleep(seconds)
    finally:
        while True:
            try:
                await run.database.set_read_only(False)
                break
            except LOST:
                await asyncio.sleep(LOOK_SECONDS)
        run.disturb("read_only", since=began)


async def _spoil(run: EngineRun, command: Command) -> str:
    """A row that no verb would have written: Python cannot read its headers."""
    message = run.messages.get(command.message)
    if message is None:
        return "not known"
    message.calm = False
    async with await run.database.connect() as conn:
        await conn.execute("SET session_replication_role = replica")
        await conn.execute("UPDATE redrive.message SET headers = %s::json WHERE id = %s", [_UNREADABLE, message.id])
    return "done"


COMMANDS: Final[Mapping[str, Carry]] = by_name(_stop, _jump_clock, _read_only, _spoil)
