"""Every bad value beside its accepted neighbour: refused at the call, with the reason, and nothing changed (G-19)."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, Final

import psycopg
import pytest

from redrive.errors import InvalidPayload, InvalidValue, UsageError
from redrive.message import NewMessage, Priority
from redrive.produce.protocol import prepare
from tests.support.doors import Producer

pytestmark = pytest.mark.req("G-19")

AT = datetime(2090, 1, 1, tzinfo=UTC)
NAIVE = datetime(2090, 1, 1)  # noqa: DTZ001 - what is to be refused


class Place(enum.StrEnum):
    MAIL = "mail"


class OldPlace(str, enum.Enum):  # noqa: UP042 - as older code has it; its str() is not its value
    MAIL = "mail"


def headers_of(size: int) -> dict[str, str]:
    """Headers whose JSON has that many bytes."""
    return {"h": "v" * (size - len('{"h":""}'))}


# (what, accepted, refused, the reason in words)
PAIRS: list[tuple[str, Any, Any, str]] = [
    ("destination", "d", "", "destination has 0 characters; it must have 1 to 100"),
    ("destination", "d" * 100, "d" * 101, "destination has 101 characters"),
    ("destination", "ü" * 100, "ü" * 101, "destination has 101 characters"),
    ("destination", "a b", "a ", "must not begin or end with white space"),
    ("destination", "a\u00a0b", "\u00a0a", "must not begin or end with white space"),
    ("destination", "a\nb", "a\0b", "cannot store a NUL character"),
    ("destination", "\U0001f680", "\ud83d", "lone surrogate"),
    ("destination", Place.MAIL, None, "destination is of type NoneType; it must be text"),
    ("destination", OldPlace.MAIL, b"mail", "destination is of type bytes"),
    ("tenant", "t", "", "tenant has 0 characters"),
    ("tenant", "t" * 100, "t" * 101, "tenant has 101 characters"),
    ("tenant", "t", None, "tenant is of type NoneType"),
    ("tenant", "t", 7, "tenant is of type int"),
    ("tenant", "t", "\tt", "white space"),
    ("kind", "", None, "kind is of type NoneType"),
    ("kind", "k" * 100, "k" * 101, "kind has 101 characters; it must have 0 to 100"),
    ("kind", "k", "\0", "cannot store a NUL"),
    ("kind", "k", "\udc00", "lone surrogate"),
    ("key", None, "", "key has 0 characters; it must have 1 to 1,000"),
    ("key", "k" * 1000, "k" * 1001, "key has 1,001 characters"),
    ("key", " k ", 5, "key is of type int"),
    ("key", "k", "k\0", "cannot store a NUL"),
    ("key", "k", "\ud800", "lone surrogate"),
    ("order_by", None, "", "order_by has 0 characters; it must have 1 to 200"),
    ("order_by", "o" * 200, "o" * 201, "order_by has 201 characters"),
    ("order_by", "ü" * 200, "ü" * 201, "order_by has 201 characters"),
    ("order_by", " o ", "o\0", "cannot store a NUL"),
    ("order_by", "\U0001f680", "\ud800", "lone surrogate"),
    ("order_by", Place.MAIL, 5, "order_by is of type int"),
    ("order_by", "o", b"o", "order_by is of type bytes"),
    ("content_type", None, "", "content_type has 0 characters"),
    ("content_type", "c" * 100, "c" * 101, "content_type has 101 characters"),
    ("content_type", "text/plain; charset=utf-8", "text/plain\r\nX: y", "control characters"),
    ("content_type", "text/plain", b"text/plain", "content_type is of type bytes"),
    ("headers", {}, [("a", "b")], "headers are of type list"),
    ("headers", MappingProxyType({"a": "b"}), "a=b", "headers are of type str"),
    ("headers", {f"h{n}": "" for n in range(50)}, {f"h{n}": "" for n in range(51)}, "headers has 51 entries"),
    ("headers", {"n" * 100: ""}, {"n" * 101: ""}, "A header's name has 101 characters"),
    ("headers", {"n": ""}, {"": "v"}, "A header's name has 0 characters"),
    ("headers", {"n": "v"}, {1: "v"}, "A header's name is of type int"),
    ("headers", {"n": "v"}, {"n": 1}, "header 'n' is of type int"),
    ("headers", {"n": "v"}, {"n": None}, "header 'n' is of type NoneType"),
    ("headers", headers_of(8192), headers_of(8193), "headers have 8,193 bytes in all; at most 8,192"),
    ("headers", {"n": "ü"}, {"n": "a\0"}, "cannot store a NUL"),
    ("headers", {"n": "a b"}, {"n": "a\nb"}, "control characters"),
    ("headers", {"n-1": "v"}, {"n\r": "v"}, "control characters"),
    ("headers", {"n": "\U0001f680"}, {"n": "\udead"}, "lone surrogate"),
    ("due_at", AT, NAIVE, "due_at is 2090-01-01 00:00:00, without a time zone"),
    ("due_at", datetime.max.replace(tzinfo=UTC), "infinity", "due_at is of type str; it must be an aware datetime"),
    ("due_at", datetime(1, 1, 1, tzinfo=UTC), 0, "due_at is of type int"),
    ("due_at", None, date(2090, 1, 1), "due_at is of type date"),
    ("due_at", AT, datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))), "of the years 1 to 9999"),
    ("due_at", AT, datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "of the years 1 to 9999"),
    ("due_at", AT, timedelta(seconds=5), "due_at is of type timedelta"),
    ("due_at", AT, float("inf"), "due_at is of type float"),
    ("expires_at", AT, NAIVE, "expires_at is 2090-01-01 00:00:00, without a time zone"),
    ("expires_at", datetime.max.replace(tzinfo=UTC), "infinity", "expires_at is of type str"),
    ("priority", "low", "urgent", "priority is 'urgent'; it must be one of high, normal, low"),
    ("priority", Priority.HIGH, 0, "priority is 0"),
    ("priority", "normal", "Normal", "priority is 'Normal'"),
    ("priority", "high", None, "priority is None"),
    (
        "on_other_payload",
        "first_wins",
        "last_wins",
        "on_other_payload is 'last_wins'; it must be one of refuse, first_wins",
    ),
    ("on_other_payload", "refuse", None, "on_other_payload is None"),
    ("on_other_payload", "refuse", [], r"on_other_payload is \[\]"),
]
PAYLOADS: list[tuple[Any, Any, str]] = [
    ("x" * 262_142, "x" * 262_143, "as JSON it has 262,145 bytes, at most 262,144"),
    (b"x" * 262_144, b"x" * 262_145, "it has 262,145 bytes, at most 262,144"),
    (1e308, 1e308 * 10, "payload is inf"),
    ("\\u0000", "\0", "send the payload as bytes"),
    ({"1": 1}, {1: 1}, "JSON takes text only"),
    (AT.isoformat(), AT, "payload is a datetime"),
]


def message(what: str, value: Any) -> NewMessage:
    given: dict[str, Any] = {"destination": "mail", "payload": 1, what: value}
    return NewMessage(**given)


@pytest.mark.parametrize(("what", "accepted", "refused", "why"), PAIRS)
def test_a_value_out_of_bounds_is_refused_and_its_neighbour_accepted(
    what: str, accepted: Any, refused: Any, why: str
) -> None:
    prepare(message(what, accepted))
    with pytest.raises(InvalidValue, match=why) as error:
        prepare(message(what, refused))
    assert isinstance(error.value, ValueError)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("place", [Place.MAIL, OldPlace.MAIL])
def test_an_enumeration_counts_by_its_value(place: Any) -> None:
    """A driver would store the member's name."""
    given = dict.fromkeys(("destination", "key", "tenant", "kind", "order_by"), place)
    prepared = prepare(NewMessage(payload=1, headers={place: place}, **given))
    values = [getattr(prepared, name) for name in given]
    assert values == ["mail"] * 5
    assert {type(value) for value in values} == {str}
    assert prepared.headers == '{"mail":"mail"}'


