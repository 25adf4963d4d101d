"""The fixtures of redrive.testing use Django's connection, inside the transaction of the test."""

import pytest
from django.db import connection


@pytest.fixture
def redrive_connection(db):
    return connection
