"""What a destination does wrong, decided from a seed and the message alone, so that a run can be repeated. Pure.

Only the first few requests for a message meet a fault, so that every campaign ends.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

# Of a hundred first requests. Faults that leave the effect unknown: lost_reply, garbage, reset, hang.
SEND_FAULTS: Final[Mapping[str, float]] = {
    "lost_reply": 8.0,
    "garbage": 3.0,
    "reset": 5.0,
    "slow": 8.0,
    "hang": 2.0,
    "refuse": 2.0,
    "busy": 6.0,
}
LOOKUP_FAULTS: Final[Mapping[str, float]] = {"cannot_tell": 10.0, "lookup_lost": 5.0}
# Slow enough to be many at once, and never asking for a rest: what is then seen is held back by its limits alone.
LIMITED_FAULTS: Final[Mapping[str, float]] = {"slow": 40.0, "lost_reply": 3.0}
FAULTY_REQUESTS_MAX: Final = 3
RETRY_AFTER_SECONDS: Final = 0.2
SLOW_SECONDS: Final = 0.15
OUTAGE: Final = "outage"


@dataclass(frozen=True, kw_only=True)
class Script:
    """send, lookup: faults in per cent; empty = it behaves. limited: destinations with faults of their own, that
    are down for `outage_seconds` out of `outage_every_seconds`."""

    seed: int = 0
    send: Mapping[str, float] = field(default_factory=lambda: dict(SEND_FAULTS))
    lookup: Mapping[str, float] = field(default_factory=lambda: dict(LOOKUP_FAULTS))
    limited: Sequence[str] = ()
    outage_every_seconds: float = 20.0
    outage_seconds: float = 3.0

    def fault(self, call: str, message: str, nth: int, *, destination: str = "", at: float = 0.0) -> str | None:
        """Of the nth request of this kind for the message; nth counts from 1."""
        if destination in self.limited and at % self.outage_every_seconds < self.outage_seconds:
            return OUTAGE
        if nth > FAULTY_REQUESTS_MAX:
            return None
        sends = LIMITED_FAULTS if destination in self.limited else self.send
        return _pick(sends if call == "send" else self.lookup, self._draw(call, message, nth))

    def _draw(self, call: str, message: str, nth: int) -> float:
        digest = hashlib.sha256(f"{self.seed}/{call}/{message}/{nth}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64 * 100.0


def _pick(faults: Mapping[str, float], drawn: float) -> str | None:
    for name, share in faults.items():
        if drawn < share:
            return name
        drawn -= share
    return None


def quiet(seed: int = 0) -> Script:
    return Script(seed=seed, send={}, lookup={})
