"""`--json` and the REST API show one read model alike: the same fields, values and cursors."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner

from redrive.operate.cli.main import cli
from redrive.operate.web.app import API_PREFIX
from redrive.operate.web.principal import Role
from tests.api import world as w
from tests.api.conftest import House, asking, bearer

pytestmark = [pytest.mark.req("G-21")]
# What another moment changes, or another connection.
PASSING = frozenset({"seen_seconds_ago", "oldest_due_seconds", "oldest_holder", "schema"})


def lasting(document: Any) -> Any:
    if isinstance(document, list):
        return [lasting(one) for one in document]
    if isinstance(document, dict):
        return {name: lasting(value) for name, value in document.items() if name not in PASSING}
    return document


async def printed(house: House, *arguments: str) -> Any:
    result = await asyncio.to_thread(CliRunner().invoke, cli, ["--dsn", house.dsn, *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_each_document_of_the_command_line_is_that_of_the_api(house: House) -> None:
    world = await w.made(house.dsn)
    dead, replay = world.acme["dead"], world.acme.replay
    async with asking(house.app()) as client:
        headers = bearer(await house.token(Role.ADMIN))
        for address, arguments in {
            "/status": ("status",),
            "/messages?limit=2": ("messages", "list", "--limit", "2"),
            f"/messages/{dead}": ("messages", "show", dead),
            "/parked?reason=dead&limit=1": ("dead", "list", "--limit", "1"),
            "/groups?all=true": ("groups", "list", "--all"),
            f"/groups/{world.group}": ("groups", "show", world.group),
            "/replays?limit=1": ("replay", "list", "--limit", "1"),
            f"/replays/{replay}": ("replay", "status", replay),
            "/destinations": ("destinations", "list"),
            "/keys?limit=1": ("keys", "list", "--limit", "1"),
            "/audit?limit=2": ("audit", "list", "--limit", "2"),
            "/tokens?limit=1": ("tokens", "list", "--limit", "1"),
        }.items():
            answer = await client.get(f"{API_PREFIX}{address}", headers=headers)
            assert answer.status_code == 200, address
            shown, said = lasting(answer.json()), lasting(await printed(house, *arguments))
            assert ("at" in shown) == ("at" in said), address
            assert {**said, "at": None} == {**shown, "at": None}, address
