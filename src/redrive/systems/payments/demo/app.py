"""The app of the demo: its rails are where the environment says, so that a child process finds them too."""

import json
import os
from typing import Final

from redrive import App
from redrive.systems.payments.demo.story import rails
from redrive.systems.payments.rails import with_rails

VARIABLE: Final = "REDRIVE_DEMO_RAILS"
SPEC: Final = "redrive.systems.payments.demo.app:app"
RECONCILE_EVERY_SECONDS: Final = 3.0


def made() -> App:
    found = App()
    if VARIABLE in os.environ:
        declared = rails(json.loads(os.environ[VARIABLE]))
        found.include(with_rails(declared, reconcile_every_seconds=RECONCILE_EVERY_SECONDS))
    return found


app = made()
