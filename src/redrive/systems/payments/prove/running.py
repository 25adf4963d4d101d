"""Carries out a history: producers, people, faults and restores, one command after the other; then the ledger judges.

Relays and the rail are processes of their own, the database is real, and every answer is counted. Commands run one by
one, so that a script can be read; what relays and the rail do meanwhile is theirs.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from signal import Signals
from typing import Any, Final
from uuid import UUID

import aiohttp
import psycopg

from redrive.errors import RedriveError
from redrive.kit.database import TransientFailure, open_database
from redrive.kit.proof import journal
from redrive.kit.proof.commands import Command
from redrive.kit.proof.history_campaign import Say
from redrive.kit.proof.history_environment import APPROVER_ROLE, OPERATOR_ROLE, READY_SECONDS, HistoryEnvironment, Place
from redrive.kit.statements import canonical_json
from redrive.systems import payments
from redrive.systems.payments.names import destination_of, key_of, order_of
from redrive.systems.payments.prove import judging, steering
from redrive.systems.payments.prove.drawing import (
    APPROVER,
    CURRENCY,
    IBAN,
    OTHER_IBAN,
    PROFILES,
    RAIL_TYPE,
    History,
)
from redrive.systems.payments.prove.judging import Reported
from redrive.systems.payments.prove.processes import rail_of
from redrive.systems.payments.rail.ledger import read_effects
from redrive.systems.payments.rail.script import LookupFault, Profile
from redrive.systems.payments.reconcile import reconcile
from redrive.systems.payments.validation import Instruction, PaymentRefused

# An effect shows at most so long after its request; a lookup's "not found" is believed after more than that.
LATE_SECONDS: Final = (0.05, 0.5)
LOOKUP_AFTER_SECONDS: Final = 1.0
HANG_SECONDS: Final = 1.6
TOKEN_TTL_SECONDS: Final = 86_400.0
STATEMENT_SECONDS: Final = 0.6  # until every effect of a request that is over stands in the statement
QUIET_SECONDS: Final = 12.0  # at the end: leases, lookups and retries of everything that was in doubt
LOOK_SECONDS: Final = 0.1
LIMITS: Final[Mapping[str, Any]] = {
    "lease_seconds": 1.0,
    "reap_every_seconds": 0.3,
    "heartbeat_seconds": 0.3,
    "poll_seconds": 0.25,
    "record_timeout_seconds": 0.5,
    "stop_seconds": 1.0,
    "concurrency": 4,
    "claim_max": 10,
}
DESTINATION: Final = destination_of(RAIL_TYPE)
TENANT: Final = "default"
# Told to relays of the rail instead of what is true: with a wrong one the judge has to find something.
DECLARED: Final[Mapping[str, Any]] = {}
NOT_ASKED: Final = "not asked, because it is not true"
# After these a participant's effects may come in another order.
_REORDERING: Final = frozenset({"discard", "cancel", "skip", "confirm", "deny", "copy", "second_key", "app_cancel"})
_OPEN: Final = """
SELECT (SELECT count(*) FROM redrive.lease)
     + (SELECT count(*) FROM redrive.pending p LEFT JOIN redrive.destination d ON d.name = p.destination
         WHERE (d.paused_at IS NULL OR d.paused_until IS NOT NULL)
           AND NOT EXISTS (SELECT FROM redrive.parked k WHERE k.lane = p.lane AND k.halts AND k.sequence < p.sequence))
"""
_REPORTED: Final = """
SELECT i.instruction_id, i.idempotency_key,
       coalesce(k.reason, e.closed, redrive.state_of(i.outbox_id), 'gone'),
       coalesce(k.in_doubt_since IS NOT NULL, e.in_doubt, p.in_doubt_since IS NOT NULL, false),
       EXISTS (SELECT FROM redrive.evidence v WHERE v.message_id = i.outbox_id)
       OR EXISTS (SELECT FROM redrive.late_answer l WHERE l.message_id = i.outbox_id AND l.answer = 'delivered'),
       ARRAY(SELECT coalesce(a.token, a.message_id)::text FROM redrive.attempt a WHERE a.message_id = i.outbox_id
             UNION SELECT coalesce(p.token, k.token, i.outbox_id)::text)
  FROM redrive_payments.intent i
  LEFT JOIN redrive.parked k ON k.id = i.outbox_id
  LEFT JOIN redrive.pending p ON p.id = i.outbox_id
  LEFT JOIN redrive.attempt e ON e.message_id = i.outbox_id AND e.closed IS NOT NULL
