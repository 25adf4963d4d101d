"""Thirty planted secrets, prompts and addresses: none is in a parked record, a log line, an answer of the API or a
page (R-04).
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.principal import Role
from redrive.systems import reviews
from redrive.systems.reviews import ChatCritic, Recipient
from redrive.systems.reviews.changelist import Changelist
from redrive.systems.reviews.findings import Finding
from redrive.systems.reviews.simulators.script import Script
from tests.api.conftest import ORIGIN, House, asking, bearer
from tests.systems.reviews.conftest import Repository, commit, desk, git, request, rows, submit
from tests.transports.servers import HERE, serving

PLANTED = [f"planted-secret-{number:02}-x7Qz" for number in range(30)]
KEY, ADDRESSES, IN_DIFF, IN_REPLY, IN_ERROR, IN_LOCALS = (
    PLANTED[0],
    [f"{one}@example.org" for one in PLANTED[1:6]],
    PLANTED[6:16],
    PLANTED[16:21],
    PLANTED[21:26],
    PLANTED[26:30],
)


class Leaking:
    """A critic with a bug: everything that it knows is in the exception, its cause and its local variables."""

    name = "leaking"

    async def review(self, changelist: Changelist) -> list[Finding]:
        prompt, token = changelist.diff, ";".join(IN_LOCALS)
        try:
            raise KeyError(f"{token} {IN_ERROR[0]}")
        except KeyError as error:
            raise RuntimeError(f"{prompt} {' '.join(IN_ERROR)} password={IN_ERROR[1]}") from error

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.fixture
def planted(tmp_path: Path) -> Repository:
    path = tmp_path / "planted"
    path.mkdir()
    git(path, "init", "--quiet", "--initial-branch=main")
    base = commit(path, {"a.py": "a = 1\n"})
    text = "".join(f'password_{n} = "{one}"\n' for n, one in enumerate(IN_DIFF))
    return Repository(path, base, commit(path, {"a.py": f"a = 1\n{text}"}))


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that is logged, at every level."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield said
    root.removeHandler(handler)
    root.setLevel(level)


async def _say_too_much(_: web.Request) -> web.StreamResponse:
    return web.json_response({"error": {"code": "invalid_api_key", "message": " ".join(IN_REPLY)}}, status=401)


async def _pages(dsn: str, changelist: str, message: object) -> str:
    """What a viewer gets to see, from the API and from the console."""
    house = House(dsn)
    app = create_app(dsn, AuthConfig(origin=ORIGIN), systems={"reviews": reviews.system})
    headers = {**bearer(await house.token(Role.VIEWER, "*"))}
    said = []
    async with asking(app, headers=headers) as client:
        for path in (
            f"/api/v1/reviews/jobs/{changelist}",
            "/api/v1/reviews/jobs",
            f"/api/v1/messages/{message}",
            "/api/v1/messages",
            "/api/v1/groups",
            "/console/systems/reviews/reviews",
            "/console/systems/reviews/parts",
            f"/console/messages/{message}",
        ):
            reply = await client.get(path, headers={"Accept": "text/html" if "console" in path else "application/json"})
            said.append(reply.text)
            if "/reviews/jobs/" in path:
                assert reply.status_code == 200, reply.text
    return "\n".join(said)


@pytest.mark.req("R-04", "G-15")
@pytest.mark.seed(
    "001",
    "`sanitized_context` MUST exclude secrets, access tokens, API keys, full prompts containing sensitive "
    "data, and raw PII.",
)
@pytest.mark.seed("001", "Stack traces MUST be redacted if they contain sensitive literals.")
@pytest.mark.seed("001", "Include `first_failure_at`, `last_failure_at`, and `stage` to support replay triage.")
@pytest.mark.parametrize("how", ["a bug", "a refused key"])
async def test_no_planted_secret_is_in_what_a_dead_letter_leaves(
    reviewing: str, planted: Repository, tmp_path: Path, changelist: str, logged: io.StringIO, how: str
) -> None:
    wanted = request(changelist, planted, recipients=[Recipient(one, "hooks") for one in ADDRESSES])
    async with serving(_say_too_much) as model:
        critic: Any = Leaking() if how == "a bug" else ChatCritic(url=model.url, model="m", api_key=KEY, egress=HERE)
        async with desk(reviewing, planted, tmp_path, Script(), critic=critic) as opened:
            submit(reviewing, wanted)
            await opened.state(changelist, "retryable_failed")
        if how != "a bug":  # the secrets were where they could leak from
            assert KEY in model.asked[0].headers["Authorization"]
            assert all(one in model.asked[0].body.decode() for one in IN_DIFF)
    found = rows(
        reviewing,
        "SELECT to_json(k)::text FROM redrive.parked k JOIN redrive_reviews.job j ON j.message_id = k.id "
        "WHERE j.changelist_id = %s",
        changelist,
    )
    (record,) = [json.loads(one) for (one,) in found]
    assert record["error_class"] == ("UNCLASSIFIED" if how == "a bug" else "AUTH_DENIED")
    ((letter,),) = rows(
        reviewing,
        "SELECT to_json(k)::text FROM redrive_reviews.dead_letters k JOIN redrive_reviews.job j USING "
        "(message_id) WHERE j.changelist_id = %s",
        changelist,
    )
    shown = json.loads(letter)
    assert shown["stage"] == "llm"
    assert shown["first_failure_at"] <= shown["last_failure_at"]
    assert {"message_id", "stage", "attempt", "body_sha256"} <= shown["sanitized_context"].keys()
    if how == "a bug":
        assert "RuntimeError" in shown["last_stack"]
        assert "KeyError" in shown["last_stack"]
    archive = rows(
        reviewing, "SELECT code, text, reference FROM redrive.attempt a WHERE a.message_id = %s", record["id"]
    )
    pages = await _pages(reviewing, changelist, record["id"])
    everything = "\n".join([json.dumps(record), letter, json.dumps(archive), logged.getvalue(), pages])
    assert [one for one in PLANTED if one in everything] == []
