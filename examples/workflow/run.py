"""Runs producers that repeat themselves, a relay that is killed, and a subscriber; then compares the books.

python run.py [INSTANCES]

PostgreSQL is where PGHOST and so on lead to; without PGHOST one is started, in a temporary directory.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import psycopg
from psycopg.conninfo import conninfo_to_dict
from workflow import definitions, instances, tasks
from workflow.database import DSN, create_tables

from redrive.operate import embedded

HERE = Path(__file__).parent
REDRIVE = [sys.executable, "-m", "redrive"]
TENANTS = ("acme", "globex", "initech")
PRODUCERS = 4
# Short, so that what the killed relay had in hand goes on soon.
SOON = {"REDRIVE_LEASE_SECONDS": "6", "REDRIVE_HEARTBEAT_SECONDS": "2", "REDRIVE_REAP_EVERY_SECONDS": "1"}
SECONDS_MAX = 120
VARIABLES = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
IS_OVER = "SELECT count(*) = 0 FROM redrive_tenant.outbox_messages WHERE NOT is_processed"


def main(count: int) -> int:
    with ExitStack() as stack:
        server(stack)
        subprocess.run([*REDRIVE, "db", "upgrade", "--json", "--dsn", DSN], check=True, stdout=subprocess.DEVNULL)
        conn = stack.enter_context(psycopg.connect(DSN, autocommit=True))
        conn.execute("SET redrive.tenant = '*'")
        create_tables(conn)
        doomed = stack.enter_context(relay())
        with ThreadPoolExecutor(PRODUCERS) as pool:
            # Each instance is worked on by two producers at once, as where a load balancer repeats requests.
            stories = [pool.submit(story, number, seed) for number in range(count) for seed in (1, 2)]
            wait_for(lambda: value(conn, "SELECT count(*) > 0 FROM subscriber_ledger"), "an event at the subscriber")
            doomed.kill()
            doomed.wait(60)
            stack.enter_context(relay())
            for done in stories:
                done.result()
        wait_for(lambda: value(conn, IS_OVER), "the delivery of every event")
        problems = list(check(conn))
        told = value(conn, "SELECT count(*) FROM subscriber_ledger")
    print("\n".join(problems) or f"{told} events of {count} instances, each told once; a relay was killed.")
    return 1 if problems else 0


def story(number: int, seed: int) -> None:
    """The life of one instance; the ids are made of its number, so the second producer means the same one."""
    chance = random.Random(f"{number}/{seed}")
    tenant, name = TENANTS[number % len(TENANTS)], f"approval-{number % 5}"
    id, task = (uuid5(NAMESPACE_OID, f"{what}/{number}") for what in ("instance", "task"))
    at = datetime(2030, 1, 1, tzinfo=UTC)
    ends: list[Callable] = [
        lambda conn: (tasks.complete_task(conn, tenant, task), instances.complete_instance(conn, tenant, id)),
        lambda conn: instances.fail_instance(conn, tenant, id, "no budget"),
        lambda conn: instances.force_cancel_instance(conn, tenant, id, request=f"request-{number}", by="ada"),
    ]
    steps: list[Callable] = [
        lambda conn: definitions.publish_definition(conn, tenant, name, 1),
        lambda conn: instances.start_instance(conn, tenant, id, name, 1),
        lambda conn: tasks.create_task(conn, tenant, task, id, "approve"),
        lambda conn: instances.decide_gateway(conn, tenant, id, "amount", "high", at),
        lambda conn: tasks.claim_task(conn, tenant, task, "ada"),
        ends[number % len(ends)],
    ]
    for step in steps:
        request(step, chance)


def request(step: Callable, chance: random.Random) -> None:
    """Sometimes it fails before its commit, sometimes its answer is lost after it: the caller repeats it."""
    for outcome in (chance.choice(["rolled back", "answer lost", "done"]), "done"):
        try:
            with psycopg.connect(DSN) as conn, conn.transaction(force_rollback=outcome == "rolled back"):
                step(conn)
        except instances.Refused:
            return  # the other producer has ended the instance
        if outcome == "done":
            return


def check(conn: psycopg.Connection) -> Iterator[str]:
    """The ledger of the subscriber against the rows of the application."""
    doubled = "SELECT tenant, key, count(*) FROM subscriber_ledger GROUP BY 1, 2 HAVING count(*) > 1"
    for tenant, key, times in conn.execute(doubled).fetchall():
        yield f"The event {key} of {tenant} was told {times} times."
    if value(conn, "SELECT count(*) FROM workflow_instance WHERE status = 'running'"):
        yield "An instance has not ended."
    for name, (expected, told) in BOOKS.items():
        missing = conn.execute(f"({expected}) EXCEPT ({told})").fetchall()
        invented = conn.execute(f"({told}) EXCEPT ({expected})").fetchall()
        if missing or invented:
            yield f"{name}: the subscriber was not told {missing[:3]}, and was told {invented[:3]} without a row."


def told(*event_types: str, what: str, more: str = "") -> str:
    kinds = ", ".join(f"'{one}'" for one in event_types)
    return f"SELECT tenant, payload ->> '{what}'{more} FROM subscriber_ledger WHERE event_type IN ({kinds})"


ENDED = {"completed": "InstanceCompleted", "failed": "InstanceFailed", "cancelled": "InstanceForceCancelled"}
DONE = {"completed": "TaskCompleted", "cancelled": "TaskCancelled"}
BOOKS = {
    "definitions": (
        "SELECT tenant, name FROM workflow_definition WHERE published",
        told("DefinitionPublished", what="name"),
    ),
    "instances": ("SELECT tenant, id::text FROM workflow_instance", told("InstanceStarted", what="instance")),
    "gateways": (
        "SELECT tenant, instance::text, branch FROM workflow_gateway_decision",
        told("GatewayDecided", what="instance", more=", payload ->> 'branch'"),
    ),
    "tasks": ("SELECT tenant, id::text FROM workflow_task", told("TaskCreated", what="task")),
    **{
        f"{status} instances": (
            f"SELECT tenant, id::text FROM workflow_instance WHERE status = '{status}'",
            told(event_type, what="instance"),
        )
        for status, event_type in ENDED.items()
    },
    **{
        f"{status} tasks": (
            f"SELECT tenant, id::text FROM workflow_task WHERE status = '{status}'",
            told(event_type, what="task"),
        )
        for status, event_type in DONE.items()
    },
}


@contextmanager
def relay() -> Iterator[subprocess.Popen]:
    command = [*REDRIVE, "relay", "workflow.outbox:app", "--dsn", DSN, "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=HERE, env={**SOON, **os.environ})
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def server(stack: ExitStack) -> None:
    """Its coordinates are in the environment afterwards, for this process and for the relays."""
    if "PGHOST" in os.environ:
        return
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
    home.chmod(0o755)
    started = stack.enter_context(embedded.start(home / "postgresql"))
    parts = conninfo_to_dict(started.dsn)
    os.environ.update({variable: str(parts[part]) for part, variable in VARIABLES.items() if parts.get(part)})


def value(conn: psycopg.Connection, query: str) -> object:
    return conn.execute(query).fetchone()[0]


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Within {SECONDS_MAX} s there was not: {what}.")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
