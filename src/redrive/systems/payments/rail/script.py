"""What a rail does wrong, decided from a seed and the token alone, so that a run can be repeated. Pure.

Only the first few requests for a token meet a drawn fault, so that every campaign ends. A *plan* names what the
requests of one instruction meet, and has the last word.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Final, Literal

from redrive.errors import InvalidValue

Call = Literal["send", "lookup"]
FAULTY_REQUESTS_MAX: Final = 3


class Profile(StrEnum):
    """What a rail can do about doubt. lookup: it forgets tokens, so that each request is a payment of its own."""

    TOKEN_AND_LOOKUP = "token+lookup"  # noqa: S105 - no password
    LOOKUP = "lookup"
    TOKEN = "token"  # noqa: S105 - no password
    NEITHER = "neither"

    @property
    def knows_tokens(self) -> bool:
        return self in (Profile.TOKEN_AND_LOOKUP, Profile.TOKEN)

    @property
    def can_be_asked(self) -> bool:
        return self in (Profile.TOKEN_AND_LOOKUP, Profile.LOOKUP)


class Fault(StrEnum):
    """What can go wrong with one request.

    lost_reply, garbage, error_after, error_without_code, bad_gateway: it is paid, and the sender cannot know. late: the
    connection is dropped, and it is paid some time after. in_progress, slow_late, refused_late: the same, and the
    answer says so, says after `hang_seconds` that it was paid, or is a refusal. hang: it is paid, and the answer comes
    after `hang_seconds`. duplicate: it is paid, and called a duplicate. slow: it is paid, slowly. Nothing is paid with
    all others.
    """

    LOST_REPLY = auto()
    LATE = auto()
    SLOW_LATE = auto()
    REFUSED_LATE = auto()
    IN_PROGRESS = auto()
    DUPLICATE = auto()
    GARBAGE = auto()
    ERROR_AFTER = auto()
    ERROR_WITHOUT_CODE = auto()
    BAD_GATEWAY = auto()
    SLOW = auto()
    HANG = auto()
    RESET = auto()
    ERROR_BEFORE = auto()
    UNAVAILABLE = auto()
    THROTTLED = auto()
    INSUFFICIENT_FUNDS = auto()
    ACCOUNT_CLOSED = auto()
    LIMIT_EXCEEDED = auto()
    INVALID_DESTINATION = auto()


class LookupFault(StrEnum):
    """What can go wrong with a question. cannot_tell: 503. lookup_lost: no answer."""

    CANNOT_TELL = auto()
    LOOKUP_LOST = auto()


REFUSALS: Final[Mapping[str, int]] = {
    Fault.UNAVAILABLE: 503,
    Fault.INSUFFICIENT_FUNDS: 402,
    Fault.ACCOUNT_CLOSED: 422,
    Fault.LIMIT_EXCEEDED: 422,
    Fault.INVALID_DESTINATION: 422,
}
# The effect comes after the answer, or after the connection was dropped.
PAID_LATE: Final = frozenset({Fault.LATE, Fault.IN_PROGRESS, Fault.SLOW_LATE, Fault.REFUSED_LATE})
NAMES: Final = frozenset({*Fault, *LookupFault})


@dataclass(frozen=True, kw_only=True)
class Script:
    """faults: of a hundred first requests for a token how many meet which. plans: instruction to what its sends meet,
    in turn; "ok" or the end of the list = nothing. late_seconds: from when to when after its request a late effect
    happens.
    """

    seed: int = 0
    faults: Mapping[str, float] = field(default_factory=dict)
    plans: Mapping[str, Sequence[str]] = field(default_factory=dict)
    late_seconds: tuple[float, float] = (0.1, 0.4)
    slow_seconds: float = 0.15
    hang_seconds: float = 60.0
    retry_after_seconds: float = 1.0

    def __post_init__(self) -> None:
        for name in (*self.faults, *(met for plan in self.plans.values() for met in plan if met != "ok")):
            if name not in NAMES:
                raise InvalidValue(f"{name!r} is no fault of a rail; there are: {', '.join(sorted(NAMES))}.")
        for call, names in (("send", Fault), ("lookup", LookupFault)):
            total = sum(share for name, share in self.faults.items() if name in set(names))
            if not 0 <= total <= 100 or any(share < 0 for share in self.faults.values()):
                raise InvalidValue(f"The faults of a {call} are {total:g} %; together they can be 0 to 100.")

    def fault(self, call: Call, *, token: str, instruction: str, nth: int) -> str | None:
        """nth: which request of this kind for the token, from 1."""
        if call == "send" and instruction in self.plans:
            plan = self.plans[instruction]
            return plan[nth - 1] if nth <= len(plan) and plan[nth - 1] != "ok" else None
        if nth > FAULTY_REQUESTS_MAX:
            return None
        wanted = Fault if call == "send" else LookupFault
        drawn = 100.0 * self._draw(call, token, str(nth))
        for name, share in self.faults.items():
            if name in set(wanted):
                if drawn < share:
                    return name
                drawn -= share
        return None

    def lateness(self, token: str) -> float:
        """Seconds from its request to the late effect of this token."""
        low, high = self.late_seconds
        return low + (high - low) * self._draw("late", token)

    def _draw(self, *what: str) -> float:
        digest = hashlib.sha256("/".join([str(self.seed), *what]).encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


def parsed(text: str) -> dict[str, float]:
    """`lost_reply=10,late=5` as shares."""
    shares: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, share = part.partition("=")
        try:
            shares[name.strip()] = float(share) if equals else 100.0
        except ValueError:
            raise InvalidValue(f"{part!r} is no share of faults; write it as lost_reply=10, in per cent.") from None
    return shares
