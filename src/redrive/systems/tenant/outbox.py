"""`Outbox`: event types, options and the way out, declared once: producers take its writer, a relay its system.

    outbox = tenant.Outbox(TYPES, options=tenant.OutboxOptions(max_retries=8))

    @outbox.deliver                                     # or Outbox(…, transport=HttpTransport(…))
    async def publish(event: redrive.Attempt) -> None: ...

    app.include(outbox.system())

For a function each tenant is a limit key: an endpoint that fails, hangs or asks for a rest delays its own tenant only.
A transport says itself what its limits apply to.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar, Unpack, cast

from redrive import App, Attempt, System
from redrive.errors import InvalidValue
from redrive.kit.database import Database, database_duty
from redrive.kit.transport import Classify, DestinationOptions
from redrive.systems.tenant import system as plain_system
from redrive.systems.tenant.event_types import EventTypes
from redrive.systems.tenant.log import WorkerLog
from redrive.systems.tenant.metrics import METRICS
from redrive.systems.tenant.names import OUTBOX_DEFAULT, destination_of
from redrive.systems.tenant.options import OutboxOptions
from redrive.systems.tenant.writer import PAYLOAD_BYTES_MAX, OutboxWriter

HandlerType = TypeVar("HandlerType", bound=Callable[[Attempt], Any])

PUBLISH_EVERY_SECONDS: Final = 30.0
_PUBLISH: Final = "SELECT redrive_tenant.publish_options_1(%s, %s::json)"
# Options of a destination that the outbox has by a name of its own.
_OWN_NAMES: Final = {
    "policy": "MaxRetries, BaseRetryDelaySeconds, UseExponentialBackoff and Jitter",
    "error_text_max": "MaxErrorTextLength",
}
_OF_FUNCTIONS: Final = ("lookup", "validate", "classify")


class OutboxDestination(DestinationOptions, total=False):
    """lookup, validate, classify: of the function that `deliver` declares; a transport has its own."""

    lookup: Callable[[Attempt], Any]
    validate: Callable[[Attempt], Any]
    classify: Classify


class Outbox:
    def __init__(
        self,
        event_types: EventTypes,
        *,
        name: str = OUTBOX_DEFAULT,
        options: OutboxOptions | None = None,
        transport: Any = None,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        **destination: Unpack[OutboxDestination],
    ) -> None:
        """name: its destination is `tenant.NAME`; an app runs one outbox, so another one has an app of its own.
        transport: how events leave; None = by the function that `deliver`
        declares. `HttpTransport(url_of, limit_by="tenant")` keeps one tenant's endpoint from delaying others, as
        `deliver` does. destination: further options of the destination, such as `concurrency` or `breaker`."""
        _check(event_types, options, destination, has_transport=transport is not None)
        self.event_types = event_types
        self.options = options or OutboxOptions()
        self.destination = destination_of(name)
        self.writer = OutboxWriter(event_types=event_types, outbox=name, payload_bytes_max=payload_bytes_max)
        self._app = App()
        self._given: OutboxDestination = {
            "policy": self.options.policy,
            "error_text_max": self.options.max_error_text_length,
            **destination,
        }
        if transport is not None:
            self._app.transport(self.destination, transport, **cast("DestinationOptions", self._given))

    def deliver(self, handler: HandlerType) -> HandlerType:
        """Declare the function (`def` or `async def`) that delivers events. Returning means delivered."""
        self._app.destination(self.destination, limit_key=tenant_of, **self._given)(handler)
        return handler

    def system(self) -> System:
        """What a relay includes: the destination, its options, log lines, metrics."""
        if self.destination not in self._app.destinations:
            raise InvalidValue(f"The outbox {self.destination!r} has no way out: give a transport, or use `deliver`.")
        options = self.options
        return replace(
            plain_system,
            destinations=[*self._app.destinations.values()],
            duties=[database_duty(f"{self.destination}.options", self._publish, every_seconds=PUBLISH_EVERY_SECONDS)],
            metrics=METRICS if options.prometheus_enabled else {},
            observe=WorkerLog(self.destination, options).subscribe,
            relay_settings={"poll_seconds": options.poll_interval_seconds, "claim_max": options.batch_size},
        )

    async def _publish(self, database: Database) -> str:
        """So that API, console and health judge by the options of the relays."""
        values = [self.destination, json.dumps(self.options.documented())]
        changed = (await database.rows(_PUBLISH, values))[0][0]
        return "options published" if changed else "options as they were"


def tenant_of(attempt: Attempt) -> str:
    return attempt.tenant


def _check(event_types: object, options: object, destination: OutboxDestination, *, has_transport: bool) -> None:
    if not isinstance(event_types, EventTypes):
        raise InvalidValue(f"event_types is of type {type(event_types).__name__}; it must be EventTypes.")
    if options is not None and not isinstance(options, OutboxOptions):
        raise InvalidValue(
            f"options is of type {type(options).__name__}; it must be OutboxOptions; `OutboxOptions.of` makes one."
        )
    for name, ours in _OWN_NAMES.items():
        if name in destination:
            raise InvalidValue(f"{name} of an outbox is set by its options: {ours}.")
    for name in _OF_FUNCTIONS:
        if has_transport and name in destination:
            raise InvalidValue(f"{name} is for a function; the transport of the outbox has its own.")
