"""What the relays of the load campaigns run. The observer is the destination; a gate is a file that a test makes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from redrive.answers import Answer, Retryable
from redrive.app import App
from redrive.message import Attempt
from redrive.policy import Backoff, Policy, Settlement
from redrive.prove import client
from redrive.prove.config import Config

GATE_VARIABLE: Final = "REDRIVE_TEST_GATE"
BOOK: Final = "book"
KEYED: Final = "keyed"
RECORD_SECONDS: Final = 0.003
# So many that a key which is blocked for a whole campaign has some left.
POLICY: Final = Policy(attempts=1000, backoff=Backoff(initial_seconds=0.02, multiplier=2, max_seconds=0.2))
CONFIG: Final = Config(
    lookups=(),
    holds=(),
    records=(BOOK,),
    completes=(),
    limited={},
    attempts_max=1000,
    lease_seconds=1.0,
    reap_every_seconds=0.2,
)

app = App()


async def _record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    """Holds its transaction open for as long as some real bookkeeping does: in between others look at the same key."""
    await conn.execute(
        "INSERT INTO redrive_prove.recorded (message_id, attempt, kind) VALUES (%s, %s, %s)",
        [attempt.id, attempt.number, settlement.kind.value],
    )
    await conn.execute("SELECT pg_sleep(%s)", [RECORD_SECONDS])


def is_blocked(message: Attempt) -> bool:
    return bool(message.payload.get("blocked")) and not Path(os.environ[GATE_VARIABLE]).exists()


async def _send_unless_blocked(message: Attempt) -> Answer:
    if is_blocked(message):
        return Retryable("BLOCKED")
    return await client.send(message)


app.destination(BOOK, record=_record, in_doubt="resend", policy=POLICY, concurrency=20, timeout_seconds=10)(client.send)
app.destination(KEYED, in_doubt="resend", policy=POLICY, concurrency=20, timeout_seconds=10)(_send_unless_blocked)
