"""An environment for every crash test: a fresh database, an observer, and processes that are always ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive.prove.environment import Environment
from tests.crash.lives import CONFIG
from tests.support.scratch import scratch


@pytest.fixture
def environment(database: str) -> Iterator[Environment]:
    """With short leases; the application's tables are there, no process runs yet."""
    with scratch("redrive-prove-") as place, Environment(place, database, config=CONFIG) as made:
        made.prepare()
        yield made
