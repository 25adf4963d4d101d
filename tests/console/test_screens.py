"""Every screen in a browser: both themes, on a desk and on a phone. No error, nothing cut off, and axe is content."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from redrive.store.runtime.postgres import PostgresStore
from tests.console.serving import Served, served
from tests.console.showroom import Showroom, furnish
from tests.support.databases import fresh_database

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [pytest.mark.full, pytest.mark.req("G-21"), pytest.mark.timeout(400)]
PATIENCE_MS = 60_000
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 800}


# All rules once; colours in the other theme too, and on the phone what may have moved.
RULES: dict[tuple[str, int], Any] = {
    ("light", DESK["width"]): {},
    ("dark", DESK["width"]): {"runOnly": ["color-contrast"]},
    ("light", PHONE["width"]): {"runOnly": ["scrollable-region-focusable", "target-size", "label"]},
}


class Furnished(NamedTuple):
    console: Served
    room: Showroom

    @property
    def paths(self) -> list[str]:
        room = self.room
        return [
            "/",
            "/groups",
            f"/groups/{room.group}",
            f"/groups/{room.repaired}",
            "/replays",
            f"/replays/{room.replay}",
            f"/replays/{room.done}",
            "/messages",
            f"/messages/{room.message}",
            f"/messages/{room.held}/confirm",
            "/parked/dead",
            "/parked/unrecorded",
            "/destinations",
            "/destinations/sms",
            "/keys",
            "/keys/skip?key=customer:17",
            "/relays",
            "/audit?verify=1",
            "/groups?view=snoozed",
            "/messages/00000000-0000-7000-8000-000000000000",
        ]


@pytest.fixture(scope="module")
def furnished(server_dsn: str, template: str) -> Iterator[Furnished]:
    with fresh_database(server_dsn, template=template) as dsn:

        async def made() -> Showroom:
            async with PostgresStore(dsn, connections=2) as store:
                return await furnish(store, dsn)

        with ThreadPoolExecutor() as threads:  # the browser's loop may be in this thread
            room = threads.submit(asyncio.run, made()).result()
        with served(dsn) as console:
            yield Furnished(console, room)


@pytest.fixture(scope="module")
def session(browser: Browser, furnished: Furnished) -> Any:
    """The cookies of somebody who has logged in."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{furnished.console.url}/login", timeout=PATIENCE_MS)
    page.get_by_label("Token").fill(furnished.console.secret)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", level=1).wait_for(timeout=PATIENCE_MS)
    state = context.storage_state()
    context.close()
    return state


def opened(browser: Browser, session: Any, faults: list[str], **options: Any) -> BrowserContext:
    context = browser.new_context(storage_state=session, **options)
    context.set_default_timeout(PATIENCE_MS)

    def heard(page: Page) -> None:
        page.on("console", lambda said: faults.append(f"{page.url}: {said.text}") if said.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))

    context.on("page", heard)
    return context


@pytest.mark.parametrize(("theme", "viewport"), [("light", DESK), ("dark", DESK), ("light", PHONE)], ids=str)
def test_a_screen_has_no_error_and_shuts_nobody_out(
    browser: Browser, session: Any, furnished: Furnished, theme: str, viewport: dict[str, int]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    faults: list[str] = []
    context = opened(browser, session, faults, color_scheme=theme, viewport=viewport)
    page = context.new_page()
    # In the second theme and width every second one: they are made of the same parts.
    for path in furnished.paths[:: 1 if (theme, viewport) == ("light", DESK) else 2]:
        page.goto(f"{furnished.console.url}{path}")
        wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        faults += [f"{path}: wider than the screen"] if wide else []
        found = Axe().run(page, options=RULES[theme, viewport["width"]]).response["violations"]
        faults += [f"{path}: {one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]
    context.close()
    unknown = [fault for fault in faults if "00000000" not in fault or "404" not in fault]  # asked for on purpose
    assert unknown == []


def test_without_scripts_a_page_is_read_and_a_message_acted_on(
    browser: Browser, session: Any, furnished: Furnished
) -> None:
    faults: list[str] = []
    context = opened(browser, session, faults, java_script_enabled=False)
    page = context.new_page()
    for path in furnished.paths[:-1]:
        assert page.goto(f"{furnished.console.url}{path}").status == 200  # type: ignore[union-attr]
    page.goto(f"{furnished.console.url}/messages/{furnished.room.held}")
    page.get_by_role("link", name="Confirm that it happened").click()
    page.get_by_label("Reference").fill("TX-8812")
    page.get_by_label("Reason").fill("seen in the ledger")
    page.get_by_role("button", name="Confirm 1 message").click()
    assert "delivered" in page.locator("h1").inner_text()
    assert "TX-8812" in page.locator("main").inner_text()
    context.close()
    assert faults == []


def test_a_page_says_when_it_is_stale_and_waits_while_somebody_types(
    browser: Browser, session: Any, furnished: Furnished
) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_MS)
    faults: list[str] = []
    context = opened(browser, session, faults, viewport=DESK)
    page = context.new_page()
    page.goto(f"{furnished.console.url}/groups/{furnished.room.group}")
    badge = page.locator("[data-live-badge]")
    expect(badge).to_have_attribute("data-state", "live")
    page.get_by_label("Reason").first.fill("half a sentence")
    other = context.new_page()
    other.goto(f"{furnished.console.url}/groups/{furnished.room.group}")
    other.locator("#mark-note summary").click()
    other.get_by_label("What is known").fill("the vendor knows")
    other.locator("#reason-note").fill("call with them")
    other.get_by_role("button", name="Note", exact=True).click()
    expect(other.get_by_text("the vendor knows")).to_be_visible()
    page.bring_to_front()
    expect(badge).to_have_attribute("data-state", "paused")
    assert page.get_by_label("Reason").first.input_value() == "half a sentence"
    page.get_by_label("Reason").first.fill("")
    page.locator("h1").click()
    expect(page.get_by_text("the vendor knows")).to_be_visible()
    expect(badge).to_have_attribute("data-state", "live")
    page.keyboard.press(".")
    expect(badge).to_contain_text("paused")
    page.keyboard.press(".")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/parked/dead")
    context.close()
    assert faults == []
