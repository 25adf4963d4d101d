"""Log lines: three renderings, and nothing of a message in any of them."""

from __future__ import annotations

import io
import json
import logging
from typing import Any
from uuid import UUID

import pytest

from redrive.events import NAMES, Events
from redrive.operate import logs

ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
PARKED = {"id": ID, "destination": "erp", "attempt": 3, "code": "HTTP_409", "reason": "dead", "latency_ms": 12}
FORMATS = ["console", "json", "logfmt"]


def lines(log_format: str, level: str, *events: tuple[str, dict[str, Any]]) -> list[str]:
    """What these events leave in the log."""
    stream = io.StringIO()
    logs.configure(log_format, level, stream=stream)
    engine = Events()
    stop = logs.subscribe(engine)
    for name, values in events:
        engine.emit(name, **values)
    stop()
    engine.emit("message.parked", **PARKED)
    return stream.getvalue().splitlines()


def test_a_json_line_has_the_names_that_are_documented() -> None:
    (line,) = lines("json", "info", ("message.parked", PARKED))
    written = json.loads(line)
    assert written.pop("ts").endswith("Z")
    assert written == {
        "event": "message.parked",
        "level": "warning",
        "logger": "redrive.events",
        "message_id": str(ID),
        "destination": "erp",
        "attempt": 3,
        "error_code": "HTTP_409",
        "reason": "dead",
        "duration_ms": 12,
    }


@pytest.mark.parametrize("log_format", FORMATS)
def test_every_rendering_is_one_line_with_the_event_and_its_fields(log_format: str) -> None:
    (line,) = lines(log_format, "info", ("message.parked", {**PARKED, "destination": "a\nb\x1b[31m"}))
    assert "message.parked" in line
    assert "HTTP_409" in line
    assert "\x1b" not in line


@pytest.mark.req("G-15")
@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize(
    "values",
    [
        {"payload": {"card": "4711-secret"}},
        {"body": b"4711-secret"},
        {"text": "4711-secret"},
        {"key": "4711-secret"},
        {"headers": {"a": "4711-secret"}},
        {"reason": {"a": "4711-secret"}},
        {"code": b"4711-secret"},
        {"result": ["ok", {"a": "4711-secret"}]},
    ],
    ids=lambda values: next(iter(values)),
)
def test_nothing_of_a_message_reaches_a_line(log_format: str, values: dict[str, Any]) -> None:
    (line,) = lines(log_format, "debug", ("message.parked", {"id": ID, **values}))
    assert "4711-secret" not in line
    assert str(ID) in line


def test_an_extra_that_nobody_allowed_stays_out_of_foreign_lines_too() -> None:
    stream = io.StringIO()
    logs.configure("json", "info", stream=stream)
    logging.getLogger("somewhere").warning("hello", extra={"password": "geheim"})
    assert "geheim" not in stream.getvalue()


def test_what_happens_all_the_time_is_debug_and_costs_nothing_at_info() -> None:
    stream = io.StringIO()
    logs.configure("json", "info", stream=stream)
    engine = Events()
    logs.subscribe(engine)
    assert not engine.wants("message.delivered")
    assert not engine.wants("claim.start")
    assert engine.wants("message.parked")
    assert len(lines("json", "debug", ("message.delivered", {"id": ID}))) == 1


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("message.parked", logging.WARNING),
        ("destination.paused", logging.WARNING),
        ("duty.failed", logging.ERROR),
        ("relay.started", logging.INFO),
        ("send.start", logging.DEBUG),
    ],
)
def test_an_event_has_its_level(name: str, level: int) -> None:
    assert name in NAMES
    assert logs.level_of(name) == level


def test_every_event_with_a_level_exists() -> None:
    assert set(logs._LEVELS) <= NAMES  # a level for a name that nobody emits would be a dead letter of its own


def test_a_long_value_and_a_long_list_are_cut() -> None:
    fields = logs.fields({"destination": "x" * 300, "destinations": [f"d{n}" for n in range(30)]})
    assert len(fields["destination"]) == 200
    assert fields["destinations"][-1] == "and 10 more"


def test_configuring_again_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.configure("logfmt", "info", stream=first)
    logs.configure("logfmt", "info", stream=second)
    logging.getLogger("x").warning("once")
    assert (first.getvalue(), second.getvalue().count("once")) == ("", 1)
