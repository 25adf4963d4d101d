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
# Not during the run: the questions of the duty would be taken for those of an attempt. It is run once, at the end.
RECONCILE_EVERY_SECONDS: Final = 3600.0
# Few are in hand when a relay is killed. A mail in hand is held then; none is claimed behind the one that is sent.
HOOKS_AT_ONCE: Final = 3
MAILS_AT_ONCE: Final = 1
_QUICK: Final = Backoff(initial_seconds=0.05, multiplier=2, max_seconds=0.5, jitter="full")
# Five attempts, as by default; crashes are the proof's own doing, and lookups are repeated while it kills.
POLICY: Final = Policy(attempts=5, backoff=_QUICK, lookup_backoff=_QUICK, lookups=50, crashes=50)
_HERE: Final = Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}))


def environment(*, repository: str, url: str, port: int) -> dict[str, str]:
    return {VARIABLE: json.dumps({"repository": repository, "url": url, "port": port})}


def providers(declared: Mapping[str, Any]) -> tuple[HttpProvider, SmtpProvider]:
    hooks = HttpProvider(name=HOOKS, url=declared["url"], egress=_HERE, policy=POLICY, concurrency=HOOKS_AT_ONCE)
    mail = SmtpProvider(
        name=MAIL,
        host="127.0.0.1",
        port=declared["port"],
        sender="reviews@example.org",
        tls="none",
        policy=POLICY,
        concurrency=MAILS_AT_ONCE,
    )
    return hooks, mail


def made(declared: Mapping[str, Any]) -> App:
    declaring = App()
    repositories = {REPOSITORY: declared["repository"]}
    every = RECONCILE_EVERY_SECONDS
    declaring.include(
        with_reviews(repositories, providers=providers(declared), reconcile_every_seconds=every, policy=POLICY)
    )
    return declaring


app = made(json.loads(os.environ[VARIABLE])) if VARIABLE in os.environ else App()
