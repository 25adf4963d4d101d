"""Pages are run without the settings of this machine, and leave no variable and no log handler behind."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import psycopg
import pytest

from tests.docs.desk import Desk

_VARIABLES = (
    *("REDRIVE_DSN", "REDRIVE_DSN_FILE", "REDRIVE_CONFIG", "REDRIVE_LOG_FORMAT", "REDRIVE_LOG_LEVEL"),
    *("DATABASE_URL", "PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "NO_COLOR", "FORCE_COLOR", "COLUMNS"),
)


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    level = root.level
    with mock.patch.dict(os.environ):
        yield
    root.setLevel(level)
    for handler in [one for one in root.handlers if one.get_name() == "redrive"]:
        root.removeHandler(handler)


@pytest.fixture
def desk(database: str) -> Iterator[Desk]:
    desk = Desk(database, psycopg.connect(database))
    yield desk
    desk.close()