"""
_IDS: Final = """
SELECT i.outbox_id FROM redrive_payments.intent i LEFT JOIN redrive.parked k ON k.id = i.outbox_id
 WHERE i.instruction_id = %s ORDER BY k.id IS NULL, i.outbox_id DESC
"""
_BODY: Final = """
SELECT k.row_version, coalesce(b.bytes, m.body) FROM redrive.parked k JOIN redrive.message m ON m.id = k.id
  LEFT JOIN redrive.body b ON b.message_id = k.id AND b.version = k.version
 WHERE k.id = %s
"""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What came of a history, with the acts that were drawn in it.

    answers: `verb: answer` to how often. guards: how often each of them answered. said: the script, with each answer.
    """

    history: History
    violations: list[str]
    answers: Counter[str]
    guards: Counter[str]
    faults: Counter[str]
    said: list[str]
    seconds: float


async def tell(environment: HistoryEnvironment, history: History, name: str, say: Say) -> Told:
    """From its first command to the verdict. name: of its database."""
    async with Place(environment, name, own_server=history.own_server) as place:
        teller = _Teller(environment, place, history, say)
        try:
            return await teller.told()
        finally:
            await teller.close()


@dataclass
class _Relay:
    pid: int
    dsn: str
    frozen: bool = False


@dataclass
class _Teller:
    environment: HistoryEnvironment
    place: Place
    history: History
    say: Say
    answers: Counter[str] = field(default_factory=Counter)
    guards: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)
    _relays: list[_Relay] = field(default_factory=list)
    _copies: dict[str, list[UUID]] = field(default_factory=dict)
    _copy_keys: dict[str, str] = field(default_factory=dict)
    _submitted_so_far: list[str] = field(default_factory=list)
    _disordered: set[str] = field(default_factory=set)
    _rail_pid: int | None = None
    _started: int = 0

    async def told(self) -> Told:
        began = time.monotonic()
        await self._open_rail()
        for _ in range(self.history.relays):
            await self._start_relay()
        for line in list(self.history.lines())[:1]:
            self._note(line)
        done: list[Command] = []
        for command in self.history.commands:
            for drawn in await self._drawn(command):
                done.append(drawn)
                answer = await self._answer(drawn)
                self.answers[f"{drawn.verb}: {answer}"] += 1
                self._note(f"  {len(done):>2} {drawn} -> {answer}")
        await self._settle()
        violations = await self._judged()
        for sentence in violations:
            self._note(f"  {sentence}")
        return Told(
            history=replace(self.history, commands=tuple(done)),
            violations=violations,
            answers=self.answers,
            guards=self.guards,
            faults=self.faults + Counter(self._rail_faults()),
            said=self.said,
            seconds=time.monotonic() - began,
        )

    async def close(self) -> None:
        for relay in self._relays:
            await self.environment.processes.end(relay.pid)
        if self._rail_pid is not None:
            await self.environment.processes.end(self._rail_pid)

    def _note(self, line: str) -> None:
        self.said.append(line)
        self.say(line)

    # the rail

    async def _open_rail(self) -> None:
        self._ledger = self.place.directory / "ledger"
        address = self.place.directory / "address"
        self._rail_pid = await self.environment.processes.start(
            "rail",
            ledger=str(self._ledger),
            address=str(address),
            profile=self._profile.value,
            script=self._script(
                plans={one.payment: list(one.values["faults"]) for one in self.history.submits},
                faults={LookupFault.CANNOT_TELL: 100.0} if self.history.mute else {},
            ),
        )
        while not (address.exists() and address.read_text("utf-8").endswith("\n")):  # noqa: ASYNC110 - by another process
            await asyncio.sleep(0.01)
        self._url = address.read_text("utf-8").strip()

    @property
    def _profile(self) -> Profile:
        return PROFILES[self.history.ability]

    def _script(self, **values: Any) -> dict[str, Any]:
        return {
            "seed": self.history.seed,
            "late_seconds": LATE_SECONDS,
            "slow_seconds": 0.1,
            "hang_seconds": HANG_SECONDS,
            "retry_after_seconds": 0.2,
            **values,
        }

    @property
    def _rail(self) -> dict[str, Any]:
        """As relays know it."""
        return {
            "rail_type": RAIL_TYPE,
            "url": self._url,
            "token_ttl_seconds": TOKEN_TTL_SECONDS if self._profile.knows_tokens else None,
            "can_look_up": self._profile.can_be_asked,
            "settlement_lag_seconds": LATE_SECONDS[1],
            "lookup_after_seconds": LOOKUP_AFTER_SECONDS if self._profile.can_be_asked else None,
            "has_statement": self.history.statement,
            "timeout_seconds": self.history.timeout_seconds,
            **DECLARED,
        }

    def _rail_faults(self) -> dict[str, int]:
        met = [line["fault"] for line in journal.read(self._ledger) if line["log"] == "request" and line["fault"]]
        return {f"rail: {name}": count for name, count in Counter(met).items()}

    def _is_paid(self, payment: str) -> bool:
        """The rail has paid it, or has accepted it and will."""
        return any(instruction == payment for instruction, _ in self._paid())

    def _paid(self) -> set[tuple[str, str]]:
        """Instruction and token of all that it has paid or accepted."""
        lines = [line for line in journal.read(self._ledger) if line["log"] in ("effect", "accepted")]
        return {(line["instruction_id"], line["token"]) for line in lines}

    # relays

    async def _start_relay(self) -> None:
        self._started += 1
        dsn = self.place.wire.dsn
        pid = await self.environment.processes.start(
            "relay",
            dsn=dsn,
            name=f"relay-{self._started}",
            limits=dict(LIMITS),
            rail=self._rail,
            reconcile_every_seconds=0.7 if self.history.compares else 3600.0,
            lag_seconds=STATEMENT_SECONDS,
            state=str(self.place.directory / "state"),
        )
        self._relays.append(_Relay(pid, dsn))

    async def _end_relays(self, relays: list[_Relay] | None = None) -> int:
        ended = list(self._relays if relays is None else relays)
        for relay in ended:
            await self.environment.processes.end(relay.pid)
            self._relays.remove(relay)
        return len(ended)

    async def _replace_ended(self) -> None:
        """What a supervisor does."""
        ended = [relay for relay in self._relays if not await self.environment.processes.lives(relay.pid)]
        for _ in range(await self._end_relays(ended)):
            self.faults["relay ended by itself"] += 1
            await self._start_relay()

    # commands

    async def _drawn(self, command: Command) -> list[Command]:
        """What people do now, where the script leaves it open; else the command."""
        if command.verb != "act":
            return [command]
        reported: list[Reported] = []
        with suppress(psycopg.Error):
            reported = await self._reported()
        late = {name: value for name, value in command.values.items() if name == "after_statement"}
        drawn = steering.acts(command.values["draw"], reported, self._submitted_so_far)
        return [one if one.verb == "quiet" else Command(one.verb, {**one.values, **late}) for one in drawn]

    async def _answer(self, command: Command) -> str:
        """In one word or two, whatever it is."""
        await self._replace_ended()
        if command.verb in _REORDERING or command.values.get("out_of_order"):
            self._disordered.update(self._lane_of(command))
        if command.values.get("after_statement"):
            await asyncio.sleep(STATEMENT_SECONDS)
            await self._reconcile(command)
        try:
            return await getattr(self, f"_{command.verb}")(command) or "done"
        except PaymentRefused as refused:
            return refused.reason
        except RedriveError as error:
            return error.code
        except (TransientFailure, psycopg.Error, aiohttp.ClientError, OSError) as error:
            return type(error).__name__

    def _lane_of(self, command: Command) -> set[str]:
        """All payments of the participant that the command is about."""
        participants = {one.payment: one.values["participant"] for one in self.history.submits}
        mine = participants.get(command.payment)
        return {payment for payment, participant in participants.items() if participant == mine}

    async def _submit(self, command: Command) -> str:
        self._submitted_so_far.append(command.payment)
        return await self._submitted(command.payment)

    async def _again(self, command: Command) -> str:
        return await self._submitted(command.payment)

    async def _second_key(self, command: Command) -> str:
        return await self._submitted(command.payment, command.values["key"])

    async def _submitted(self, payment: str, key: str | None = None) -> str:
        """As a producer does it: until it is known to be committed."""
        asked = next((one.values for one in self.history.submits if one.payment == payment), None)
        if asked is None:
            return "no such payment"
        instruction = Instruction(
            instruction_id=payment,
            participant_id=asked["participant"],
            rail_type=RAIL_TYPE,
            amount=asked["amount"],
            currency=CURRENCY,
            destination={"iban": IBAN},
            **({"idempotency_key": key} if key else {}),
        )
        while True:
            try:
                async with await self.place.connect("redrive_producer", dsn=self.place.wire.dsn) as conn:
                    await conn.set_autocommit(False)
                    await payments.aadd_participant(conn, asked["participant"])
                    submitted = await payments.asubmit(conn, instruction)
                    await conn.commit()
                    return "duplicate" if submitted.already_existed else "new"
            except psycopg.OperationalError:
                await asyncio.sleep(LOOK_SECONDS)

    async def _app_cancel(self, command: Command) -> str:
        return await self._verb("SELECT redrive.cancel_1(%s)", await self._id(command), role="redrive_producer")

    async def _requeue(self, command: Command) -> str:
        values = command.values
        return await self._each(
            command,
            lambda id_, who: (
                "SELECT redrive.requeue_1(%s, %s, 'history', %s, %s)",
                [id_, who, values.get("stage"), bool(values.get("out_of_order"))],
            ),
        )

    async def _deny(self, command: Command) -> str:
        if self.history.ability == "no" and self._is_paid(command.payment):
            if not self.history.statement:
                return NOT_ASKED
            await asyncio.sleep(STATEMENT_SECONDS)
            await self._reconcile(command)
        return await self._each(command, lambda id_, who: ("SELECT redrive.deny_1(%s, %s, 'history')", [id_, who]))

    async def _confirm(self, command: Command) -> str:
        if not self._is_paid(command.payment):
            return NOT_ASKED
        return await self._each(
            command, lambda id_, who: ("SELECT redrive.confirm_1(%s, %s, 'history', 'R')", [id_, who])
        )

    async def _discard(self, command: Command) -> str:
        return await self._each(command, lambda id_, who: ("SELECT redrive.discard_1(%s, %s, 'history')", [id_, who]))

    async def _cancel(self, command: Command) -> str:
        return await self._each(command, lambda id_, who: ("SELECT redrive.cancel_1(%s, %s, 'history')", [id_, who]))

    async def _skip(self, command: Command) -> str:
        lane = next((one.values["participant"] for one in self.history.submits if one.payment == command.payment), "")
        return await self._each(
            command, lambda _, who: ("SELECT redrive.skip_1(%s, %s, %s, 'history')", [TENANT, order_of(lane), who])
        )

    async def _edit(self, command: Command) -> str:
        id_ = await self._id(command)
        await self._verb("SELECT result FROM redrive.triage_1(%s, 'data', 'alice', 'history')", [id_])
        answer = "not parked"
        for who in command.values["by"]:
            rows = await self.place.rows(_BODY, id_)
            if not rows:
                break
            version, body = rows[0]
            payload = json.loads(body)
            if command.values["field"] == "iban":
                payload["destination"] = {**payload["destination"], "iban": command.values.get("iban", OTHER_IBAN)}
                path = "/destination/iban"
            else:
                payload["idempotency_key"] = self._copy_keys.get(command.payment, "other")
                path = "/idempotency_key"
            answer = await self._verb(
                "SELECT redrive.edit_1(%s, %s, %s, 'application/json', %s::json, %s, 'history')",
                *(id_, version, canonical_json(payload), json.dumps([path]), who),
                role=role_of(who),
            )
        return answer

    async def _replay(self, command: Command) -> str:
        id_ = await self._id(command)
        first, *others = command.values["by"]
        await self._verb("SELECT result FROM redrive.triage_1(%s, 'transient', 'alice', 'history')", [id_])
        await self._verb("SELECT result FROM redrive.remediate_1(%s, 'alice', 'history', 'it is up')", [id_])
        wanted = json.dumps({"ids": [str(id_)]})
        (row,) = await self.place.rows(
            "SELECT id, result FROM redrive.create_replay_1('history', NULL, %s::json, %s, true, true, 1000, 0, 1,"
            " 100, %s, 'history')",
            *(wanted, command.values.get("stage"), first),
            role=role_of(first),
        )
        answer = self._counted(row[1])
        for who in others if row[0] else ():
            answer = await self._verb(
                "SELECT redrive.steer_replay_1(%s, 'approve', %s, 'history')", row[0], who, role=role_of(who)
            )
        return answer

    async def _copy(self, command: Command) -> str:
        id_ = await self._id(command)
        self._copy_keys[command.payment] = command.values["key"]
        answer = ""
        for who in command.values["by"]:
            (row,) = await self.place.rows(
                "SELECT result, id FROM redrive.copy_1(%s, %s, %s, 'history')",
                *(id_, key_of(command.payment, command.values["key"]), who),
                role=role_of(who),
            )
            answer = self._counted(row[0])
            if row[1] is not None:
                self._copies.setdefault(command.payment, []).append(row[1])
        return answer

    async def _pause(self, command: Command) -> str:
        (who,) = command.values["by"]
        return await self._verb("SELECT redrive.pause_1(%s, %s, 'history')", DESTINATION, who, role=role_of(who))

    async def _resume(self, command: Command) -> str:
        answer = ""
        for who in command.values["by"]:
            if not await self._may_say_resume():
                return NOT_ASKED
            answer = await self._verb("SELECT redrive.resume_1(%s, %s, 'history')", DESTINATION, who, role=role_of(who))
        return answer

    async def _may_say_resume(self) -> bool:
        """Two people end the pause after a restore only when they have found every payment of the rail in the database.

        Where the rail knows tokens, under the token that paid it; else as paid or in doubt, so that it is not sent.
        """
        paused = await self.place.rows("SELECT pause_reason FROM redrive.destination WHERE name = %s", DESTINATION)
        if not paused or paused[0][0] != "epoch":
            return True
        await asyncio.sleep(STATEMENT_SECONDS)
        reported = await self._reported()
        if self._profile.knows_tokens:
            known = {(one.instruction_id, token) for one in reported for token in one.tokens}
        else:
            safe = [one for one in reported if one.in_doubt or one.state == "delivered"]
            known = {(one.instruction_id, token) for one in safe for token in one.tokens}
        return self._paid() <= known

    async def _reconcile(self, _: Command | None = None) -> str:
        if not self.history.statement:
            return "no statement"
        async with open_database(self.place.dsn) as store:
            compared = await reconcile(store, rail_of(self._rail), lag_seconds=STATEMENT_SECONDS)
        return f"{compared.confirmed} confirmed, {len(compared.findings)} findings"

    async def _acknowledge(self, command: Command) -> str:
        found = await self.place.rows(
            "SELECT kind, subject FROM redrive_payments.finding WHERE resolved_at IS NULL ORDER BY 1, 2 LIMIT 1"
        )
        answer = "no finding"
        for who in command.values["by"] if found else ():
            answer = await self._verb(
                "SELECT redrive_payments.acknowledge_finding_1(%s, %s, %s, %s, 'history', 'refund')",
                *(RAIL_TYPE, *found[0], who),
                role=role_of(who),
            )
        return answer

    async def _ready(self, _: Command) -> str:
        """Until a relay has registered the rail: only then it can be paused."""
        known = "SELECT true FROM redrive.destination WHERE name = %s AND money"
        until = time.monotonic() + READY_SECONDS
        while not await self.place.rows(known, DESTINATION):
            if time.monotonic() > until:
                return "not ready"
            await asyncio.sleep(LOOK_SECONDS)
        return "done"

    async def _wait(self, command: Command) -> None:
        await asyncio.sleep(command.values["seconds"])

    async def _quiet(self, command: Command) -> str:
        return "done" if await self._is_quiet(command.values["seconds"]) else "not quiet"

    async def _relay(self, _: Command) -> None:
        await self._start_relay()

    async def _kill(self, command: Command) -> None:
        self.faults["relay killed"] += await self._end_relays([self._relays[command.values["relay"]]])
        await self._start_relay()

    async def _freeze(self, command: Command) -> None:
        relay = self._relays[command.values["relay"]]
        await self.environment.processes.signal(relay.pid, Signals.SIGSTOP)
        relay.frozen = True
        self.faults["relay frozen"] += 1

    async def _thaw(self, _: Command | None = None) -> None:
        frozen = [relay for relay in self._relays if relay.frozen]
        if frozen:  # beyond the lease, and so that another relay had the time to go on
            await asyncio.sleep(LIMITS["lease_seconds"] + 0.5)
        for relay in frozen:
            await self.environment.processes.signal(relay.pid, Signals.SIGCONT)
            relay.frozen = False

    async def _cut(self, command: Command) -> None:
        at = command.values["at"]
        if at == "anything":
            self.place.wire.lose_reply()
        else:
            self.place.wire.lose_reply_to(at.encode())
        self.faults["reply of PostgreSQL lost"] += 1

    async def _stop_server(self, _: Command) -> None:
        await self.place.stop_hard()
        self.faults["PostgreSQL stopped at once"] += 1

    async def _backup(self, _: Command) -> None:
        await self.place.back_up()

    async def _restore(self, command: Command) -> str:
        if not self.place.has_backup:
            return "no backup"
        self._disordered.update(one.payment for one in self.history.submits)
        kind = command.values["kind"]
        self.faults[f"restore: {kind}"] += 1
        if kind == "promotion":
            old = list(self._relays)
            await self.place.promote()
            for _ in old:
                await self._start_relay()
            await asyncio.sleep(command.values["overlap_seconds"])
            await self._end_relays(old)
            await self.place.close_old()
            return "done"
        killed = 0
        if command.values["relays"] == "killed" or command.values.get("declared"):
            killed = await self._end_relays()
        await self.place.put_back()
        if command.values.get("declared"):
            await self._declare()
        for _ in range(killed):
            await self._start_relay()
        return "done"

    async def _declare(self) -> None:
        """As `redrive db restored` does."""
        await self.place.rows("SELECT * FROM redrive.declare_restored_1('alice', 'history')", role=role_of("alice"))

    # the desk

    async def _id(self, command: Command) -> UUID:
        """The message of a payment that an act is about: a copy, then what is parked, then the newest."""
        copies = self._copies.get(command.payment)
        if copies:
            return copies[-1]
        rows = await self.place.rows(_IDS, command.payment)
        return rows[0][0] if rows else UUID(int=0)

    async def _each(self, command: Command, call: Callable[[UUID, str], tuple[Any, list[Any]]]) -> str:
        """The same by one person after the other; what the last one was answered."""
        id_ = await self._id(command)
        answer = ""
        for who in command.values["by"]:
            query, values = call(id_, who)
            answer = await self._verb(query, *values, role=role_of(who))
        return answer

    async def _verb(self, query: Any, *values: Any, role: str | None = "history_operator") -> str:
        rows = await self.place.rows(query, *values, role=role)
        return self._counted(rows[0][0]) if rows else "nothing"

    def _counted(self, answer: object) -> str:
        """Whether the command goes on after it or not: a guard has answered."""
        if answer in steering.GUARDS:
            self.guards[str(answer)] += 1
        return str(answer)

    # the end

    async def _is_quiet(self, seconds: float) -> bool:
        """Whether nothing was in hand and nothing could be claimed, within that time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(psycopg.OperationalError):
                if await self.place.rows(_OPEN) == [(0,)]:
                    return True
            await asyncio.sleep(LOOK_SECONDS)
        return False

    async def _settle(self) -> None:
        """No more commands, and the rail's faults come to an end: everything that can move moves."""
        await self._thaw()
        await self._replace_ended()
        await self._start_relay()
        for _ in range(2):
            await self._is_quiet(QUIET_SECONDS)
            if self.history.statement:
                await asyncio.sleep(STATEMENT_SECONDS)
                with suppress(RedriveError, TransientFailure, psycopg.Error):
                    await self._reconcile()
        await self._is_quiet(QUIET_SECONDS)
        await self._end_relays()
        await asyncio.sleep(LATE_SECONDS[1])

    async def _judged(self) -> list[str]:
        return judging.judged(
            self.history, list(read_effects(self._ledger)), await self._reported(), disordered=self._disordered
        )

    async def _reported(self) -> list[Reported]:
        return [
            Reported(
                instruction_id=row[0],
                key=row[1],
                state=row[2],
                in_doubt=row[3],
                has_evidence=row[4],
                tokens=frozenset(row[5]),
            )
            for row in await self.place.rows(_REPORTED)
        ]


def role_of(person: str) -> str:
    return APPROVER_ROLE if person == APPROVER else OPERATOR_ROLE
