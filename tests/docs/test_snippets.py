"""Every block of the how-to pages is run, in the order of the page, against PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.desk import Desk
from tests.docs.pages import HOW_TO, fits, steps

# Blocks that cannot be run here; each says why in its page. A new one has to be counted here.
NOT_RUN = {
    "attach-evidence.md": 3,
    "consume-from-a-broker.md": 3,
    "make-payments.md": 1,
    "migrate-from-celery.md": 1,
    "monitor.md": 1,
    "run-in-production.md": 2,
    "run-the-console.md": 2,
    "use-with-django.md": 1,
    "use-with-sqlalchemy.md": 1,
}


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_the_page_does_what_it_says(page: Path, desk: Desk) -> None:
    for step in steps(page):
        if step.is_run:
            desk.run(step)


def test_what_is_not_run_says_why_and_is_counted() -> None:
    found = {page.name: [step for step in steps(page) if not step.is_run] for page in HOW_TO}
    assert {name: len(blocks) for name, blocks in found.items() if blocks} == NOT_RUN
    for block in (block for blocks in found.values() for block in blocks):
        assert len(block.words.removeprefix("no-run:").strip()) > 10, block.place


def test_every_page_is_run_and_checks_what_came_of_it() -> None:
    assert [
        page.name for page in HOW_TO if not any(step.kind in {"python", "sql", "shell"} for step in steps(page))
    ] == []


@pytest.mark.parametrize(
    ("shown", "fitting"),
    [
        ("b  …  d", True),
        ("a\nb c", True),
        ("b c d", True),
        ("b d", False),
        ("b c\na", False),
        ("x", False),
    ],
)
def test_a_shown_output_is_compared_line_by_line_and_in_order(shown: str, fitting: bool) -> None:
    assert fits(shown, "a\nb c d\n") is fitting
