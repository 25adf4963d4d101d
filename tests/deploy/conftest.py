"""Prometheus and promtool of Debian, if they are installed."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture
def promtool() -> str:
    return shutil.which("promtool") or pytest.skip("prometheus is not installed")


@pytest.fixture
def prometheus() -> str:
    return shutil.which("prometheus") or pytest.skip("prometheus is not installed")
