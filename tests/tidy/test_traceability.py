"""The page of requirements is what the marks say, and nothing that was delivered is without a test."""

from __future__ import annotations

from tools import traceability


def test_the_page_is_what_the_marks_say() -> None:
    assert traceability.PAGE.read_text(encoding="utf-8") == traceability.page(), (
        "run: python -m tools.traceability --write"
    )


def test_every_delivered_requirement_has_a_test() -> None:
    marks = traceability.marks()
    delivered = [name for name, one in traceability.requirements().items() if not one.get("planned")]
    assert [name for name in delivered if name not in marks] == []


def test_no_test_names_a_requirement_that_does_not_exist() -> None:
    assert set(traceability.marks()) - set(traceability.requirements()) == set()


def test_every_requirement_that_a_source_or_a_page_quotes_is_listed() -> None:
    listed = traceability.requirements()
    assert {name: places for name, places in traceability.quoted().items() if name not in listed} == {}


def test_every_test_that_a_document_names_is_there_and_no_other_is_claimed() -> None:
    assert set(traceability.named_marks()) == set(traceability.named())
