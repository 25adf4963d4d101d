"""A store on a database of the test's own, and an app to fill, as for the tests of the relay."""

from __future__ import annotations

from tests.relay.conftest import app, store

__all__ = ["app", "store"]
