"""How the handlers of the proof reach the observer: one connection, one line out, one line in; and what they write
into the application's own tables.

Network errors are raised as Python raises them, so that the engine's own table judges them.
"""

import asyncio
import base64
import json
import os
from typing import Any, Final

import psycopg

from redrive import completion
from redrive.answers import Absent, Answer, CannotTell, Delivered, Found, LookupAnswer, Retryable, Terminal, Unknown
from redrive.message import Attempt
from redrive.policy import Settlement

SOCKET_VARIABLE = "REDRIVE_PROVE_OBSERVER"
# What the observer can be asked to do wrong, by call.
FAULTS: Final = {
    "send": frozenset({"reset", "hang", "refuse", "later", "busy", "slow", "lost_reply", "garbage"}),
    "lookup": frozenset({"cannot_tell", "lookup_lost"}),
}


async def send(message: Attempt) -> Answer:
    reply = await _call("send", message)
    match reply.get("answer"):
        case "done":
            return Delivered(reference=reply["reference"])
        case "refused":
            return Terminal("REFUSED")
        case "later":
            return Retryable("LATER")
        case "busy":
            return Retryable("BUSY", retry_after=reply["retry_after"])
        case _:
            return Unknown("GARBAGE")


async def lookup(message: Attempt) -> LookupAnswer:
    reply = await _call("lookup", message)
    match reply.get("answer"):
        case "found":
            return Found(reference=reply["reference"])
        case "absent":
            return Absent()
        case _:
            return CannotTell()


def planned(message: Attempt) -> str | None:
    """What is to go wrong with this attempt: `faults` in the payload, one for each attempt."""
    try:
        payload = message.payload
    except ValueError:
        return None
    faults = payload.get("faults") if isinstance(payload, dict) else None
    return faults[message.number - 1] if faults and message.number <= len(faults) else None


async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None:
    await conn.execute(
        "INSERT INTO redrive_prove.recorded (message_id, attempt, kind) VALUES (%s, %s, %s)",
        [attempt.id, attempt.number, settlement.kind.value],
    )


async def complete(message: Attempt, answer: Answer) -> Answer:
    """Settle in a transaction of our own."""
    async with await psycopg.AsyncConnection.connect(os.environ["REDRIVE_DSN"]) as conn:
        await conn.execute(
            "INSERT INTO redrive_prove.completed (message_id, attempt) VALUES (%s, %s)", [message.id, message.number]
        )
        await completion.acomplete(conn, message, answer)
    return answer


async def _call(call: str, message: Attempt) -> dict[str, Any]:
    reader, writer = await _connect()
    try:
        writer.write(_request(call, message))
        line = await reader.readline()
    finally:
        writer.close()
    if not line.endswith(b"\n"):
        raise ConnectionResetError
    try:
        reply = json.loads(line)
    except ValueError:
        return {}
    return reply if isinstance(reply, dict) else {}


async def _connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_unix_connection(os.environ[SOCKET_VARIABLE])
    except FileNotFoundError:  # it is being restarted: to a client of a Unix socket that is a refused connection
        raise ConnectionRefusedError from None


def _request(call: str, message: Attempt) -> bytes:
    values = {
        "call": call,
        "destination": message.destination,
        "id": str(message.id),
        "attempt": message.number,
        "token": message.token,
        "body": base64.b64encode(message.body).decode("ascii"),
        "pid": os.getpid(),
        "parent": os.getppid(),
    }
    fault = planned(message)
    if fault in FAULTS[call]:
        values["fault"] = fault
    return json.dumps(values).encode() + b"\n"
