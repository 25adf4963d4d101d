"""Commands of operators: each is written into the book with its answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, LiteralString
from uuid import UUID

from redrive.kit.proof.acts import ACTS, BODY
from redrive.kit.proof.commands import Command
from redrive.kit.proof.history_environment import OPERATOR_ROLE
from redrive.kit.proof.runner import LOST, Carry, by_name
from redrive.produce.payload import canonical_json
from redrive.prove.histories.judging import Asked
from redrive.prove.histories.producers import GIVE_UP_SECONDS, is_certain

if TYPE_CHECKING:
    from redrive.prove.histories.running import EngineRun

ALICE: Final = "alice"
_GROUP: Final = (
    "SELECT redrive.mark_group_1(k.failure_group, %(act)s, %(who)s, 'history', 'bob') FROM redrive.parked k"
    " WHERE k.id = %(id)s AND k.failure_group IS NOT NULL"
)


def _id(run: EngineRun, command: Command) -> UUID:
    message = run.messages.get(command.message)
    return UUID(message.id) if message else UUID(int=0)


def _values(run: EngineRun, command: Command) -> dict[str, Any]:
    message = run.messages.get(command.message)
    tenant, key = (message.lane if message else None) or (None, None)
    return {
        "id": _id(run, command),
        "who": ALICE,
        "cause": "data",
        "tenant": tenant,
        "key": key,
        "stage": None,
        "out_of_order": bool(command.values.get("out_of_order")),
    }


async def _act_on(run: EngineRun, command: Command, statement: LiteralString, **more: Any) -> str:
    message = run.messages.get(command.message)
    if message is None:
        return "not known"
    values = {**_values(run, command), **more}
    asked = Asked(
        verb=command.verb,
        answer="unknown",
        asked_at=time.time(),
        answered_at=time.time(),
        out_of_order=values["out_of_order"],
    )
    message.asked.append(asked)
    try:
        async with asyncio.timeout(GIVE_UP_SECONDS):
            rows = await run.database.rows(statement, role=OPERATOR_ROLE, **values)
        asked.answer = str(rows[0][0]) if rows else "nothing"
    except (*LOST, TimeoutError) as error:
        asked.answer = type(error).__name__ if is_certain(error) else "unknown"
    asked.answered_at = time.time()
    return asked.answer


async def _act(run: EngineRun, command: Command) -> str:
    return await _act_on(run, command, ACTS[command.verb])


async def _stop_message(run: EngineRun, command: Command) -> str:
    return await _act_on(run, command, ACTS["cancel"])


async def _skip(run: EngineRun, command: Command) -> str:
    message = run.messages.get(command.message)
    return "no key" if message is None or message.lane is None else await _act(run, command)


async def _edit(run: EngineRun, command: Command) -> str:
    await _act_on(run, command, ACTS["triage"])
    rows = await run.database.rows(BODY, _id(run, command))
    if not rows:
        return "not parked"
    version, body = rows[0]
    edited = canonical_json({**json.loads(body), "faults": []})
    return await _act_on(run, command, ACTS["edit"], version=version, body=edited, paths='["/faults"]')


async def _replay(run: EngineRun, command: Command) -> str:
    await _act_on(run, command, ACTS["triage"])
    await run.database.rows(ACTS["remediate"], role=OPERATOR_ROLE, **_values(run, command))
    wanted = json.dumps({"ids": [str(_id(run, command))]})
    return await _act_on(run, command, ACTS["replay"], wanted=wanted)


async def _copy(run: EngineRun, command: Command) -> str:
    message = run.messages.get(command.message)
    if message is None:
        return "not known"
    name = f"{command.message}c{len(run.messages)}"
    began = time.time()
    values = {**_values(run, command), "key": name}
    ((answer, id_),) = await run.database.rows(ACTS["copy"], role=OPERATOR_ROLE, **values)
    if answer == "new":
        copied = replace(
            message,
            name=name,
            id=str(id_),
            committed=True,
            began_at=began,
            acknowledged_at=time.time(),
            expires=False,
            asked=[],
        )
        run.messages[name] = copied
        run.book.messages.append(copied)
    return str(answer)


async def _group(run: EngineRun, command: Command) -> str:
    rows = await run.database.rows(_GROUP, act=command.values["act"], who=ALICE, id=_id(run, command))
    return str(rows[0][0]) if rows else "no group"


async def _pause(run: EngineRun, command: Command) -> str:
    """Or resume."""
    values = {"destination": command.values["destination"], "who": ALICE}
    rows = await run.database.rows(ACTS[command.verb], role=OPERATOR_ROLE, **values)
    return str(rows[0][0])


COMMANDS: Final[Mapping[str, Carry]] = {
    **dict.fromkeys(["requeue", "discard", "confirm", "deny", "repair", "triage"], _act),
    **by_name(_stop_message, _skip, _edit, _replay, _copy, _group, _pause),
    "resume": _pause,
}
