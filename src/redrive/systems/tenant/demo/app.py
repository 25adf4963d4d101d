"""The app of the demo: its subscribers are where the environment says, so that a child process finds them too."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import urlsplit

from redrive import App, Attempt
from redrive.systems.tenant.demo.story import OPTIONS, TYPES
from redrive.systems.tenant.outbox import Outbox
from redrive.transports.http import Egress, HttpTransport

VARIABLE: Final = "REDRIVE_DEMO_SUBSCRIBERS"
SPEC: Final = "redrive.systems.tenant.demo.app:app"


def made() -> App:
    found = App()
    if os.environ.get(VARIABLE):
        found.include(_outbox(os.environ[VARIABLE]).system())
    return found


def _outbox(url: str) -> Outbox:
    def endpoint(attempt: Attempt) -> str:
        return f"{url}/{attempt.tenant}"

    port = urlsplit(url).port
    assert port is not None
    egress = Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}), ports=frozenset({port}))
    return Outbox(TYPES, options=OPTIONS, transport=HttpTransport(endpoint, egress=egress, limit_by="tenant"))


app = made()
