"""The page of requirements is what the marks say, and nothing that was delivered is without a test."""

from __future__ import annotations

from tests.support import traceability

DELIVERED = {"1", "5"}


def test_the_page_is_what_the_marks_say() -> None:
    assert traceability.PAGE.read_text(encoding="utf-8") == traceability.page(), (
        "run: python -m tests.support.traceability --write"
    )


def test_every_delivered_requirement_has_a_test() -> None:
    marks = traceability.marks()
    delivered = [name for name, facts in traceability.requirements().items() if facts["part"][0] in DELIVERED]
    assert [name for name in delivered if name not in marks] == []


def test_no_test_names_a_requirement_that_does_not_exist() -> None:
    assert set(traceability.marks()) - set(traceability.requirements()) == set()


def test_every_test_that_a_document_names_is_there_and_no_other_is_claimed() -> None:
    assert set(traceability.named_marks()) == set(traceability.named())
