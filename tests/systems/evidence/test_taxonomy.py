"""The taxonomy (E-05): the document's codes, those that it forgot, and the same table in SQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from redrive.systems.evidence.taxonomy import CODES, Category, category_of, may_retry
from tests.systems.evidence.conftest import one

DOCUMENT = {
    Category.NETWORK: ("ATTACHMENT_API_TIMEOUT", "503", "NETWORK_TIMEOUT", "408", "429", "502", "504"),
    Category.SYSTEM: ("500", "SYSTEM_ERROR", "NEVER_HEARD_OF"),
    Category.DATA: ("CORRUPTED_FILE", "INVALID_FORMAT", "S3_NOT_FOUND"),
    Category.AUTH: ("401", "403", "UNAUTHORIZED", "CASE_NOT_FOUND"),
}


@pytest.mark.req("E-05")
@pytest.mark.parametrize(("category", "code"), [(one, code) for one, codes in DOCUMENT.items() for code in codes])
def test_each_code_of_the_document_has_its_category_and_only_two_categories_are_retried(
    category: Category, code: str
) -> None:
    assert category_of(code) is category
    assert may_retry(code) == (category in (Category.NETWORK, Category.SYSTEM))


@pytest.mark.req("E-05")
def test_no_code_has_no_category_and_is_not_retried() -> None:
    assert category_of(None) is None
    assert not may_retry(None)


@pytest.mark.req("E-05")
@pytest.mark.parametrize("code", [*CODES, "NEVER_HEARD_OF", None])
def test_the_functions_of_the_generated_columns_say_the_same(conn: psycopg.Connection[Any], code: str | None) -> None:
    said = one(
        conn,
        "SELECT redrive_evidence.error_category_of(%s) AS category, redrive_evidence.may_retry(%s) AS may",
        code,
        code,
    )
    assert (said.category, said.may) == (category_of(code), may_retry(code))
