"""Whatever the description of the API allows, and what it does not: no answer is a failure of ours.

Every operation with the edges of every value, about 2,600 requests, the same ones each time, to a server that listens.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from redrive.operate.web import serving
from redrive.operate.web.app import API_PREFIX
from redrive.operate.web.principal import Role
from redrive.settings import Settings
from tests.api import world as w
from tests.api.conftest import House, bearer

pytestmark = [pytest.mark.full, pytest.mark.req("G-21")]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def address(house: House) -> Iterator[str]:
    """A console that listens, on a thread of its own."""
    asyncio.run(w.made(house.dsn))
    sock = serving.listening(Settings(console_listen="127.0.0.1:0"))
    app = house.app(origin=None)
    server = serving.server_of(app)

    async def serve() -> None:
        async with app.authenticator.store:
            await server.serve(sockets=[sock])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        sock.close()


@pytest.fixture(scope="module")
def described(house: House, address: str) -> Any:
    secret = asyncio.run(house.token(Role.ADMIN))
    found = schemathesis.openapi.from_url(f"{address}{API_PREFIX}/openapi.json", headers=bearer(secret), timeout=60)
    found.config.phases.fuzzing.enabled = False
    return found


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@pytest.mark.timeout(600)  # what is judged is the answer, not how fast a busy machine gives it
@hypothesis.settings(max_examples=1, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_no_request_makes_it_fail(case: Any, house: House) -> None:
    """The host, the key and who asks are as they should be; the rest is what the description makes of it."""
    case.headers = {**(case.headers or {}), **bearer(house.secrets[Role.ADMIN, "*"])}
    if case.method == "POST":
        case.headers["Idempotency-Key"] = str(uuid4())
    case.validate_response(case.call(), checks=CHECKS)
