"""A Django project, on a database that the tests of a module share or on one of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import django_project
from tests.support.databases import fresh_database


@pytest.fixture(scope="module")
def shared_database(server_dsn: str, template: str) -> Iterator[str]:
    """With our schema, and none of Django's tables."""
    with fresh_database(server_dsn, template=template) as dsn:
        yield dsn


@pytest.fixture
def project(shared_database: str) -> Iterator[Any]:
    """The connection of a project that shares its database with the other tests of the module."""
    with django_project.on_database(shared_database) as connection:
        yield connection


@pytest.fixture
def own_project(database: str) -> Iterator[Any]:
    """The same on a database of the test's own."""
    with django_project.on_database(database) as connection:
        yield connection


@pytest.fixture
def new_project(empty_database: str) -> Iterator[Any]:
    """The connection of a project whose database is empty."""
    with django_project.on_database(empty_database) as connection:
        yield connection
