"""Carries out a history of payments; the commands are in `people` and `restores`, the rail's ledger judges."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from uuid import UUID

import aiohttp
import psycopg

from redrive.errors import RedriveError
from redrive.kit.database import TransientFailure, open_database
from redrive.kit.proof import journal
from redrive.kit.proof.commands import Command
from redrive.kit.proof.history_campaign import Told
from redrive.kit.proof.runner import Carry, Runner, teller, thaw
from redrive.systems.payments.prove import judging, people, restores, steering
from redrive.systems.payments.prove.drawing import PROFILES, RAIL_TYPE, History
from redrive.systems.payments.prove.judging import Reported
from redrive.systems.payments.prove.processes import rail_of
from redrive.systems.payments.rail.ledger import read_effects
from redrive.systems.payments.rail.script import LookupFault, Profile
from redrive.systems.payments.reconcile import reconcile

# An effect shows at most so long after its request; a lookup's "not found" is believed after more than that.
LATE_SECONDS: Final = (0.05, 0.5)
LOOKUP_AFTER_SECONDS: Final = 1.0
HANG_SECONDS: Final = 1.6
TOKEN_TTL_SECONDS: Final = 86_400.0
STATEMENT_SECONDS: Final = 0.6  # until every effect of a request that is over stands in the statement
QUIET_SECONDS: Final = 12.0  # at the end: leases, lookups and retries of everything that was in doubt
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
# Relays are told this of the rail instead of what is true: with a wrong value the judge has to find something.
DECLARED: Final[Mapping[str, Any]] = {}
# After these a participant's effects may come in another order.
_REORDERING: Final = frozenset({"discard", "cancel", "skip", "confirm", "deny", "copy", "second_key", "app_cancel"})
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


@dataclass(frozen=True, kw_only=True)
class PaymentsTold(Told[History]):
    guards: Counter[str]


class PaymentsRun(Runner[History]):
    """disordered: payments whose order may be another one."""

    commands: ClassVar[Mapping[str, Carry]] = {**people.COMMANDS, **restores.COMMANDS}
    limits = LIMITS
    statement_seconds = STATEMENT_SECONDS
    errors = (TransientFailure, psycopg.Error, aiohttp.ClientError, OSError)

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self.guards: Counter[str] = Counter()
        self.copies: dict[str, list[UUID]] = {}
        self.copy_keys: dict[str, str] = {}
        self.submitted: list[str] = []
        self.disordered: set[str] = set()

    async def told(self) -> PaymentsTold:
        told = await super().told()
        self.faults.update(self._rail_faults())
        return PaymentsTold(**vars(told), guards=self.guards)

    # the rail

    async def begin(self) -> None:
        self._ledger = self.database.directory / "ledger"
        address = self.database.directory / "address"
        script = {
            "seed": self.history.seed,
            "late_seconds": LATE_SECONDS,
            "slow_seconds": 0.1,
            "hang_seconds": HANG_SECONDS,
            "retry_after_seconds": 0.2,
            "plans": {one.payment: list(one.values["faults"]) for one in self.history.submits},
            "faults": {LookupFault.CANNOT_TELL: 100.0} if self.history.mute else {},
        }
        await self.start(
            "rail", ledger=str(self._ledger), address=str(address), profile=self.profile.value, script=script
        )
        while not (address.exists() and address.read_text("utf-8").endswith("\n")):  # noqa: ASYNC110 - by another process
            await asyncio.sleep(0.01)
        self._url = address.read_text("utf-8").strip()

    @property
    def profile(self) -> Profile:
        return PROFILES[self.history.ability]

    @property
    def rail(self) -> dict[str, Any]:
        return {
            "rail_type": RAIL_TYPE,
            "url": self._url,
            "token_ttl_seconds": TOKEN_TTL_SECONDS if self.profile.knows_tokens else None,
            "can_look_up": self.profile.can_be_asked,
            "settlement_lag_seconds": LATE_SECONDS[1],
            "lookup_after_seconds": LOOKUP_AFTER_SECONDS if self.profile.can_be_asked else None,
            "has_statement": self.history.statement,
            "timeout_seconds": self.history.timeout_seconds,
            **DECLARED,
        }

    def _rail_faults(self) -> Counter[str]:
        lines = journal.read(self._ledger)
        return Counter(f"rail: {line['fault']}" for line in lines if line["log"] == "request" and line["fault"])

    def is_paid(self, payment: str) -> bool:
        """The rail has paid it, or has accepted it and will."""
        return any(instruction == payment for instruction, _ in self.paid())

    def paid(self) -> set[tuple[str, str]]:
        """Instruction and token of all that the rail has paid or accepted."""
        lines = [line for line in journal.read(self._ledger) if line["log"] in ("effect", "accepted")]
        return {(line["instruction_id"], line["token"]) for line in lines}

    # relays

    def relay_settings(self) -> Mapping[str, Any]:
        return {
            "rail": self.rail,
            "reconcile_every_seconds": 0.7 if self.history.compares else 3600.0,
            "lag_seconds": STATEMENT_SECONDS,
            "state": str(self.database.directory / "state"),
        }

    async def _replace_ended(self) -> None:
        """As a supervisor does."""
        ended = [relay for relay in self.relays if not await self.processes.lives(relay.pid)]
        for _ in range(await self.end_relays(ended)):
            self.disturb("exit")
            await self.start_relay()

    # commands

    async def drawn(self, command: Command) -> list[Command]:
        if command.verb != "act":
            return [command]
        reported: list[Reported] = []
        with suppress(psycopg.Error):
            reported = await self.reported()
        late = {name: value for name, value in command.values.items() if name == "after_statement"}
        drawn = steering.acts(command.values["draw"], reported, self.submitted)
        return [one if one.verb == "quiet" else Command(one.verb, {**one.values, **late}) for one in drawn]

    async def before(self, command: Command) -> None:
        await self._replace_ended()
        if command.verb in _REORDERING or command.values.get("out_of_order"):
            self.disordered.update(self._lane_of(command))
        if command.values.get("after_statement"):
            await self.compare_late()

    def _lane_of(self, command: Command) -> set[str]:
        """All payments of the participant that the command is about."""
        participants = {one.payment: one.values["participant"] for one in self.history.submits}
        mine = participants.get(command.payment)
        return {payment for payment, participant in participants.items() if participant == mine}

    async def compare_late(self) -> None:
        """After every effect stands in the statement."""
        await asyncio.sleep(STATEMENT_SECONDS)
        await self.compare()

    async def compare(self) -> str:
        if not self.history.statement:
            return "no statement"
        async with open_database(self.database.dsn) as store:
            compared = await reconcile(store, rail_of(self.rail), lag_seconds=STATEMENT_SECONDS)
        return f"{compared.confirmed} confirmed, {len(compared.findings)} findings"

    # the end

    async def settle_down(self) -> None:
        await thaw(self)
        await self._replace_ended()
        await self.start_relay()
        for _ in range(2):
            await self.is_quiet(QUIET_SECONDS)
            if self.history.statement:
                with suppress(RedriveError, TransientFailure, psycopg.Error):
                    await self.compare_late()
        await self.is_quiet(QUIET_SECONDS)
        await self.end_relays(self.relays)
        await asyncio.sleep(LATE_SECONDS[1])

    async def judged(self) -> list[str]:
        effects = list(read_effects(self._ledger))
        return judging.judged(self.history, effects, await self.reported(), disordered=self.disordered)

    async def reported(self) -> list[Reported]:
        return [Reported(*(*values, frozenset(tokens))) for *values, tokens in await self.database.rows(_REPORTED)]


tell = teller(PaymentsRun)
