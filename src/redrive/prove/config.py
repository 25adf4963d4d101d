"""Destinations of a proof, their budgets, and how short its leases are. Printed with every report."""

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from redrive.kit.proof.environment import RELAY_LIMITS

LOOKUP: Final = "prove-lookup"
RESEND: Final = "prove-resend"
HOLD: Final = "prove-hold"
RECORD: Final = "prove-record"
COMPLETE: Final = "prove-complete"
LIMITED: Final = "prove-limited"
DESTINATIONS: Final = (LOOKUP, RESEND, HOLD, RECORD, COMPLETE)
# What is held keeps its key waiting for a person, and there is none: nothing for that destination has an ordering key.
ORDERING_KEYS: Final = tuple(f"customer-{number}" for number in range(1, 41))
# Handled only by one relay with a failpoint at a time, so that it is met soon, and by those that clear up at the end.
STRIKES_AT_ONCE: Final = 6
STRUCK: Final = tuple(f"struck-{number}" for number in range(1, STRIKES_AT_ONCE + 1))


def struck(kind: str) -> tuple[str, ...]:
    """Destinations for strikes that behave as `prove-<kind>`, or as `bug`."""
    return tuple(f"{lane}-{kind}" for lane in STRUCK)


# The application's own tables: the business row that commits with its message, and what `record` and `complete` write.
TABLES: Final = """
CREATE SCHEMA redrive_prove;
CREATE TABLE redrive_prove.business (
    tenant text, key text, destination text NOT NULL, sha256 text NOT NULL, PRIMARY KEY (tenant, key)
);
CREATE TABLE redrive_prove.recorded (message_id uuid, attempt integer, kind text, PRIMARY KEY (message_id, attempt));
CREATE TABLE redrive_prove.completed (message_id uuid, attempt integer, PRIMARY KEY (message_id, attempt));
"""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Over all relays; so many failures of one relay in a row open its breaker."""

    rate: float = 15.0
    global_concurrency: int = 4
    failures: int = 3
    cool_off_seconds: float = 0.5
    cool_off_max_seconds: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Config:
    """lookups, holds, records, completes, limited: destinations that are asked when in doubt, that wait for an
    operator, that have a `record`, that settle in a transaction of their own, that have limits. limits: of the
    relays, where they differ."""

    lookups: tuple[str, ...] = (
        *(LOOKUP, RECORD, COMPLETE),
        *(name for kind in ("lookup", "money", "record", "complete") for name in struck(kind)),
    )
    holds: tuple[str, ...] = (HOLD,)
    records: tuple[str, ...] = (RECORD, *struck("record"))
    completes: tuple[str, ...] = (COMPLETE, *struck("complete"))
    attempts_max: int = 8
    lookups_max: int = 20
    crashes_max: int = 3
    timeout_seconds: float = 1.0
    lookup_after_seconds: float = 0.5
    lease_seconds: float = 2.0
    reap_every_seconds: float = 0.5
    limits: dict[str, Any] = field(default_factory=dict)
    limited: dict[str, Limits] = field(default_factory=lambda: {LIMITED: Limits()})

    def relay_limits(self, **changes: Any) -> dict[str, Any]:
        own = {"lease_seconds": self.lease_seconds, "reap_every_seconds": self.reap_every_seconds}
        return {**RELAY_LIMITS, **own, **self.limits, **changes}

    def printed(self) -> dict[str, Any]:
        return {**asdict(self), "limits": self.relay_limits()}


DEFAULT: Final = Config()
