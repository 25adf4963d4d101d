"""The app that the relays of the proof run: repository and providers are where the environment says."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from redrive import App, Backoff, Policy
from redrive.systems.reviews.configured import with_reviews
from redrive.systems.reviews.providers import HttpProvider, SmtpProvider
from redrive.transports.http import Egress

VARIABLE: Final = "REDRIVE_PROVE_REVIEWS"
SPEC: Final = "redrive.systems.reviews.prove.app:app"
HOOKS: Final = "hooks"
MAIL: Final = "mail"
REPOSITORY: Final = "shop"
RECONCILE_EVERY_SECONDS: Final = 5.0
_QUICK: Final = Backoff(initial_seconds=0.05, multiplier=2, max_seconds=0.5, jitter="full")
# Five attempts, as the document says; crashes are the proof's own doing, and lookups are repeated while it kills.
POLICY: Final = Policy(attempts=5, backoff=_QUICK, lookup_backoff=_QUICK, lookups=50, crashes=50)
_HERE: Final = Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}))


def environment(*, repository: str, url: str, port: int) -> dict[str, str]:
    return {VARIABLE: json.dumps({"repository": repository, "url": url, "port": port})}


def _app(declared: Mapping[str, Any]) -> App:
    made = App()
    made.include(
        with_reviews(
            {REPOSITORY: declared["repository"]},
            providers=[
                HttpProvider(name=HOOKS, url=declared["url"], egress=_HERE, policy=POLICY),
                SmtpProvider(
                    name=MAIL,
                    host="127.0.0.1",
                    port=declared["port"],
                    sender="reviews@example.org",
                    tls="none",
                    policy=POLICY,
                ),
            ],
            reconcile_every_seconds=RECONCILE_EVERY_SECONDS,
            policy=POLICY,
        )
    )
    return made


app = _app(json.loads(os.environ[VARIABLE])) if VARIABLE in os.environ else App()
