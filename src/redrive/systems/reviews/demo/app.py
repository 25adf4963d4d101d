"""The app of the demo: repository and providers are where the environment says, so that a child process finds them
too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from redrive import App
from redrive.systems.reviews.configured import with_reviews
from redrive.systems.reviews.providers import HttpProvider, SmtpProvider
from redrive.transports.http import Egress

HOOKS: Final = "hooks"
VARIABLE: Final = "REDRIVE_DEMO_REVIEWS"
SPEC: Final = "redrive.systems.reviews.demo.app:app"
RECONCILE_EVERY_SECONDS: Final = 3.0
_HERE: Final = Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}))


def made() -> App:
    found = App()
    if os.environ.get(VARIABLE):
        declared: Mapping[str, Any] = json.loads(os.environ[VARIABLE])
        hooks = HttpProvider(name=HOOKS, url=declared["url"], egress=_HERE)
        mail = SmtpProvider(
            name="email", host="127.0.0.1", port=declared["port"], sender="reviews@example.org", tls="none"
        )
        found.include(
            with_reviews(
                {"shop": declared["repository"]},
                providers=[mail, hooks],
                reconcile_every_seconds=RECONCILE_EVERY_SECONDS,
            )
        )
    return found


app = made()
