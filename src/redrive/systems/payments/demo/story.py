"""The story of the demo: who pays whom, what the rail does with it, and how it must end. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from redrive import Backoff, Policy
from redrive.systems.payments.rail.script import Fault, Profile
from redrive.systems.payments.rails import SIMULATED, Rail
from redrive.systems.payments.validation import Instruction

LOOKUP_AFTER_SECONDS: Final = 1.0
LATE_SECONDS: Final = 4.0
PROFILES: Final = {"sepa": Profile.TOKEN_AND_LOOKUP, "ach": Profile.LOOKUP, "wallet": Profile.NEITHER}


class Company(NamedTuple):
    """Pays over one rail, in one currency, to one account."""

    shown: str
    rail: str
    currency: str
    destination: Mapping[str, str]


COMPANIES: Final = {
    "bakery": Company("Morgenrot Bakery", "sepa", "EUR", {"iban": "DE75512108001245126199", "name": "Ada Lovelace"}),
    "garage": Company("Sunset Garage", "ach", "USD", {"routing_number": "021000021", "account_number": "123456789"}),
    "cinema": Company("Pearl Cinema", "wallet", "BHD", {"wallet_id": "grace@wallet"}),
}


@dataclass(frozen=True, slots=True)
class Scene:
    """One payment. told: what happens, in words. meets: what its requests meet at the rail, in turn.

    ends: delivered, dead, held, or pending where it waits behind one that is held. paid: whether the rail has paid it.
    """

    name: str
    participant: str
    amount: str
    told: str
    meets: tuple[str, ...] = ()
    ends: str = "delivered"
    paid: bool = True

    @property
    def company(self) -> Company:
        return COMPANIES[self.participant]


SCENES: Final = (
    Scene("salary-ada", "bakery", "2450.00", "paid at once"),
    Scene(
        "salary-grace",
        "bakery",
        "3100.00",
        "paid, and the reply was lost: the rail is asked, and has it; it is not sent again",
        (Fault.LOST_REPLY,),
    ),
    Scene(
        "salary-linus",
        "bakery",
        "1980.50",
        "refused for now, twice; then paid. The next payment of the bakery waited for it",
        (Fault.UNAVAILABLE, Fault.THROTTLED),
    ),
    Scene(
        "rent",
        "bakery",
        "1200.00",
        "the account is closed: a definitive no, a dead letter, and the bakery goes on",
        (Fault.ACCOUNT_CLOSED,),
        ends="dead",
        paid=False,
    ),
    Scene("flour", "bakery", "86.40", "paid after what could not be"),
    Scene(
        "parts-1",
        "garage",
        "480.25",
        "the rail forgets tokens, and pays long after it said that it had not: held, then found in its statement",
        (Fault.LATE,),
    ),
    Scene("parts-2", "garage", "75.00", "waited until the one before was explained"),
    Scene(
        "tickets-1",
        "cinema",
        "12.500",
        "the rail cannot be asked and forgets tokens: only a person can say whether it was paid",
        (Fault.LOST_REPLY,),
        ends="held",
    ),
    Scene("tickets-2", "cinema", "8.000", "waits behind it", ends="pending", paid=False),
)


def instruction(scene: Scene, run: int) -> Instruction:
    """run: which time the story is played; an instruction is paid once for ever."""
    return Instruction(
        instruction_id=instruction_id(scene, run),
        participant_id=participant_id(scene.participant, run),
        rail_type=scene.company.rail,
        amount=scene.amount,
        currency=scene.company.currency,
        destination=scene.company.destination,
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
            token_ttl_seconds=86_400.0 if profile.knows_tokens else None,
            can_look_up=profile.can_be_asked,
            lookup_after_seconds=LOOKUP_AFTER_SECONDS if profile.can_be_asked else 0.0,
            has_statement=profile.can_be_asked,
            policy=Policy(backoff=backoff, lookup_backoff=backoff),
            egress=SIMULATED,
        )
        for rail_type, url in urls.items()
        for profile in [PROFILES[rail_type]]
    ]
