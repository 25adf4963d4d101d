"""The console as it is served: the real application, with a relay beside it where a test needs one; and a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.api.conftest import House
from tests.support.databases import fresh_database

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# What Chromium would else do by itself, on a network that may not be there.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def house(server_dsn: str, template: str) -> Iterator[House]:
    """One database for the tests of a module."""
    with fresh_database(server_dsn, template=template) as dsn:
        yield House(dsn)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; tests with it are marked full."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        yield opened
        opened.close()
