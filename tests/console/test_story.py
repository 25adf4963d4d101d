"""The one story, in a browser, against a real server and a real relay: five hundred failures, and nobody's help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from redrive.operate.cli.main import cli
from tests.console import story
from tests.console.serving import Served, served
from tests.support.databases import fresh_database

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.full, pytest.mark.req("G-21", "G-16"), pytest.mark.timeout(400)]
PATIENCE_MS = 60_000


@pytest.fixture
def failing(server_dsn: str, template: str) -> Iterator[tuple[Served, story.Outside, str]]:
    """A console on a database with five hundred failures, and the relay that failed."""
    outside = story.Outside()
    with fresh_database(server_dsn, template=template) as dsn:
        story.enqueue_all(dsn)
        with story.relay(outside.app(), dsn), served(dsn) as console:
            story.settle_down(dsn)
            yield console, outside, dsn


@pytest.fixture
def page(browser: Browser, failing: tuple[Served, story.Outside, str]) -> Iterator[Page]:
    """Somebody who has just logged in."""
    console = failing[0]
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    faults: list[str] = []
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.goto(f"{console.url}/login")
    opened.get_by_label("Token").fill(console.secret)
    opened.get_by_role("button", name="Sign in").click()
    yield opened
    context.close()
    assert faults == []


def test_a_stranger_repairs_five_hundred_failures(page: Page, failing: tuple[Served, story.Outside, str]) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_MS)
    _, outside, dsn = failing

    # Overview: how many, of how many causes.
    expect(page.get_by_text(f"{story.FAILED} dead letters of 3 causes wait for a person.")).to_be_visible()
    expect(page.locator("[data-live-badge]")).to_contain_text("live")
    page.get_by_role("link", name="Failure groups", exact=True).click()
    expect(page.get_by_text(f"{story.FAILED} messages in 3 groups")).to_be_visible()

    # One group: what its payloads have in common is the cause.
    page.get_by_role("link", name=re.compile("SCHEMA_INVALID")).click()
    expect(page.locator(".common")).to_contain_text("100 % have currency = null")
    expect(page.get_by_role("radio", name=re.compile("The data"))).to_be_checked()
    page.get_by_label("Reason").first.fill("INC-7: currency is missing since release 2.3")
    page.get_by_role("button", name=f"Set the cause of {story.NO_CURRENCY} messages").click()

    # The editor: a slip is seen at once, the change is shown beside the old, with what it does to the others.
    page.get_by_role("link", name=f"Edit the payload of {story.NO_CURRENCY} messages").click()
    editor = page.get_by_label("After", exact=True)
    text = editor.input_value()
    editor.fill(text.replace('"currency": null', '"currency": "EUR'))
    expect(page.get_by_role("alert")).to_contain_text("This is not JSON")
    editor.fill(text.replace('"currency": null', '"currency": "EUR"'))
    expect(page.locator(".diff ins")).to_have_text('"EUR"')
    expect(page.locator(".diff del")).to_have_text("null")
    expect(page.get_by_text("It fits 200 of 200 messages")).to_be_visible()
    page.get_by_label("Reason").fill("INC-7: all of them are in euros")
    page.get_by_role("button", name=f"Save for {story.NO_CURRENCY} messages").click()

    # A relay checks them, the dry run counts them, a few go first.
    page.get_by_role("button", name=f"Check {story.NO_CURRENCY} messages").click()
    expect(page.get_by_role("heading", name="Dry run")).to_be_visible()
    assert not [
        place for place, payload in outside.arrived if place == "erp" and payload["invoice"] < 4000 + story.NO_CURRENCY
    ]
    page.get_by_label("Reason").first.fill("INC-7: corrected, send again")
    page.get_by_role("button", name=f"Replay {story.NO_CURRENCY} messages").click()

    # It is watched without a reload, until all have arrived and somebody has said so.
    page.wait_for_url(re.compile(r"/replays/"))
    verify = page.get_by_role("button", name=f"Verify {story.NO_CURRENCY} messages")
    expect(verify).to_be_visible()
    expect(page.get_by_text(f"of {story.NO_CURRENCY} delivered")).to_be_visible()
    page.get_by_label("Reason").last.fill("seen in the ledger of the ERP")
    verify.click()
    expect(page.get_by_role("heading", name="Verified")).to_be_visible()

    # And it is so, outside.
    arrived = [payload for place, payload in outside.arrived if place == "erp"]
    assert len(arrived) == story.NO_CURRENCY + story.GOOD
    assert {payload["currency"] for payload in arrived} == {"EUR"}
    assert len({payload["invoice"] for payload in arrived}) == len(arrived)
    _audit_verifies(dsn)


def _audit_verifies(dsn: str) -> None:
    from click.testing import CliRunner

    with ThreadPoolExecutor() as threads:  # the browser's loop is in this one
        result = threads.submit(CliRunner().invoke, cli, ["--dsn", dsn, "audit", "verify"]).result()
    assert result.exit_code == 0, result.output
