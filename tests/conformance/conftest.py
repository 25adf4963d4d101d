"""The store under test: every test of this directory runs once on PostgreSQL and once on the model.

PostgreSQL's database is made once per test process and emptied before each test: making one takes fifty times
as long as such a test. A test that changes the schema itself overrides `subject_dsn` with a database of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.conformance.subjects import ModelSubject, PostgresSubject, Subject
from tests.support import databases


@pytest.fixture(scope="session")
def shared_database(server_dsn: str, template: str) -> Iterator[str]:
    with databases.fresh_database(server_dsn, template=template) as dsn:
        yield dsn


@pytest.fixture
def subject_dsn(shared_database: str) -> str:
    return shared_database


@pytest.fixture(params=["postgresql", "model"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    if request.param == "model":
        yield ModelSubject(owners={"payments.": "payments"})
        return
    subject = PostgresSubject(request.getfixturevalue("subject_dsn"))
    subject.forget_everything()
    async with subject:
        yield subject
    subject.close_reader()
