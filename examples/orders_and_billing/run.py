"""Runs both services, kills a worker and a relay in their work, and checks that each order has exactly one invoice.

python run.py [ORDERS]

ORDERS_DSN, BILLING_DSN and NATS_URL name servers; what is not named is started, in a temporary directory.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import nats
import psycopg

from redrive.operate import embedded
from redrive.operate.embedded import nats_server

HERE = Path(__file__).parent
REDRIVE = [sys.executable, "-m", "redrive"]
SERVICES = ("orders", "billing")
STREAMS = {"ORDERS": "orders.>", "INVOICES": "invoices.>"}
CUSTOMERS = ("ada", "bob", "cora", "dan")
# Short, so that what a killed relay had in hand goes on soon.
SOON = {"REDRIVE_LEASE_SECONDS": "6", "REDRIVE_HEARTBEAT_SECONDS": "2", "REDRIVE_REAP_EVERY_SECONDS": "1"}
SECONDS_MAX = 120


def main(count: int) -> int:
    with ExitStack() as stack:
        dsns = servers(stack)
        prepare(dsns)
        processes = {
            (what, service): stack.enter_context(Process(what, service, dsns[service]).running())
            for service in SERVICES
            for what in ("relay", "worker")
        }
        orders, billing = (stack.enter_context(psycopg.connect(dsns[name], autocommit=True)) for name in SERVICES)
        deliver(orders, billing, processes, count)
        problems = list(check(orders, billing, count))
    print("\n".join(problems) or f"{count} orders, each with exactly one invoice; a worker and a relay were killed.")
    return 1 if problems else 0


def deliver(orders: psycopg.Connection, billing: psycopg.Connection, processes: dict, count: int) -> None:
    """Orders in three parts; after each of the first two a process is killed while it works, and started again."""
    killed = [("worker", "billing"), ("relay", "orders"), None]
    placed = 0
    for part, victim in enumerate(killed, start=1):
        wanted = count * part // len(killed)
        for number in range(placed, wanted):
            place(orders, number)
        if victim is not None:
            wait_for(lambda: number_of_invoices(billing) > placed, f"an invoice of part {part}")  # noqa: B023
            print(f"{number_of_invoices(billing)} of {wanted} invoices: the {victim[0]} of {victim[1]} is killed")
            processes[victim].kill_and_start()
        placed = wanted
    wait_for(lambda: number_of_invoices(billing) >= count, "an invoice of every order")
    wait_for(lambda: are_all_told(orders), "the number of its invoice at every order")


def place(orders: psycopg.Connection, number: int) -> None:
    from orders import place_order

    place_order(orders, CUSTOMERS[number % len(CUSTOMERS)], 100 + number)


def check(orders: psycopg.Connection, billing: psycopg.Connection, count: int) -> Iterator[str]:
    placed = orders.execute("SELECT id, customer, cents, invoice FROM orders ORDER BY id").fetchall()
    issued = billing.execute("SELECT order_id, customer, cents, id FROM invoices ORDER BY order_id, id").fetchall()
    if len(placed) != count:
        yield f"{len(placed)} orders were placed, not {count}."
    if placed != issued:
        yield f"orders and invoices differ: {sorted(set(placed) ^ set(issued))[:5]}"
    by_customer = "SELECT customer, array_agg(order_id ORDER BY id) FROM invoices GROUP BY 1"
    for customer, numbers in billing.execute(by_customer):
        if numbers != sorted(numbers):
            yield f"the invoices of {customer} are not in the order of the orders: {numbers}"


def number_of_invoices(billing: psycopg.Connection) -> int:
    return billing.execute("SELECT count(*) FROM invoices").fetchone()[0]


def are_all_told(orders: psycopg.Connection) -> bool:
    return orders.execute("SELECT count(*) FROM orders WHERE invoice IS NULL").fetchone()[0] == 0


class Process:
    """`redrive relay` or `redrive worker` of a service."""

    def __init__(self, what: str, service: str, dsn: str) -> None:
        self._command = [*REDRIVE, what, f"{service}:app", "--dsn", dsn, "--log-level", "warning"]

    @contextmanager
    def running(self) -> Iterator["Process"]:
        self._start()
        try:
            yield self
        finally:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)

    def kill_and_start(self) -> None:
        self._process.kill()
        self._process.wait(60)
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, cwd=HERE, env={**SOON, **os.environ})


def servers(stack: ExitStack) -> dict[str, str]:
    """The DSN of each service; NATS_URL is set."""
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
    home.chmod(0o755)
    if "NATS_URL" not in os.environ:
        os.environ["NATS_URL"] = stack.enter_context(nats_server.start(home / "nats")).url
    named = {name: os.environ.get(f"{name.upper()}_DSN") for name in SERVICES}
    if all(named.values()):
        return named
    server = stack.enter_context(embedded.start(home / "postgresql"))
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        for name in SERVICES:
            conn.execute(f"CREATE DATABASE {name}")
    return {name: server.dsn_of(name) for name in SERVICES}


def prepare(dsns: dict[str, str]) -> None:
    import billing
    import orders

    for name, service in (("orders", orders), ("billing", billing)):
        subprocess.run(
            [*REDRIVE, "db", "upgrade", "--json", "--dsn", dsns[name]], check=True, stdout=subprocess.DEVNULL
        )
        with psycopg.connect(dsns[name]) as conn:
            conn.execute(service.SCHEMA)
    asyncio.run(make_streams())


async def make_streams() -> None:
    client = await nats.connect(os.environ["NATS_URL"])
    for name, subjects in STREAMS.items():
        await client.jetstream().add_stream(name=name, subjects=[subjects])  # in files, unless it is told otherwise
    await client.close()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Within {SECONDS_MAX} s there was not: {what}.")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
