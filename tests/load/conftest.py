"""A stage for every campaign: a fresh database, an observer's log, and processes that are ended whatever happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redrive.prove.stage import Stage
from tests.load.apps import AGREED
from tests.support.scratch import scratch


@pytest.fixture
def stage(database: str) -> Iterator[Stage]:
    with scratch("redrive-load-") as place, Stage(place, database, agreed=AGREED) as made:
        made.prepare()
        yield made
