"""Every verb of the table can be reached by the command line, the API and the console, and each of them calls it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import click
import pytest
from click.testing import CliRunner

from redrive.errors import ActRefused
from redrive.message import MessageId, ParkReason
from redrive.operate.actions.model import Action, Command, Noun
from redrive.operate.actions.table import ACTIONS, MARKS, MESSAGE_ACTIONS, REPLAY, SKIP, find
from redrive.operate.cli.main import cli
from redrive.operate.console.routes import ADDRESSES
from redrive.operate.desk import replays
from redrive.operate.desk.replays import NewReplay
from redrive.operate.web.app import API_PREFIX, description
from redrive.operate.web.principal import Role
from redrive.store.runtime.postgres import PostgresStore
from tests.api.conftest import House, asking, bearer, routes
from tests.support import messages as m
from tests.support.databases import fresh_database

pytestmark = pytest.mark.req("G-21")
EACH = pytest.mark.parametrize("action", ACTIONS, ids=[f"{one.noun} {one.name}" for one in ACTIONS])
PATCH = [{"op": "replace", "path": "/iban", "value": "DE02"}]
VALUES: dict[str, Any] = {
    "cause": "data", "key": "again", "value": "ada", "patch": PATCH, "evidence": "it is up", "sequence": 1,
}  # fmt: skip


@dataclass
class Place:
    """A database with something for every verb. called: the verbs whose store call was reached, with their options."""

    house: House
    ids: dict[str, MessageId]
    group: str
    replay: str
    called: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


async def _filled(dsn: str) -> tuple[dict[str, MessageId], str, str]:
    async with PostgresStore(dsn) as store:
        ids: dict[str, MessageId] = {}
        for state, settlement in {
            "dead": m.park(),
            "replayed": m.park(),
            "discarded": m.park(),
            "held": m.park(ParkReason.HELD),
            "unrecorded": m.park(ParkReason.UNRECORDED),
        }.items():
            ids[state] = await m.enqueue(store, now=m.START, key=state, body=b'{"iban": "DE01"}')
            await m.settle(store, await m.claim(store, now=m.START), settlement, now=m.START)
        await store.discard(ids["discarded"], actor="ada", reason="test")
        ids["head"] = await m.enqueue(store, now=m.START, order_by="customer:7", destination="elsewhere")
        ids["pending"] = await m.enqueue(store, now=m.START, key="pending", destination="elsewhere")
        while await store.fold_failures(limit=1000):
            pass
        made = await replays.create(
            store,
            NewReplay(name="erp", filter={"ids": [str(ids["replayed"])]}, actor="ada", reason="test", override=True),
        )
        await store.rows("UPDATE redrive.replay_item SET outcome = 'delivered', finished_at = now() RETURNING 1", [])
        ((group,),) = await store.rows(
            "SELECT encode(failure_group, 'hex') FROM redrive.parked WHERE id = %s", [ids["dead"]]
        )
        return ids, group, str(made.id)


@pytest.fixture(scope="module")
def filled(server_dsn: str, template: str) -> Iterator[Place]:
    with fresh_database(server_dsn, template=template) as dsn:
        ids, group, replay = asyncio.run(_filled(dsn))
        yield Place(House(dsn), ids, group, replay)


@pytest.fixture
def place(filled: Place, action: Action) -> Iterator[Place]:
    """The same with the store call of this verb exchanged for one that only notes that it was reached."""

    async def reached(*_: Any, **options: Any) -> None:
        filled.called.append((action.name, options))
        raise ActRefused("It was reached.")

    original = action.call
    object.__setattr__(action, "call", reached)
    filled.called.clear()
    yield filled
    object.__setattr__(action, "call", original)


def required(action: Action) -> dict[str, Any]:
    names = {option.name for option in action.options if option.required}
    return {name: VALUES[name] for name in names | ({"evidence"} if action.name == "remediate" else set())}


def command_of(noun: str, name: str) -> click.Command:
    group: Any = cli
    context = click.Context(cli)
    for part in (noun, name):
        found = group.get_command(context, part)
        assert found is not None, f"redrive {noun} {name}"
        group = found
    return group  # type: ignore[no-any-return]


@EACH
def test_each_verb_is_a_command_with_every_option_of_the_table(action: Action) -> None:
    assert action.commands
    for place in action.commands:
        parameters = {one.name for one in command_of(place.noun, place.within or action.name).params}
        assert {option.name for option in action.options} <= parameters
        assert {"reason", "actor", "as_json"} <= parameters


@pytest.mark.parametrize(
    ("action", "command"),
    [(action, command) for action in ACTIONS for command in action.commands],
    ids=[f"{command.noun} {action.name}" for action in ACTIONS for command in action.commands],
)
def test_the_command_calls_it(place: Place, action: Action, command: Command) -> None:
    arguments = [command.noun, command.within or action.name, *_target(place, action, command.noun)]
    for option in action.options:
        if option.name in (wanted := required(action)):
            text = wanted[option.name] if option.type is not list else json.dumps(wanted[option.name])
            arguments += [text] if option.flag == "" else [f"--{option.name.replace('_', '-')}", text]
    yes = ["--yes"] if action.final else []
    result = CliRunner().invoke(cli, [*arguments, "--reason", "test", *yes, "--dsn", place.house.dsn])
    assert [name for name, _ in place.called] == [action.name], result.stderr


def _target(place: Place, action: Action, noun: str) -> list[str]:
    match action.noun:
        case Noun.MESSAGE:
            fitting = [noun] if noun in set(ParkReason) else action.applies_to
            return [str(place.ids[next(state for state in fitting if state in place.ids)])]
        case Noun.DEAD:
            name = ["erp"] if (noun, action) == ("replay", REPLAY) else []
            return [*name, str(place.ids["dead"])]
        case Noun.GROUP:
            return [place.group]
        case Noun.REPLAY:
            return [place.replay]
        case Noun.KEY:
            return ["default", "customer:7"]
        case Noun.DESTINATION:
            return [m.DESTINATION]


@EACH
def test_each_verb_is_in_the_description_of_the_api(action: Action) -> None:
    app: Any = routes().app
    described = description(app)
    operation = described["paths"][API_PREFIX + action.path]["post"]
    body = json.dumps(operation["requestBody"]) + json.dumps(described["components"]["schemas"])
    assert all(f'"{option.name}"' in body for option in action.options)
    for name in ("{act}", "{mark}"):
        if name in action.path:
            parameter = next(one for one in operation["parameters"] if one["name"] == name[1:-1])
            schema = parameter["schema"]
            if "$ref" in schema:
                schema = described["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
            assert action.name in schema["enum"]


@EACH
async def test_the_api_calls_it(place: Place, action: Action) -> None:
    id_ = place.ids[next(iter(action.applies_to), "dead")] if action.noun is Noun.MESSAGE else place.replay
    path = action.path.format(
        id=place.group if action.noun is Noun.GROUP else id_, act=action.name, mark=action.name, name=m.DESTINATION
    )
    body = {**required(action), "reason": "test"}
    if action.noun is Noun.DEAD:
        body["ids"] = [str(place.ids["dead"])]
    if action is REPLAY:
        body["name"] = "erp"
    if action is SKIP:
        body |= {"tenant": "default", "order_by": "customer:7", "sequence": 1}
    headers = {**bearer(await place.house.token(Role.ADMIN)), "Idempotency-Key": str(uuid4())}
    async with asking(place.house.app()) as client:
        answer = await client.post(API_PREFIX + path, json=body, headers=headers)
    assert [name for name, _ in place.called] == [action.name], answer.text


@EACH
async def test_the_console_has_a_form_that_calls_it(place: Place, action: Action) -> None:
    assert action.page in {address.path for address in ADDRESSES if address.method == "POST"}
    if action.noun is Noun.DEAD:
        at = {"edit": "triaged", "replay": "validated"}.get(action.name, next(iter(action.steps), "open"))
        place.house.execute("UPDATE redrive.parked SET workflow = %s, cause = 'data'", at)
    state = next((one for one in action.applies_to if one in place.ids), "dead")
    path = action.page.replace("{name:path}", m.DESTINATION).format(
        id=place.ids[state], act=action.name, group=place.group, mark=action.name, replay=place.replay
    )
    form = {**required(action), "reason": "test", "form_token": str(uuid4())}
    if action.name == "edit":
        form |= {"patch": "", "message": str(place.ids["dead"]), "after": '{"iban": "DE02"}', "scope": "one"}
    if action is SKIP:
        form |= {"tenant": "default", "order_by": "customer:7", "sequence": "1"}
    headers = {**bearer(await place.house.token(Role.ADMIN)), "Accept": "text/html"}
    async with asking(place.house.app(), headers=headers) as client:
        answer = await client.post(path, data=form)
    assert [name for name, _ in place.called] == [action.name], answer.text


def test_a_verb_stands_once_in_the_table() -> None:
    assert len({(action.noun, action.name) for action in ACTIONS}) == len(ACTIONS)
    assert find(Noun.GROUP, MARKS[0].name) is MARKS[0]
    assert {action.name for action in MESSAGE_ACTIONS} >= {"requeue", "confirm", "deny", "repair", "discard", "copy"}
