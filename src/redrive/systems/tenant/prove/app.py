"""The app that the relays run: events of a tenant are posted to the tenant's own endpoint, all on one server."""

from __future__ import annotations

import os
from typing import Any, Final
from urllib.parse import urlsplit

from redrive import App, Attempt
from redrive.systems.tenant import EventTypes, Outbox, OutboxOptions, Version
from redrive.transports.http import Egress, HttpTransport

VARIABLE: Final = "REDRIVE_PROVE_SUBSCRIBERS"
SPEC: Final = "redrive.systems.tenant.prove.app:app"
EVENT_TYPE: Final = "EntityChanged"
TYPES: Final = EventTypes()
TYPES.declare(EVENT_TYPE, category="entity", by=Version())

TIMEOUT_SECONDS: Final = 2.0
CONCURRENCY: Final = 12
OPTIONS: Final = OutboxOptions(
    poll_interval_seconds=1, max_retries=6, base_retry_delay_seconds=0.1, window_seconds=86_400, old_failure_retries=3
)


def outbox_of(url: str, *, transport: type[HttpTransport] = HttpTransport, **options: Any) -> Outbox:
    """url: of the server. transport, options: a test breaks a promise with others."""

    def endpoint(attempt: Attempt) -> str:
        return f"{url}/{attempt.tenant}"

    port = urlsplit(url).port
    assert port is not None
    egress = Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}), ports=frozenset({port}))
    return Outbox(
        TYPES,
        options=OPTIONS,
        transport=transport(endpoint, egress=egress, **{"limit_by": "tenant", **options}),
        timeout_seconds=TIMEOUT_SECONDS,
        concurrency=CONCURRENCY,
    )


def app_of(**values: Any) -> App:
    """values: of `outbox_of`."""
    made = App()
    if VARIABLE in os.environ:
        made.include(outbox_of(os.environ[VARIABLE], **values).system())
    return made


app = app_of()