def test_an_expiry_must_come_after_the_due_time() -> None:
    late = AT + timedelta(microseconds=1)
    prepare(NewMessage("mail", 1, due_at=AT, expires_at=late))
    for expires_at in (AT, AT - timedelta(days=1)):
        with pytest.raises(InvalidValue, match="is not after due_at"):
            prepare(NewMessage("mail", 1, due_at=AT, expires_at=expires_at))


async def test_no_refusal_changes_anything_or_breaks_the_transaction(producer: Producer) -> None:
    """All of the above over a real connection, and every accepted neighbour is stored."""
    cases: list[tuple[str, Any, Any, str]] = [*PAIRS, *(("payload", *pair) for pair in PAYLOADS)]
    await producer.rows("SELECT 1")
    for what, accepted, refused, why in cases:
        kept = {"destination": "mail", "payload": 1}
        with pytest.raises((InvalidValue, InvalidPayload), match=why):
            await producer.enqueue(**kept | {what: refused})
        with pytest.raises(UsageError, match=why):
            await producer.enqueue_many([message(what, 1 if what == "payload" else accepted), message(what, refused)])
        assert await producer.rows("SELECT count(*) FROM redrive.message") == [(0,)]
    await producer.enqueue_many([message(what, accepted) for what, accepted, _, _ in cases if what != "key"])
    for what, accepted, _, _ in cases:
        await producer.enqueue(**{"destination": "mail", "payload": 1, what: accepted})
    await producer.commit()


