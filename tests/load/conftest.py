"""An environment for every campaign: a fresh database, an observer, and processes that are always ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive.prove.environment import Environment
from tests.load.apps import CONFIG
from tests.support.scratch import scratch


@pytest.fixture
def environment(database: str) -> Iterator[Environment]:
    with scratch("redrive-load-") as place, Environment(place, database, config=CONFIG) as made:
        made.prepare()
        yield made
