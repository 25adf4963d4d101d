"""What the tests of the migration runner share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.migration_sets import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """An empty set that stands in for the engine's own."""
    return Files(tmp_path / "redrive")
