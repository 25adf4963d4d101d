"""A connection whose transaction is never committed, and an app with one destination."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import redrive

Connection = psycopg.Connection[Any]


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with psycopg.connect(database) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def sent() -> list[Any]:
    return []


@pytest.fixture
def app(sent: list[Any]) -> redrive.App:
    app = redrive.App()

    @app.destination("mail")
    def send(message: redrive.Attempt) -> None:
        sent.append(message.payload)

    return app
