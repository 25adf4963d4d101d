"""The story of the demo: who pays whom, what the rail does with it, and how it must end. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from redrive import Backoff, Policy
from redrive.systems.payments.rail.script import Fault, Profile
from redrive.systems.payments.rails import Rail
from redrive.systems.payments.validation import Instruction
from redrive.transports.http import Egress

LOOKUP_AFTER_SECONDS: Final = 1.0
LATE_SECONDS: Final = 4.0
PARTICIPANTS: Final = {"bakery": "Morgenrot Bakery", "garage": "Sunset Garage", "cinema": "Pearl Cinema"}
PROFILES: Final = {"sepa": Profile.TOKEN_AND_LOOKUP, "ach": Profile.LOOKUP, "wallet": Profile.NEITHER}
_IBAN: Final = {"iban": "DE75512108001245126199", "name": "Ada Lovelace"}
_ACCOUNT: Final = {"routing_number": "021000021", "account_number": "123456789"}
_WALLET: Final = {"wallet_id": "grace@wallet"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """meets: what its requests meet at the rail, in turn. told: what happens, in words.

    ends: delivered, dead, held, or pending where it waits behind one that is held. paid: whether the rail has paid it.
    """

    name: str
    participant: str
    rail: str
    amount: str
    currency: str
    destination: Mapping[str, str]
    meets: tuple[str, ...] = ()
    told: str
    ends: str = "delivered"
    paid: bool = True


SCENES: Final = (
    Scene(
        name="salary-ada",
        participant="bakery",
        rail="sepa",
        amount="2450.00",
        currency="EUR",
        destination=_IBAN,
        told="paid at once",
    ),
    Scene(
        name="salary-grace",
        participant="bakery",
        rail="sepa",
        amount="3100.00",
        currency="EUR",
        destination=_IBAN,
        meets=(Fault.LOST_REPLY,),
        told="paid, and the reply was lost: the rail is asked, and has it; it is not sent again",
    ),
    Scene(
        name="salary-linus",
        participant="bakery",
        rail="sepa",
        amount="1980.50",
        currency="EUR",
        destination=_IBAN,
        meets=(Fault.UNAVAILABLE, Fault.THROTTLED),
        told="refused for now, twice; then paid. The next payment of the bakery waited for it",
    ),
    Scene(
        name="rent",
        participant="bakery",
        rail="sepa",
        amount="1200.00",
        currency="EUR",
        destination=_IBAN,
        meets=(Fault.ACCOUNT_CLOSED,),
        told="the account is closed: a definitive no, a dead letter, and the bakery goes on",
        ends="dead",
        paid=False,
    ),
    Scene(
        name="flour",
        participant="bakery",
        rail="sepa",
        amount="86.40",
        currency="EUR",
        destination=_IBAN,
        told="paid after what could not be",
    ),
    Scene(
        name="parts-1",
        participant="garage",
        rail="ach",
        amount="480.25",
        currency="USD",
        destination=_ACCOUNT,
        meets=(Fault.LATE,),
        told="the rail forgets tokens, and pays long after it said that it had not: held, then found in its statement",
    ),
    Scene(
        name="parts-2",
        participant="garage",
        rail="ach",
        amount="75.00",
        currency="USD",
        destination=_ACCOUNT,
        told="waited until the one before was explained",
    ),
    Scene(
        name="tickets-1",
        participant="cinema",
        rail="wallet",
        amount="12.500",
        currency="BHD",
        destination=_WALLET,
        meets=(Fault.LOST_REPLY,),
        told="the rail cannot be asked and forgets tokens: only a person can say whether it was paid",
        ends="held",
    ),
    Scene(
        name="tickets-2",
        participant="cinema",
        rail="wallet",
        amount="8.000",
        currency="BHD",
        destination=_WALLET,
        told="waits behind it",
        ends="pending",
        paid=False,
    ),
)


def instruction(scene: Scene, run: int) -> Instruction:
    """run: which time the story is played; an instruction is paid once for ever."""
    return Instruction(
        instruction_id=instruction_id(scene, run),
        participant_id=participant_id(scene.participant, run),
        rail_type=scene.rail,
        amount=scene.amount,
        currency=scene.currency,
        destination=scene.destination,
    )


def instruction_id(scene: Scene, run: int) -> str:
    return f"{scene.name}-{run}"


def participant_id(name: str, run: int) -> str:
    """Each run has companies of its own: a held payment of the last run delays no other."""
    return f"{name}-{run}"


def rails(urls: Mapping[str, str]) -> list[Rail]:
    backoff = Backoff(initial_seconds=0.3, multiplier=2, max_seconds=2, jitter=0.2)
    return [
        Rail(
            rail_type=rail_type,
            url=url,
            token_ttl_seconds=86_400.0 if PROFILES[rail_type].knows_tokens else None,
            can_look_up=PROFILES[rail_type].can_be_asked,
            lookup_after_seconds=LOOKUP_AFTER_SECONDS if PROFILES[rail_type].can_be_asked else 0.0,
            has_statement=PROFILES[rail_type].can_be_asked,
            policy=Policy(backoff=backoff, lookup_backoff=backoff),
            egress=Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"})),
        )
        for rail_type, url in urls.items()
    ]
