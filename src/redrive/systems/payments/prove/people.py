"""Commands of producers and of people: one person after the other, where an act needs two."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import psycopg

from redrive.kit.proof.acts import ACTS, BODY
from redrive.kit.proof.commands import Command
from redrive.kit.proof.history_environment import APPROVER_ROLE, OPERATOR_ROLE, READY_SECONDS
from redrive.kit.proof.runner import LOOK_SECONDS, Carry, by_name
from redrive.kit.statements import canonical_json
from redrive.systems import payments
from redrive.systems.payments.names import TENANT, destination_of, key_of, order_of
from redrive.systems.payments.prove import steering
from redrive.systems.payments.prove.drawing import APPROVER, CURRENCY, IBAN, OTHER_IBAN, RAIL_TYPE
from redrive.systems.payments.validation import Instruction

if TYPE_CHECKING:
    from redrive.systems.payments.prove.running import PaymentsRun

DESTINATION: Final = destination_of(RAIL_TYPE)
NOT_ASKED: Final = "not asked, because it is not true"
_IDS: Final = """
SELECT i.outbox_id FROM redrive_payments.intent i LEFT JOIN redrive.parked k ON k.id = i.outbox_id
 WHERE i.instruction_id = %s ORDER BY k.id IS NULL, i.outbox_id DESC
