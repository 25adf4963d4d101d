"""Makes the pictures of docs/tutorial/tour-of-the-console.md: `python -m tests.console.screenshots SERVER_DSN`.

In a database of its own, with the showroom of the tests in it; small enough for a page of documentation.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg

from redrive.store.runtime.postgres import PostgresStore
from tests.console.conftest import QUIET
from tests.console.serving import served
from tests.console.showroom import Showroom, furnish
from tests.support.databases import fresh_database, migrated_template

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES: Final = Path(__file__).parents[2] / "docs" / "tutorial" / "console"
LETTERS: Final = 312


def main(server_dsn: str) -> None:
    """All of them, over what was there."""
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(exist_ok=True)
    with fresh_database(server_dsn, template=migrated_template(server_dsn)) as dsn:
        room = asyncio.run(_furnished(dsn))
        with served(dsn) as console, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
            _story(_logged_in(browser, console.url, console.secret, "light", 1180), console.url, room, dsn)
            _others(browser, console.url, console.secret, room)
            browser.close()


async def _furnished(dsn: str) -> Showroom:
    async with PostgresStore(dsn, connections=2) as store:
        return await furnish(store, dsn, minutes=58, dead=LETTERS)


def _logged_in(browser: Browser, url: str, secret: str, theme: str, width: int) -> Page:
    context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": 760})  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"{url}/login")
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", level=1).wait_for()
    return page


def _take(page: Page, name: str) -> None:
    page.locator("[data-live-badge][data-state=live]").wait_for()
    page.evaluate("document.activeElement.blur()")
    page.screenshot(path=PICTURES / f"{name}.png")


def _story(page: Page, url: str, room: Showroom, dsn: str) -> None:
    page.goto(url)
    _take(page, "overview")
    page.goto(f"{url}/groups/{room.group}")
    _take(page, "cause")
    page.get_by_label("Reason").first.fill("INC-4711: currency is missing since release 2.3")
    page.get_by_role("button", name=f"Set the cause of {LETTERS} messages").click()
    page.get_by_role("link", name="Edit the payload").click()
    editor = page.get_by_label("After", exact=True)
    editor.fill(editor.input_value().replace('"currency": null', '"currency": "EUR"'))
    page.locator(".diff ins").wait_for()
    page.locator("#check").scroll_into_view_if_needed()
    page.get_by_role("heading", name="The change").click()
    _take(page, "edit")
    page.get_by_label("Reason").fill("INC-4711: all of them are in euros")
    page.get_by_role("button", name=f"Save for {LETTERS} messages").click()
    page.get_by_role("button", name=f"Check {LETTERS} messages").wait_for()
    with psycopg.connect(dsn, autocommit=True) as conn:  # what a relay would say
        conn.execute("UPDATE redrive.parked SET workflow = 'validated' WHERE workflow = 'remediated' AND edited")
    page.reload()
    page.get_by_role("heading", name="Dry run").wait_for()
    _take(page, "dry-run")
    page.get_by_label("Reason").first.fill("INC-4711: corrected, send again")
    page.get_by_role("button", name=f"Replay {LETTERS} messages").click()
    page.get_by_text(f"of {LETTERS} delivered").wait_for()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "UPDATE redrive.replay_item SET outcome = CASE WHEN position <= 187 THEN 'delivered' ELSE 'requeued' END,"
            " requeued_at = now(), finished_at = now() WHERE position <= 190"
            " AND replay_id = (SELECT id FROM redrive.replay ORDER BY id DESC LIMIT 1)"
        )
    page.get_by_text("187").first.wait_for()
    _take(page, "replay")


def _others(browser: Browser, url: str, secret: str, room: Showroom) -> None:
    dark = _logged_in(browser, url, secret, "dark", 1180)
    dark.goto(f"{url}/messages/{room.message}")
    _take(dark, "message")
    dark.goto(f"{url}/destinations/sms")
    _take(dark, "destination")
    phone = _logged_in(browser, url, secret, "light", 390)
    phone.goto(url)
    _take(phone, "phone")


if __name__ == "__main__":
    main(sys.argv[1])
