"""The app of the proof: Case API, broker, files and mail server are where the environment says."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from redrive import App, Backoff, Policy
from redrive.systems.evidence.bus import NatsBus
from redrive.systems.evidence.case_api import CaseApi
from redrive.systems.evidence.configured import with_evidence
from redrive.systems.evidence.settings import EvidenceSettings
from redrive.systems.evidence.storage import storage_of
from redrive.transports.http import Egress
from redrive.transports.smtp import SmtpTransport

VARIABLE: Final = "REDRIVE_PROVE_EVIDENCE"
SPEC: Final = "redrive.systems.evidence.prove.app:app"
ACK_WAIT_SECONDS: Final = 5.0
TIMEOUT_SECONDS: Final = 20.0
# Shortened; attempts, multiplier, jitter and rows of a batch are the defaults.
SETTINGS: Final = EvidenceSettings(
    initial_delay_seconds=0.5,
    max_delay_seconds=2.0,
    sleep_between_batches_seconds=(0.05, 0.1),
    requeue_seconds=30.0,
    scheduler_every_seconds=0.5,
    gates_every_seconds=1.0,
)
_QUICK: Final = Backoff(initial_seconds=0.1, multiplier=2, max_seconds=1.0, jitter="full")
# Crashes are the proof's own doing, and questions are repeated while it kills.
POLICY: Final = Policy(attempts=2, backoff=_QUICK, lookup_backoff=_QUICK, lookups=100, crashes=50)
_HERE: Final = Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}))


def environment(declared: Mapping[str, Any]) -> dict[str, str]:
    """declared: `url` of the Case API, `bus`, `files` and the `port` of the mail server."""
    return {VARIABLE: json.dumps(declared)}


def made(declared: Mapping[str, Any], *, case_api: type[CaseApi] = CaseApi) -> App:
    """case_api: a test breaks a promise with another one."""
    declaring = App()
    api = case_api(
        url=declared["url"],
        egress=_HERE,
        policy=POLICY,
        lookup_after_seconds=0.0,
        timeout_seconds=TIMEOUT_SECONDS,
        concurrency=8,
    )
    bus = NatsBus(url=declared["bus"], ack_wait_seconds=ACK_WAIT_SECONDS)
    mail = SmtpTransport("127.0.0.1", port=declared["port"], sender="evidence@example.org", tls="none")
    declaring.include(with_evidence(api, bus, storage_of(f"file://{declared['files']}"), mail=mail, settings=SETTINGS))
    return declaring


app = made(json.loads(os.environ[VARIABLE])) if VARIABLE in os.environ else App()
