"""The app of the demo: everything is where the environment says, so that a child process finds it too."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from redrive import App
from redrive.systems.evidence.bus import NatsBus
from redrive.systems.evidence.case_api import CaseApi
from redrive.systems.evidence.configured import with_evidence
from redrive.systems.evidence.settings import EvidenceSettings
from redrive.systems.evidence.storage import storage_of
from redrive.transports.http import Egress
from redrive.transports.smtp import SmtpTransport

VARIABLE: Final = "REDRIVE_DEMO_EVIDENCE"
SPEC: Final = "redrive.systems.evidence.demo.app:app"
# Shortened: a person waits for it.
SETTINGS: Final = EvidenceSettings(
    initial_delay_seconds=4.0, max_delay_seconds=8.0, scheduler_every_seconds=1.0, gates_every_seconds=1.0
)
_HERE: Final = Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}))


def made() -> App:
    found = App()
    if os.environ.get(VARIABLE):
        declared: Mapping[str, Any] = json.loads(os.environ[VARIABLE])
        api = CaseApi(url=declared["url"], egress=_HERE, lookup_after_seconds=0.0)
        mail = SmtpTransport("127.0.0.1", port=declared["port"], sender="evidence@example.org", tls="none")
        bus, files = NatsBus(url=declared["bus"]), storage_of(declared["storage"])
        found.include(with_evidence(api, bus, files, mail=mail, settings=SETTINGS))
    return found


app = made()
