"""A stage for every crash test: a fresh database, an observer's log, and processes that are ended whatever happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive.prove.environment import Environment
from tests.crash.lives import AGREED
from tests.support.scratch import scratch


@pytest.fixture
def stage(database: str) -> Iterator[Environment]:
    """With short leases; the application's tables are there, no process runs yet."""
    with scratch("redrive-stage-") as place, Environment(place, database, agreed=AGREED) as made:
        made.prepare()
        yield made
