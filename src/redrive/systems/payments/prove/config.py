"""Payments, rails, faults and times of the proof. Pure; the report prints it."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple, Self

from redrive.systems.payments.rail.script import Fault, LookupFault, Profile
from redrive.systems.payments.validation import Instruction

PAYMENTS: Final = 10_000  # at scale 1
PARTICIPANTS: Final = 100
KILLS: Final = 20
STOPS: Final = 3
BEYOND_PAYMENTS: Final = 400  # of the second run, at scale 1
RELAYS: Final = 3
LOOKUP_AFTER_SECONDS: Final = 1.0


class RailConfig(NamedTuple):
    rail_type: str
    currency: str
    decimals: int
    destination: Mapping[str, str]


RAILS: Final = (
    RailConfig("sepa", "EUR", 2, {"iban": "DE75512108001245126199", "name": "Ada Lovelace"}),
    RailConfig("ach", "USD", 2, {"routing_number": "021000021", "account_number": "123456789"}),
    RailConfig("card", "JPY", 0, {"card_token": "tok_4f9a1c2e7b"}),
    RailConfig("wallet", "BHD", 3, {"wallet_id": "grace@wallet"}),
)
BEYOND_RAIL: Final = RailConfig("sepa_instant", "EUR", 2, RAILS[0].destination)
# In per cent of first requests: 10 lost replies, 5 late effects, 5 with 5xx (before and after the effect), 2 with 429.
FAULTS: Final[Mapping[str, float]] = {
    Fault.LOST_REPLY: 10.0,
    Fault.LATE: 5.0,
    Fault.ERROR_BEFORE: 1.5,
    Fault.ERROR_AFTER: 1.5,
    Fault.UNAVAILABLE: 2.0,
    Fault.THROTTLED: 2.0,
    LookupFault.CANNOT_TELL: 3.0,
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """late_seconds: between a request and its late effect. hang_seconds: until a rail that hangs answers. lag_seconds:
    how long reconciliation waits for an entry before it is missing.
    """

    profile: str = Profile.TOKEN_AND_LOOKUP.value
    lookup_after_seconds: float = LOOKUP_AFTER_SECONDS
    late_seconds: tuple[float, float] = (0.1, 0.8 * LOOKUP_AFTER_SECONDS)
    token_ttl_seconds: float | None = 86_400.0
    retry_after_seconds: float = 1.0
    hang_seconds: float = 60.0
    breaker: bool = True
    timeout_seconds: float = 1.0
    attempts: int = 12
    lookups: int = 50
    crashes: int = 50
    lease_seconds: float = 2.0
    reap_every_seconds: float = 0.5
    reconcile_every_seconds: float = 5.0
    lag_seconds: float = 10.0

    def printed(self) -> dict[str, Any]:
        return asdict(self)

    def limits(self) -> dict[str, Any]:
        return {"lease_seconds": self.lease_seconds, "reap_every_seconds": self.reap_every_seconds}


WITHIN: Final = Config()
# A rail that forgets tokens, and pays after its "not found" is believed: only a person may act on such a payment.
BEYOND: Final = Config(
    profile=Profile.LOOKUP.value,
    token_ttl_seconds=None,
    lookup_after_seconds=0.5,
    late_seconds=(4.0, 5.0),
    breaker=False,
    lag_seconds=60.0,
    reconcile_every_seconds=3600.0,
)
BEYOND_FAULTS: Final[Mapping[str, float]] = {Fault.LATE: 30.0}


@dataclass(frozen=True, kw_only=True)
class Plan:
    seed: int
    payments: int
    participants: int
    kills: int
    stops: int
    beyond: int

    @classmethod
    def of(cls, *, seed: int, scale: float, own_server: bool) -> Self:
        return cls(
            seed=seed,
            payments=max(PARTICIPANTS, round(PAYMENTS * scale)),
            participants=PARTICIPANTS,
            kills=max(2, round(KILLS * scale)),
            stops=max(1, round(STOPS * scale)) if own_server else 0,
            beyond=max(40, round(BEYOND_PAYMENTS * scale)),
        )


def instructions(plan: Plan) -> Sequence[Instruction]:
    chance = random.Random(plan.seed)
    return [
        _instruction(chance, f"pay-{number}", participant(number % plan.participants))
        for number in range(plan.payments)
    ]


def beyond_instructions(plan: Plan) -> Sequence[Instruction]:
    """Each of a participant of its own: what is held keeps no other payment waiting."""
    chance = random.Random(f"{plan.seed}/beyond")
    return [_instruction(chance, f"late-{number}", f"late-{number}", [BEYOND_RAIL]) for number in range(plan.beyond)]


def participant(number: int) -> str:
    return f"participant-{number}"


def _instruction(
    chance: random.Random, name: str, participant_id: str, rails: Sequence[RailConfig] = RAILS
) -> Instruction:
    rail = chance.choice(rails)
    return Instruction(
        instruction_id=name,
        participant_id=participant_id,
        rail_type=rail.rail_type,
        amount=Decimal(chance.randrange(1, 10_000_000)).scaleb(-rail.decimals),
        currency=rail.currency,
        destination=dict(rail.destination),
    )
