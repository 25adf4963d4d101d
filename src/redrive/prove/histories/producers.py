"""Commands of producers: enqueue and cancel, in their own transactions or in one that is held open."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

import psycopg
from psycopg.rows import TupleRow

import redrive
from redrive.kit.proof.commands import Command
from redrive.kit.proof.runner import LOOK_SECONDS, LOST, Carry, by_name
from redrive.prove.histories.destinations import HEALTHY
from redrive.prove.histories.drawing import OK
from redrive.prove.histories.judging import Asked, Message

if TYPE_CHECKING:
    from redrive.prove.histories.running import EngineRun

Connection = psycopg.AsyncConnection[TupleRow]

GIVE_UP_SECONDS: Final = 5.0  # they do so themselves where the server does not: its timers fail when its clock is moved
HEALTHY_EVERY_SECONDS: Final = 0.12
HEALTHY_MAX: Final = 5
TENANT: Final = "a"


@dataclass
class OpenTransaction:
    """touched: ids of messages of which it may hold rows."""

    conn: Connection
    messages: list[Message] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)


def is_certain(error: Exception) -> bool:
    """The server said that the statement failed; a lost connection says nothing."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is not None and state[:2] not in ("57", "08")


async def produce_healthy(run: EngineRun) -> None:
    """To the healthy destination, from the moment when a relay works until it is cancelled."""
    while run.relays and not await run.workers(run.relays[0]):  # noqa: ASYNC110 - of another process
        await asyncio.sleep(LOOK_SECONDS)
    number = 0
    while True:
        with contextlib.suppress(*LOST):
            async with await run.database.connect() as conn:
                while True:
                    number += 1
                    await _enqueue_healthy(run, conn, number)
                    await asyncio.sleep(HEALTHY_EVERY_SECONDS)
                    # A machine that cannot keep up is not to be judged by the queue that this makes.
                    while await _waiting_healthy(conn) > HEALTHY_MAX:  # noqa: ASYNC110 - of other processes
                        await asyncio.sleep(HEALTHY_EVERY_SECONDS)
        await asyncio.sleep(HEALTHY_EVERY_SECONDS)


async def _waiting_healthy(conn: Connection) -> int:
    found = await conn.execute("SELECT count(*) FROM redrive.pending WHERE destination = %s", [HEALTHY])
    row = await found.fetchone()
    return int(row[0]) if row else 0


async def _enqueue_healthy(run: EngineRun, conn: Connection, number: int) -> None:
    began = time.time()
    async with conn.transaction():
        receipt = await redrive.aenqueue(conn, HEALTHY, {"number": number}, tenant=TENANT)
        message = Message(name=f"healthy-{number}", id=str(receipt.id), destination=HEALTHY, began_at=began)
        run.book.messages.append(message)
    message.committed, message.acknowledged_at = True, time.time()


async def _connect(run: EngineRun) -> Connection:
    conn = await run.database.connect("redrive_producer", dsn=run.database.wire.dsn)
    await conn.set_autocommit(False)
    return conn


async def _begin(run: EngineRun, command: Command) -> str:
    if command.values["tx"] in run.open:
        return "is open"
    run.open[command.values["tx"]] = OpenTransaction(await _connect(run))
    return "done"


async def _enqueue(run: EngineRun, command: Command) -> str:
    held = run.open.get(command.values.get("tx", ""))
    if held is not None:
        return await _enqueue_in(run, held, command)
    async with await _connect(run) as conn:
        one = OpenTransaction(conn)
        await _enqueue_in(run, one, command)
        return await _committed(one)


async def _enqueue_in(run: EngineRun, held: OpenTransaction, command: Command) -> str:
    values = command.values
    async with asyncio.timeout(GIVE_UP_SECONDS):
        receipt = await redrive.aenqueue(
            held.conn,
            values["destination"],
            {"name": command.message, "faults": values["faults"]},
            key=command.message,
            tenant=values["tenant"],
            order_by=values.get("key"),
            expires_at=_in(values.get("expires_seconds")),
        )
    message = Message(
        name=command.message,
        id=str(receipt.id),
        destination=values["destination"],
        lane=(values["tenant"], values["key"]) if "key" in values else None,
        committed=False,
        began_at=time.time(),
        expires="expires_seconds" in values,
        calm=set(values["faults"]) <= {OK},
    )
    run.messages[command.message] = message
    run.book.messages.append(message)
    held.messages.append(message)
    return "new"


def _in(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)


async def _cancel(run: EngineRun, command: Command) -> str:
    message = run.messages.get(command.message)
    if message is None:
        return "not known"
    held = run.open.get(command.values.get("tx", ""))
    if held is not None:
        return await _cancel_in(held, message)
    async with await _connect(run) as conn:
        one = OpenTransaction(conn)
        answer = await _cancel_in(one, message)
        ended = await _committed(one)
        return answer if ended == "done" else ended


async def _cancel_in(held: OpenTransaction, message: Message) -> str:
    began = time.time()
    async with asyncio.timeout(GIVE_UP_SECONDS):
        rows = await (await held.conn.execute("SELECT redrive.cancel_1(%s)", [UUID(message.id)])).fetchall()
    asked = Asked(verb="cancel", answer=rows[0][0], asked_at=began, answered_at=time.time(), committed=False)
    message.asked.append(asked)
    held.asked.append(asked)
    held.touched.append(message.id)
    return asked.answer


async def _commit(run: EngineRun, command: Command) -> str:
    held = run.open.pop(command.values["tx"], None)
    if held is None:
        return "not open"
    async with held.conn:
        return await _committed(held)


async def _committed(held: OpenTransaction) -> str:
    """A lost reply leaves it unknown."""
    if held.conn.closed or held.conn.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
        return "rolled back"
    for message in held.messages:
        message.began_at, message.committed = time.time(), None
    for asked in held.asked:
        asked.committed = None
    try:
        await held.conn.commit()
    except LOST as error:
        if is_certain(error):
            _mark(held, committed=False)
        return "unknown"
    _mark(held, committed=True)
    return "done"


def _mark(held: OpenTransaction, *, committed: bool) -> None:
    for message in held.messages:
        message.committed, message.acknowledged_at = committed, time.time()
    for asked in held.asked:
        asked.committed = committed


async def rollback(run: EngineRun, command: Command) -> str:
    held = run.open.pop(command.values["tx"], None)
    if held is None:
        return "not open"
    with contextlib.suppress(*LOST):
        await held.conn.rollback()
    await held.conn.close()
    return "done"


COMMANDS: Final[Mapping[str, Carry]] = by_name(_begin, _enqueue, _cancel, _commit, rollback)
