"""The story that the console is made for: five hundred failures of three causes, beside messages that went well.

`invoice.created` to `erp` fails where its currency is null: somebody has to edit it. `order.placed` to `crm` is
refused until a key is rotated, `welcome` to `mail` until the server is up again. All of it goes through a real relay,
which also carries out the repairs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

import redrive
from redrive.events import Events
from redrive.policy import Breaker
from redrive.relay.process import RelayProcess, run_relay
from redrive.settings import RelayLimits
from tests.support.waiting import wait_until

NO_CURRENCY: Final = 312
REFUSED: Final = 120
UNREACHABLE: Final = 68
FAILED: Final = NO_CURRENCY + REFUSED + UNREACHABLE
GOOD: Final = 40
DEADLINE_SECONDS: Final = 60.0


class Outside:
    """What is wrong on the other side, until it is mended; and what arrived there."""

    def __init__(self) -> None:
        self.mended = False
        self.arrived: list[tuple[str, Any]] = []

    def app(self) -> redrive.App:
        app = redrive.App()
        once = redrive.Policy(attempts=1)

        async def has_currency(message: redrive.Attempt) -> None:
            if message.payload.get("currency") is None:
                raise redrive.Terminal("SCHEMA_INVALID", "currency is missing")

        @app.destination("erp", policy=once, validate=has_currency, concurrency=50)
        async def erp(message: redrive.Attempt) -> None:
            self.arrived.append(("erp", message.payload))

        @app.destination("crm", policy=once, concurrency=50)
        async def crm(message: redrive.Attempt) -> None:
            if not self.mended:
                raise redrive.Terminal("HTTP_401", "the key is not known")
            self.arrived.append(("crm", message.payload))

        @app.destination("mail", policy=once, breaker=Breaker(failures=1000, share=1.0, window=10_000), concurrency=50)
        async def mail(message: redrive.Attempt) -> None:
            if not self.mended:
                raise redrive.Retryable("HTTP_503", "try again later")
            self.arrived.append(("mail", message.payload))

        return app


def enqueue_all(dsn: str) -> None:
    """In one transaction, as a producer would."""
    with psycopg.connect(dsn) as conn:
        for number in range(NO_CURRENCY + GOOD):
            invoice = {
                "invoice": 4000 + number,
                "customer": f"c-{number * 7919 % 9973}",
                "amount": f"{number * 37 % 900 + 10}.90",
                "currency": None if number < NO_CURRENCY else "EUR",
                "lines": [{"sku": "teapot", "count": 1 + number % 3}],
            }
            redrive.enqueue(conn, "erp", invoice, key=f"invoice:{4000 + number}", kind="invoice.created")
        for number in range(REFUSED):
            redrive.enqueue(conn, "crm", {"order": number, "total": number * 3}, kind="order.placed")
        for number in range(UNREACHABLE):
            redrive.enqueue(conn, "mail", {"to": f"user{number}@example.com", "template": "welcome"}, kind="welcome")


@contextmanager
def relay(app: redrive.App, dsn: str, *, name: str = "relay-1") -> Iterator[None]:
    """A relay in a thread of its own."""
    with beside(lambda started: _run_relay(app, dsn, name, started)):
        yield


async def _run_relay(app: redrive.App, dsn: str, name: str, started: threading.Event) -> None:
    events = Events()
    events.subscribe(lambda *_: started.set(), "relay.started")
    process = RelayProcess(app=app, dsn=dsn, limits=RelayLimits(poll_seconds=0.05), name=name)
    await run_relay(process, events=events, signals=False)


@contextmanager
def beside(run: Callable[[threading.Event], Any]) -> Iterator[None]:
    """A coroutine in a thread; cancelled at the end of the block."""
    started = threading.Event()
    loop = asyncio.new_event_loop()
    task: list[asyncio.Task[None]] = []

    def job() -> None:
        asyncio.set_event_loop(loop)
        task.append(loop.create_task(run(started)))
        loop.run_until_complete(asyncio.gather(*task, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=job)
    thread.start()
    try:
        assert started.wait(DEADLINE_SECONDS), "It did not start."
        yield
    finally:
        loop.call_soon_threadsafe(task[0].cancel)
        thread.join(DEADLINE_SECONDS)


def settle_down(dsn: str) -> None:
    """Wait until every message has been delivered or parked, and its failure is in a group."""
    done = "SELECT (SELECT count(*) FROM redrive.pending) + (SELECT count(*) FROM redrive.lease)"

    def quiet() -> bool:
        with psycopg.connect(dsn, autocommit=True) as conn:
            return bool(conn.execute(done.encode()).fetchall()[0][0] == 0)

    wait_until(quiet, seconds=DEADLINE_SECONDS, what="all messages to be settled")
