"""The app that `REDRIVE_APP` names, with Django set up around it, also in the child in which a relay runs suspects."""

from collections.abc import Iterator
from contextlib import contextmanager

import django
from django.conf import settings
from django.db import close_old_connections

from redrive.app import App
from redrive.relay.load_app import load_app
from redrive.transports.functions import FunctionTransport


@contextmanager
def fresh_connections() -> Iterator[None]:
    """As around a request: a connection that broke, or is older than CONN_MAX_AGE, is not used."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


def _loaded() -> App:
    django.setup()
    app = load_app(settings.REDRIVE_APP)
    for destination in app.destinations.values():
        if isinstance(destination.transport, FunctionTransport):
            destination.transport.around = fresh_connections
    return app


app = _loaded()
