"""A stage for every campaign: a fresh database, an observer's log, and processes that are ended whatever happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive.prove.environment import Environment
from tests.load.apps import AGREED
from tests.support.scratch import scratch


@pytest.fixture
def stage(database: str) -> Iterator[Environment]:
    with scratch("redrive-load-") as place, Environment(place, database, agreed=AGREED) as made:
        made.prepare()
        yield made
