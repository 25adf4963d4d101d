"""The outbox declared in `redrive.toml`, for a relay that no Python names: events are posted to a URL.

    [tenant]
    url = "https://events.example.com/in"
    MaxRetries = 8                             # any option, written so or as in Python

Secrets are named, as with a destination: `headers_env`, `headers_file`, `url_env`, `url_file`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from redrive import System
from redrive.kit.settings import Place, read_table
from redrive.systems.tenant.event_types import EventTypes
from redrive.systems.tenant.names import OUTBOX_DEFAULT
from redrive.systems.tenant.options import OutboxOptions
from redrive.systems.tenant.outbox import Outbox
from redrive.transports.http import Egress, HttpTransport  # of the extra `http`


@dataclass(frozen=True)
class Subscriber:
    """Where events of all tenants are posted. outbox: whose events. concurrency: at a time in one relay. egress: which
    addresses may be reached beside public ones over HTTPS."""

    url: str
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict)
    outbox: str = OUTBOX_DEFAULT
    timeout_seconds: float = 30.0
    concurrency: int = 10
    egress: Egress | None = None


_OWN: Final = {one.name for one in fields(Subscriber)}
_NAMED: Final = {f"{name}_{place}" for name in ("url", "headers") for place in ("env", "file")}


def from_settings(table: Mapping[str, Any], file: Path) -> System:
    own = {name: value for name, value in table.items() if name in _OWN | _NAMED}
    options = OutboxOptions.of({name: value for name, value in table.items() if name not in own})
    subscriber = read_table(Subscriber, Place("outbox", file, "tenant"), own)
    return Outbox(
        EventTypes(),
        name=subscriber.outbox,
        options=options,
        transport=HttpTransport(subscriber.url, headers=subscriber.headers, egress=subscriber.egress),
        timeout_seconds=subscriber.timeout_seconds,
        concurrency=subscriber.concurrency,
    ).system()