async def test_the_verb_refuses_the_same_for_every_other_language(producer: Producer) -> None:
    """SQL only: too long, too large, infinite; as InvalidParameterValue with the value and the bound."""
    for values, why in [
        ("'', ''", "destination has 0 characters"),
        ("'d', repeat('x', 262145)::bytea", "body has 262145 bytes; at most 262144"),
        ("'d', NULL", "body is missing"),
        ("'d', '', repeat('k', 1001)", "key has 1001 characters"),
        ("'d', '', p_tenant => ''", "tenant has 0 characters"),
        ("'d', '', p_kind => repeat('k', 101)", "kind has 101 characters"),
        ("'d', '', p_headers => json_build_object('h', repeat('v', 8192))", "headers have"),
        ("'d', '', p_due_at => 'infinity'", "due_at is infinity"),
        ("'d', '', p_expires_at => 'infinity'", "expires_at is infinity"),
        ("'d', '', p_expires_at => now() - interval '1 day'", "is not after now"),
        ("'d', '', p_level => 3::smallint", "level is 3"),
        ("'d', '', p_order_by => ''", "order_by has 0 characters; it must have 1 to 200, or be absent"),
        ("'d', '', p_order_by => repeat('o', 201)", "order_by has 201 characters"),
    ]:
        with pytest.raises(Exception, match=why) as refused:
            await producer.rows(f"SELECT * FROM redrive.enqueue_1({values})")
        assert getattr(refused.value, "sqlstate", None) == "22023"
        await producer.rollback()
    many = "ARRAY['d'], ARRAY['x'::bytea], NULL, ARRAY['t'], ARRAY[''], ARRAY['c'], NULL, NULL, NULL, '{1}'"
    for order_by, length in (("''", 0), ("repeat('o', 201)", 201)):
        with pytest.raises(Exception, match=f"order_by has {length} characters") as refused:
            await producer.rows(f"SELECT * FROM redrive.enqueue_many_1({many}, ARRAY[{order_by}])")
        assert getattr(refused.value, "sqlstate", None) == "22023"
        await producer.rollback()
    assert await producer.rows("SELECT count(*) FROM redrive.message") == [(0,)]


# The same table against the verb, for every language that has no `redrive.produce`: what can be said in SQL at all.
_IN_SQL: Final = {"destination", "tenant", "kind", "key", "order_by", "content_type", "headers", "due_at", "expires_at"}


def _as_sql(what: str, value: Any) -> Any:
    if what != "headers":
        return value
    is_said = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    return json.dumps(dict(value), ensure_ascii=False, separators=(",", ":")) if is_said else None


def _said_in_sql(what: str, value: Any) -> bool:
    """Values of another type cannot be handed over, and NUL and lone surrogates are no text for any driver."""
    if what in ("due_at", "expires_at"):
        return isinstance(value, datetime) and value.tzinfo is UTC
    text = _as_sql(what, value)
    return isinstance(text, str) and "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