"""
_FINDING: Final = "SELECT kind, subject FROM redrive_payments.finding WHERE resolved_at IS NULL ORDER BY 1, 2 LIMIT 1"
_ACKNOWLEDGE: Final = (
    "SELECT redrive_payments.acknowledge_finding_1(%(rail)s, %(kind)s, %(subject)s, %(who)s, 'history', 'refund')"
)


def role_of(person: str) -> str:
    return APPROVER_ROLE if person == APPROVER else OPERATOR_ROLE


# producers


async def _submit(run: PaymentsRun, command: Command) -> str:
    run.submitted.append(command.payment)
    return await _again(run, command)


async def _again(run: PaymentsRun, command: Command) -> str:
    """Until it is known to be committed. `second_key` has a key of its own."""
    asked = next((one.values for one in run.history.submits if one.payment == command.payment), None)
    if asked is None:
        return "no such payment"
    instruction = Instruction(
        instruction_id=command.payment,
        participant_id=asked["participant"],
        rail_type=RAIL_TYPE,
        amount=asked["amount"],
        currency=CURRENCY,
        destination={"iban": IBAN},
        **({"idempotency_key": command.values["key"]} if command.verb == "second_key" else {}),
    )
    while True:
        try:
            async with await run.database.connect("redrive_producer", dsn=run.database.wire.dsn) as conn:
                await conn.set_autocommit(False)
                await payments.aadd_participant(conn, asked["participant"])
                submitted = await payments.asubmit(conn, instruction)
                await conn.commit()
                return "duplicate" if submitted.already_existed else "new"
        except psycopg.OperationalError:
            await asyncio.sleep(LOOK_SECONDS)


async def _app_cancel(run: PaymentsRun, command: Command) -> str:
    rows = await run.database.rows("SELECT redrive.cancel_1(%s)", await _id(run, command), role="redrive_producer")
    return _counted(run, rows[0][0])


# people


async def _id(run: PaymentsRun, command: Command) -> UUID:
    """A copy, then what is parked, then the newest."""
    copies = run.copies.get(command.payment)
    if copies:
        return copies[-1]
    rows = await run.database.rows(_IDS, command.payment)
    return rows[0][0] if rows else UUID(int=0)


async def _by(run: PaymentsRun, who: str, statement: Any, **values: Any) -> str:
    rows = await run.database.rows(statement, role=role_of(who), who=who, **values)
    return _counted(run, rows[0][0]) if rows else "nothing"


def _counted(run: PaymentsRun, answer: object) -> str:
    if answer in steering.GUARDS:
        run.guards[str(answer)] += 1
    return str(answer)


async def _act(run: PaymentsRun, command: Command) -> str:
    """The verb of the same name by one person after the other; returns the last answer."""
    participants = (one.values["participant"] for one in run.history.submits if one.payment == command.payment)
    values = {
        "id": await _id(run, command),
        "stage": command.values.get("stage"),
        "out_of_order": bool(command.values.get("out_of_order")),
        "tenant": TENANT,
        "key": order_of(next(participants, "")),
    }
    answer = ""
    for who in command.values["by"]:
        answer = await _by(run, who, ACTS[command.verb], **values)
    return answer


async def _deny(run: PaymentsRun, command: Command) -> str:
    if run.history.ability == "no" and run.is_paid(command.payment):
        if not run.history.statement:
            return NOT_ASKED
        await run.compare_late()
    return await _act(run, command)


async def _confirm(run: PaymentsRun, command: Command) -> str:
    return await _act(run, command) if run.is_paid(command.payment) else NOT_ASKED


async def _edit(run: PaymentsRun, command: Command) -> str:
    id_ = await _id(run, command)
    await _by(run, "alice", ACTS["triage"], id=id_, cause="data")
    answer = "not parked"
    for who in command.values["by"]:
        rows = await run.database.rows(BODY, id_)
        if not rows:
            break
        version, body = rows[0]
        payload, path = _edited(run, command, json.loads(body))
        paths = json.dumps([path])
        answer = await _by(
            run, who, ACTS["edit"], id=id_, version=version, body=canonical_json(payload), paths=paths
        )  # fmt: skip
    return answer


def _edited(run: PaymentsRun, command: Command, payload: dict[str, Any]) -> tuple[dict[str, Any], str]:
    if command.values["field"] == "iban":
        iban = command.values.get("iban", OTHER_IBAN)
        return {**payload, "destination": {**payload["destination"], "iban": iban}}, "/destination/iban"
    return {**payload, "idempotency_key": run.copy_keys.get(command.payment, "other")}, "/idempotency_key"


async def _replay(run: PaymentsRun, command: Command) -> str:
    id_ = await _id(run, command)
    first, *others = command.values["by"]
    await _by(run, "alice", ACTS["triage"], id=id_, cause="transient")
    await _by(run, "alice", ACTS["remediate"], id=id_)
    wanted, stage = json.dumps({"ids": [str(id_)]}), command.values.get("stage")
    ((result, replay),) = await run.database.rows(
        ACTS["replay"], role=role_of(first), who=first, wanted=wanted, stage=stage, out_of_order=True
    )
    answer = _counted(run, result)
    for who in others if replay else ():
        answer = await _by(run, who, ACTS["approve"], id=replay)
    return answer


async def _copy(run: PaymentsRun, command: Command) -> str:
    id_ = await _id(run, command)
    run.copy_keys[command.payment] = command.values["key"]
    key = key_of(command.payment, command.values["key"])
    answer = ""
    for who in command.values["by"]:
        ((result, made),) = await run.database.rows(ACTS["copy"], role=role_of(who), id=id_, key=key, who=who)
        answer = _counted(run, result)
        if made is not None:
            run.copies.setdefault(command.payment, []).append(made)
    return answer


async def _pause(run: PaymentsRun, command: Command) -> str:
    (who,) = command.values["by"]
    return await _by(run, who, ACTS["pause"], destination=DESTINATION)


async def _resume(run: PaymentsRun, command: Command) -> str:
    answer = ""
    for who in command.values["by"]:
        if not await _may_say_resume(run):
            return NOT_ASKED
        answer = await _by(run, who, ACTS["resume"], destination=DESTINATION)
    return answer


async def _may_say_resume(run: PaymentsRun) -> bool:
    """Two people end the pause after a restore only when they have found every payment of the rail in the database.

    Where the rail knows tokens, under the token that paid it; else as paid or in doubt, so that it is not sent.
    """
    paused = await run.database.rows("SELECT pause_reason FROM redrive.destination WHERE name = %s", DESTINATION)
    if not paused or paused[0][0] != "epoch":
        return True
    await asyncio.sleep(run.statement_seconds)
    reported = await run.reported()
    if not run.profile.knows_tokens:
        reported = [one for one in reported if one.in_doubt or one.state == "delivered"]
    return run.paid() <= {(one.instruction_id, token) for one in reported for token in one.tokens}


async def _reconcile(run: PaymentsRun, _: Command) -> str:
    return await run.compare()


async def _acknowledge(run: PaymentsRun, command: Command) -> str:
    found = await run.database.rows(_FINDING)
    answer = "no finding"
    for who in command.values["by"] if found else ():
        answer = await _by(run, who, _ACKNOWLEDGE, rail=RAIL_TYPE, kind=found[0][0], subject=found[0][1])
    return answer


async def _ready(run: PaymentsRun, _: Command) -> str:
    """Only a registered rail can be paused."""
    known = "SELECT true FROM redrive.destination WHERE name = %s AND money"
    until = time.monotonic() + READY_SECONDS
    while not await run.database.rows(known, DESTINATION):
        if time.monotonic() > until:
            return "not ready"
        await asyncio.sleep(LOOK_SECONDS)
    return "done"


COMMANDS: Final[Mapping[str, Carry]] = {
    "second_key": _again,
    **dict.fromkeys(["requeue", "discard", "cancel", "skip"], _act),
    **by_name(_submit, _again, _app_cancel, _deny, _confirm, _edit, _replay, _copy, _pause, _resume, _reconcile),
    **by_name(_acknowledge, _ready),
}
