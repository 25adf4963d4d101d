"""Typed payloads: judged on both sides of the table, refused by field and rule, never by value (G-15, G-19)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from redrive import redact
from redrive.answers import Found
from redrive.app import App
from redrive.errors import InvalidPayload, InvalidValue
from redrive.events import Events
from redrive.message import Attempt, NewMessage
from redrive.ports import Outcome
from redrive.relay.dispatching.dispatch import Dispatcher
from redrive.testing import ManualClock
from tests.support import messages as m

SECRET = "4111111111111111"


class Line(BaseModel):
    unit_price: Decimal = Field(gt=0)


class Order(BaseModel):
    number: int = Field(alias="no")
    at: datetime
    lines: list[Line] = []
    notes: dict[str, int] = {}


@dataclass
class Point:
    x: int
    at: datetime


class Address(TypedDict):
    city: str


class Odd(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def check(cls, value: str) -> str:
        raise ValueError(f"never {value}")


NOW = datetime(2040, 1, 1, tzinfo=UTC)
ORDER = Order(no=7, at=NOW, lines=[Line(unit_price=Decimal("1.10"))])


def app_with(schema: Any, handler: Any = print, **options: Any) -> App:
    app = App()
    app.destination("shop", schema=schema, **options)(handler)
    return app


def dispatched(app: App, body: bytes, **changes: Any) -> Outcome:
    dispatcher = Dispatcher(app.destinations["shop"], clock=ManualClock(), random=Random(1), events=Events())
    return asyncio.run(dispatcher.dispatch(m.attempt(body=body, **changes), claimed_at=0.0))


@pytest.mark.parametrize(
    ("schema", "given", "written"),
    [
        (Order, ORDER, {"no": 7, "at": "2040-01-01T00:00:00Z", "lines": [{"unit_price": "1.10"}], "notes": {}}),
        (Order, {"no": 7, "at": NOW}, {"no": 7, "at": "2040-01-01T00:00:00Z", "lines": [], "notes": {}}),
        (Point, Point(1, NOW), {"x": 1, "at": "2040-01-01T00:00:00Z"}),
        (Address, {"city": "Graz"}, {"city": "Graz"}),
        (list[Point], [Point(1, NOW)], [{"x": 1, "at": "2040-01-01T00:00:00Z"}]),
    ],
)
def test_a_value_is_written_as_json_and_read_as_its_type(schema: Any, given: Any, written: Any) -> None:
    found = app_with(schema).destinations["shop"].schema
    assert found is not None
    assert found.write(given) == written
    assert found.write(written) == written


@pytest.mark.req("G-19")
def test_the_handler_gets_the_value_typed() -> None:
    got: list[Any] = []

    def handler(message: Attempt[Order]) -> None:
        got.append(message.data)

    outcome = dispatched(app_with(Order, handler), b'{"no": 7, "at": "2040-01-01T00:00:00Z"}')
    assert outcome.settlement.closed == "delivered"
    assert got == [Order(no=7, at=NOW)]


def test_without_a_schema_data_is_the_plain_payload() -> None:
    assert m.attempt(body=b'{"a":1}').data == {"a": 1}


@pytest.mark.req("G-15")
@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"at": "2040-01-01T00:00:00Z"}', "no: missing."),
        (b'{"no": 7, "at": "%s-a"}', "at: datetime_from_date_parsing."),
        (
            b'{"no": 7, "at": "2040-01-01T00:00:00Z", "lines": [{"unit_price": "-%s"}]}',
            "lines[0].unit_price: greater_than.",
        ),
        (b'{"no": 7, "at": "2040-01-01T00:00:00Z", "notes": {"%s": "x"}}', "notes.[…]: int_parsing."),
        (b'{"no": "%s x", "at": "2040-01-01T00:00:00Z", "lines": 5}', "no: int_parsing and 1 more."),
        (b'"%s', "all of it: json_invalid."),
        (b"\xff\x00%s", "all of it: json_invalid."),
    ],
)
def test_what_does_not_fit_is_terminal_with_field_and_rule_and_nothing_is_sent(body: bytes, text: str) -> None:
    sent: list[Any] = []
    looked: list[Any] = []
    app = app_with(Order, sent.append, validate=looked.append)
    outcome = dispatched(app, body.replace(b"%s", SECRET.encode()))
    assert (outcome.settlement.park_reason, outcome.settlement.error_class) == ("dead", "PAYLOAD_INVALID")
    assert not outcome.settlement.in_doubt
    assert outcome.text is not None
    assert outcome.text == f"payload is no Order of 'shop': {text}"
    assert sent == looked == []
    assert SECRET not in repr(outcome.settlement) + str(outcome.context)


@pytest.mark.req("G-15")
def test_the_text_of_a_validator_of_ones_own_is_not_shown() -> None:
    outcome = dispatched(app_with(Odd), b'{"name": "%s"}' % SECRET.encode())
    assert outcome.text == "payload is no Odd of 'shop': name: value_error."
    with pytest.raises(InvalidPayload) as caught:
        app_with(Odd).enqueue(None, "shop", {"name": SECRET})
    assert SECRET not in "".join(map(str, [caught.value, caught.value.__cause__]))


@pytest.mark.req("G-15")
def test_a_rule_or_field_that_is_no_name_is_hidden() -> None:
    assert redact.text(redact.broken_rule("x", path=["a", 0, None], rule=f"no {SECRET}")) == "x: a[0].[…]: […]."
    assert redact.text("payload: lines[0].unit_price: greater_than.") != "payload: lines[0].unit_price: greater_than."


def test_a_message_that_is_only_looked_up_is_not_judged() -> None:
    """It was sent by an earlier version of the schema; what became of it does not depend on the new one."""
    app = app_with(Order, lookup=lambda _: Found("r-1"))
    outcome = dispatched(app, b"{}", in_doubt_since=m.at(-10))
    assert (outcome.settlement.closed, outcome.text) == ("delivered", None)


@pytest.mark.req("G-19")
def test_an_app_refuses_before_anything_is_written() -> None:
    app = app_with(Order)
    nowhere: Any = object()  # no statement is ever run on it
    with pytest.raises(InvalidPayload, match=r"payload is no Order of 'shop': at: missing\."):
        app.enqueue(nowhere, "shop", {"no": 7})
    with pytest.raises(InvalidPayload, match=r"messages\[1\]: payload is no Order"):
        app.enqueue_many(nowhere, [NewMessage("shop", ORDER), NewMessage("shop", 5)])
    with pytest.raises(InvalidValue, match="'shpo' is not declared in this app; did you mean 'shop'"):
        app.enqueue(nowhere, "shpo", ORDER)


def test_a_type_that_cannot_be_judged_is_refused_when_it_is_declared() -> None:
    with pytest.raises(InvalidValue, match="schema of 'shop' is Opaque, which cannot be used"):
        app_with(type("Opaque", (), {}))


class OneWay(BaseModel):
    name: str = Field(validation_alias="in", serialization_alias="out")


def test_what_could_not_be_read_again_is_refused_before_it_is_written() -> None:
    with pytest.raises(InvalidPayload, match="missing"):
        app_with(OneWay).enqueue(None, "shop", {"in": "x"})