SQL_CASES: Final = [
    *(
        (what, value, fits)
        for what, accepted, refused, _ in PAIRS
        for value, fits in ((accepted, True), (refused, False))
        if what in _IN_SQL and _said_in_sql(what, value)
        if not (isinstance(value, str) and value.startswith("\u00a0"))  # white space beyond ASCII: our own call only
    ),
    ("headers", '{"a":' + "9" * 8000 + "}", False),
    ("headers", '{"a":' + "[" * 4000 + "]" * 4000 + "}", False),
    ("headers", '{"a":{"b":"c"}}', False),
    ("headers", '{"a":null}', False),
    ("headers", '{"a":true}', False),
    ("headers", '["a"]', False),
    ("headers", '"a"', False),
    ("headers", "null", False),
    ("headers", '{"a":"b\\nc"}', False),
    ("headers", '{"a":"b\\u0000c"}', False),
    ("headers", '{"a":"\\ud800"}', False),
    ("headers", '{"a":"b\\\\nc"}', True),
    ("headers", '{"a":"\\u00fc"}', True),
    ("headers", "{}", True),
    ("due_at", "4000-01-01 BC", False),
    ("due_at", "10000-01-01 00:00:00+00", False),
    ("due_at", "infinity", False),
    ("due_at", "9999-12-31 23:59:59.999999+00", True),
    ("expires_at", "10000-01-01 00:00:00+00", False),
    ("expires_at", "infinity", False),
    ("expires_at", "9999-12-31 23:59:59.999999+00", True),
]


@pytest.mark.req("G-19", "G-32")
@pytest.mark.parametrize("verb", ["enqueue_1", "enqueue_many_1"])
def test_the_verbs_have_the_bounds_of_the_python_call(database: str, verb: str) -> None:
    wrong = []
    for what, value, fits in SQL_CASES:
        given = {"destination": "mail", "body": b"1", what: value if isinstance(value, str) else _as_sql(what, value)}
        with psycopg.connect(database, autocommit=True) as conn:
            try:
                conn.execute(*_call(verb, given))
                accepted = True
            except psycopg.DataError:
                accepted = False
        if accepted is not fits:
            wrong.append((what, value if len(str(value)) < 60 else str(value)[:60], fits))
    assert wrong == []


def _call(verb: str, given: dict[str, Any]) -> tuple[bytes, list[Any]]:
    if verb == "enqueue_1":
        casts = {"headers": "json", "due_at": "timestamptz", "expires_at": "timestamptz", "body": "bytea"}
        names = [f"p_{name} => %s::{casts.get(name, 'text')}" for name in given]
        return f"SELECT redrive.enqueue_1({', '.join(names)})".encode(), list(given.values())
    usual: dict[str, Any] = {
        "destination": "mail", "body": b"1", "key": None, "tenant": "default", "kind": "", "content_type": "text/plain",
        "headers": None, "due_at": None, "expires_at": None, "level": 1, "order_by": None,
    }  # fmt: skip
    types = ["text", "bytea", "text", "text", "text", "text", "text", "timestamptz", "timestamptz", "smallint", "text"]
    values = [[value] for value in {**usual, **given}.values()]
    return f"SELECT redrive.enqueue_many_1({', '.join(f'%s::{kind}[]' for kind in types)})".encode(), values


@pytest.mark.req("G-19", "G-32")
def test_an_application_may_not_say_what_time_it_is(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("SELECT redrive.enqueue_1('mail', '1', p_now => '2020-01-01Z')")
        conn.execute("SET ROLE redrive_producer")
        conn.execute("SELECT redrive.enqueue_1('mail', '1')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="p_now is the clock of tests"):
            conn.execute("SELECT redrive.enqueue_1('mail', '1', p_now => '4000-01-01 BC')")
        conn.execute("RESET ROLE")
        with pytest.raises(psycopg.DataError, match="years 1 to 9999"):
            conn.execute("SELECT redrive.enqueue_1('mail', '1', p_now => '4000-01-01 BC')")
