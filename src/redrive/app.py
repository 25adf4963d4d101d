"""What a user declares: destinations, duties, systems. The relay runs it; producers do not need it.

    app = redrive.App()

    @app.destination("welcome-mail")
    async def welcome(message: redrive.Attempt) -> None: ...

Everything that can be wrong with a declaration is refused here, when the module is imported, and not at the first message.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redrive.errors import InvalidValue, NotFound
from redrive.policy import InDoubt, OnDead, Policy, Rules, in_doubt_default
from redrive.ports import Record, Store, Transport
from redrive.system import System
from redrive.transports.functions import Classify, FunctionTransport, Handler

HandlerType = TypeVar("HandlerType", bound=Handler)

CONCURRENCY_DEFAULT = 10
CONCURRENCY_MAX = 1000
TIMEOUT_SECONDS_DEFAULT = 30.0
TIMEOUT_SECONDS_MAX = 3000.0
DESTINATIONS_MAX = 1000
NAME_MAX = 100


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where messages of one name go, and by which rules.

    concurrency: sends at a time in one relay process. timeout_seconds: for one send; cut off after it, it is Unknown.
    record: your writes inside the settle transaction; None = outcomes are settled in bulk.
    """

    name: str
    transport: Transport
    rules: Rules = field(default_factory=Rules)
    concurrency: int = CONCURRENCY_DEFAULT
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
    record: Record | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= NAME_MAX or "\x00" in self.name:
            raise InvalidValue(
                f"Destination name {self.name!r} has {len(self.name)} characters; it must have 1 to {NAME_MAX}."
            )
        if not 1 <= self.concurrency <= CONCURRENCY_MAX:
            raise InvalidValue(
                f"concurrency of {self.name!r} is {self.concurrency}; it must be 1 to {CONCURRENCY_MAX}."
            )
        if not 0 < self.timeout_seconds <= TIMEOUT_SECONDS_MAX:
            raise InvalidValue(
                f"timeout_seconds of {self.name!r} is {self.timeout_seconds}; it must be above 0 and at most {TIMEOUT_SECONDS_MAX}."
            )
        if self.rules.in_doubt == "lookup" and getattr(self.transport, "lookup", None) is None:
            raise InvalidValue(
                f'{self.name!r} has in_doubt="lookup" but no lookup; give one, or choose "resend" or "hold".'
            )
        if self.record is not None and not inspect.iscoroutinefunction(self.record):
            raise InvalidValue(f"record of {self.name!r} must be an `async def` function: it runs in our transaction.")


@dataclass(frozen=True, kw_only=True)
class Duty:
    """Periodic work, once at a time over all machines: bounded, safe to run twice, returns what it did in a few words."""

    name: str
    every_seconds: float
    run_once: Callable[[Store], Awaitable[object]]


class App:
    """The destinations and duties of one program."""

    def __init__(self) -> None:
        self.destinations: dict[str, Destination] = {}
        self.duties: dict[str, Duty] = {}
        self.systems: dict[str, System] = {}

    def destination(
        self,
        name: str,
        *,
        policy: Policy | None = None,
        concurrency: int = CONCURRENCY_DEFAULT,
        timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
        lookup: Handler | None = None,
        validate: Handler | None = None,
        record: Record | None = None,
        in_doubt: InDoubt | None = None,
        on_dead: OnDead = "halt",
        lookup_after_seconds: float = 0.0,
        token_ttl_seconds: float | None = None,
        money: bool = False,
        classify: Classify | None = None,
    ) -> Callable[[HandlerType], HandlerType]:
        """Declare a handler (`def` or `async def`) for a destination. Returning means delivered."""

        def declare(handler: HandlerType) -> HandlerType:
            transport = FunctionTransport(
                handler, validate=validate, lookup=lookup, classify=classify, threads=concurrency
            )
            rules = Rules(
                policy=policy or Policy(),
                in_doubt=in_doubt
                or in_doubt_default(can_look_up=lookup is not None, money=money, token_ttl_seconds=token_ttl_seconds),
                on_dead=on_dead,
                lookup_after_seconds=lookup_after_seconds,
                token_ttl_seconds=token_ttl_seconds,
                money=money,
            )
            self.add(
                Destination(
                    name=name,
                    transport=transport,
                    rules=rules,
                    concurrency=concurrency,
                    timeout_seconds=timeout_seconds,
                    record=record,
                )
            )
            return handler

        return declare

    def add(self, destination: Destination) -> None:
        if destination.name in self.destinations:
            raise InvalidValue(f"Destination {destination.name!r} is declared twice.")
        if len(self.destinations) >= DESTINATIONS_MAX:
            raise InvalidValue(
                f"There are {DESTINATIONS_MAX} destinations already, which is the most one app can have."
            )
        self.destinations[destination.name] = destination

    def duty(self, name: str, *, every_seconds: float) -> Callable[[Callable[[Store], Awaitable[Any]]], Any]:
        """Declare periodic work."""

        def declare(run_once: Callable[[Store], Awaitable[Any]]) -> Callable[[Store], Awaitable[Any]]:
            self.add_duty(Duty(name=name, every_seconds=every_seconds, run_once=run_once))
            return run_once

        return declare

    def add_duty(self, duty: Duty) -> None:
        if duty.name in self.duties:
            raise InvalidValue(f"Duty {duty.name!r} is declared twice.")
        if duty.every_seconds <= 0:
            raise InvalidValue(f"every_seconds of duty {duty.name!r} is {duty.every_seconds}; it must be above 0.")
        self.duties[duty.name] = duty

    def include(self, system: System) -> None:
        """Plug in a system (seam S8): its destinations and duties become this app's."""
        if system.name in self.systems:
            raise InvalidValue(f"System {system.name!r} is included twice.")
        for destination in system.destinations:
            self.add(destination)
        for duty in system.duties:
            self.add_duty(duty)
        self.systems[system.name] = system

    def only(self, names: Iterable[str]) -> dict[str, Destination]:
        """The destinations that a relay shall handle; all when none is named. An unknown one is refused."""
        wanted = list(names)
        unknown = [name for name in wanted if name not in self.destinations]
        if unknown:
            known = ", ".join(sorted(self.destinations)) or "none"
            raise NotFound(f"Destination {unknown[0]!r} is not declared in this app; it has: {known}.")
        return {name: self.destinations[name] for name in wanted} if wanted else dict(self.destinations)
