"""`redrive demo`: embedded PostgreSQL, migrations, a relay, the console, and a shop that takes orders until Ctrl-C.

Data survives. `once` takes a number of orders, waits until each message is delivered or parked, and judges the result.
"""

import asyncio
import os
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from rich.console import Console
from rich.live import Live

from redrive.demo import check, screen, shop
from redrive.events import Events
from redrive.kit import demo as kit
from redrive.kit.demo import StoryRelay
from redrive.operate.cli.console import beside as served
from redrive.operate.cli.local_server import command_line
from redrive.settings import Settings

ORDERS_ONCE = 40
ORDER_EVERY_SECONDS = 0.4
REFRESH_SECONDS = 0.25
LINE_EVERY = 8  # refreshes between two lines in a pipe
ONCE_SECONDS_MAX = 120.0


@dataclass(frozen=True, kw_only=True)
class Demo(kit.Demo):
    orders: int = ORDERS_ONCE


def run(demo: Demo, console: Console) -> int:
    """Exit code: 0, or 1 when `--once` found a violation."""
    os.environ[shop.LEDGER_VARIABLE] = str(demo.home)
    return kit.with_database(demo, console, lambda dsn: asyncio.run(_play(demo, dsn, console)))


async def _play(demo: Demo, dsn: str, console: Console) -> int:
    scene, events = screen.Scene(), Events()
    events.subscribe(scene.hear, "message.delivered", "message.retried", "message.parked")
    beside = nullcontext() if demo.once else served(Settings(), dsn)
    async with (
        kit.relay_beside(console, shop.app, spec="redrive.demo.shop:app", dsn=dsn, name="demo", events=events) as relay,
        beside,
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn,
    ):
        await conn.execute(shop.SCHEMA)
        taking = asyncio.create_task(_take_orders(demo, dsn, relay.ended))
        await _show(demo, dsn, conn, scene, relay, taking)
        await taking
        if not demo.once:
            console.print("Stopped. The data stays; the next start goes on from here.", style="dim")
            return 0
        found = check.violations(await _sent(conn), _ledgers())
        screen.summary(console, scene, found)
        return 1 if found else 0


async def _take_orders(demo: Demo, dsn: str, ended: asyncio.Event) -> None:
    """Each in its own transaction; with `once` a fixed number, as fast as they come."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        taken = 0
        while not ended.is_set() and not (demo.once and taken >= demo.orders):
            await shop.place_order(conn)
            taken += 1
            if not demo.once:
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), ORDER_EVERY_SECONDS)


async def _show(
    demo: Demo,
    dsn: str,
    conn: psycopg.AsyncConnection[Any],
    scene: screen.Scene,
    relay: StoryRelay,
    taking: asyncio.Task[None],
) -> None:
    """Until Ctrl-C, or (once) until everything is delivered or parked."""
    console, deadline = relay.console, asyncio.get_running_loop().time() + ONCE_SECONDS_MAX
    if not demo.once:  # on a line of its own, however narrow the terminal is, so that it can be copied whole
        console.print("Ctrl-C stops. In another terminal:", style="dim")
        console.print(command_line("dead", "list", "--dsn", dsn), soft_wrap=True, markup=False, highlight=False)
    with Live(console=console, auto_refresh=False, transient=demo.once) as live:
        beat = 0
        while not relay.ended.is_set():
            if taking.done():
                taking.result()
            open_messages = await _look(conn, scene)
            if console.is_terminal:
                live.update(screen.render(scene), refresh=True)
            elif beat % LINE_EVERY == 0:
                console.print(screen.line(scene), soft_wrap=True)
            if demo.once and taking.done() and not open_messages:
                return
            if demo.once and asyncio.get_running_loop().time() > deadline:
                return
            beat += 1
            await relay.pause(REFRESH_SECONDS)


async def _look(conn: psycopg.AsyncConnection[Any], scene: screen.Scene) -> int:
    """Returns how many messages are still open."""
    ((scene.orders,),) = await (await conn.execute("SELECT count(*) FROM shop.orders")).fetchall()
    cursor = await conn.execute(_BY_DESTINATION)
    scene.rows = {name: screen.Row() for name in screen.ABOUT}
    still_open = 0
    for destination, state, retrying, why, count in await cursor.fetchall():
        row = scene.rows[destination]
        still_open += count if state in ("pending", "leased") else 0
        if state == "delivered":
            row.delivered += count
        elif state == "leased":
            row.leased += count
        elif state == "parked":
            row.parked = {**row.parked, why: count}
        elif retrying:
            row.retrying += count
        else:
            row.waiting += count
    return still_open


_BY_DESTINATION: LiteralString = """
SELECT m.destination, m.state, coalesce(p.attempt > 0, false), k.reason || ' ' || k.error_class, count(*)
  FROM shop.order_messages o
  JOIN redrive.messages m ON m.id = o.message_id
  LEFT JOIN redrive.pending p ON p.id = m.id
  LEFT JOIN redrive.parked k ON k.id = m.id
 GROUP BY 1, 2, 3, 4
"""


async def _sent(conn: psycopg.AsyncConnection[Any]) -> list[check.Sent]:
    cursor = await conn.execute(
        "SELECT o.order_id, o.message_id, m.destination, m.state, k.reason || ' ' || k.error_class"
        " FROM shop.order_messages o JOIN redrive.messages m ON m.id = o.message_id"
        " LEFT JOIN redrive.parked k ON k.id = m.id"
    )
    return [check.Sent(*row) for row in await cursor.fetchall()]


def _ledgers() -> dict[str, list[str]]:
    return {name: [entry["token"] for entry in shop.Ledger(name).entries()] for name in screen.ABOUT}
