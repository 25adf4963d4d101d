"""What the engine says about itself: known names only, start before stop, exception instead of stop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from redrive.events import FACTS, INNER_STEPS, NAMES, STEPS, Events

pytestmark = pytest.mark.req("G-20")


class Heard(list[tuple[str, dict[str, Any]]]):
    def __call__(self, name: str, values: Mapping[str, Any]) -> None:
        self.append((name, dict(values)))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self]


def test_names_are_the_facts_and_the_edges_of_each_step() -> None:
    assert len(set(STEPS)) == len(STEPS)
    assert len(set(FACTS)) == len(FACTS)
    whole = {f"{step}.{edge}" for step in set(STEPS) - INNER_STEPS for edge in ("start", "stop", "exception")}
    inner = {f"{step}.start" for step in INNER_STEPS}
    assert set(STEPS) >= INNER_STEPS
    assert whole | inner | set(FACTS) == NAMES
    assert not (whole | inner) & set(FACTS)


@pytest.mark.parametrize("name", ["claim", "claim.begin", "message.lost", "", "*"])
def test_unknown_name_is_refused_and_nothing_is_subscribed(name: str) -> None:
    events = Events()
    with pytest.raises(KeyError, match="NAMES"):
        events.subscribe(Heard(), "claim.start", name)
    assert not events.wants("claim.start")


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_known_name_can_be_heard(name: str) -> None:
    events, heard = Events(), Heard()
    events.subscribe(heard, name)
    events.emit(name, count=1)
    assert heard == [(name, {"count": 1})]


def test_subscriber_without_names_hears_everything() -> None:
    events, heard = Events(), Heard()
    events.subscribe(heard)
    for name in sorted(NAMES):
        events.emit(name)
    assert heard.names == sorted(NAMES)


def test_wants_is_true_while_somebody_listens() -> None:
    events = Events()
    assert not events.wants("claim.stop")
    end = events.subscribe(Heard(), "claim.stop")
    assert events.wants("claim.stop")
    assert not events.wants("claim.start")
    end()
    end()
    assert not events.wants("claim.stop")


def test_end_of_one_subscription_leaves_the_others() -> None:
    events, first, second = Events(), Heard(), Heard()
    end = events.subscribe(first, "duty.failed")
    events.subscribe(second, "duty.failed")
    end()
    events.emit("duty.failed")
    assert (first, second.names) == ([], ["duty.failed"])


def test_subscriber_may_end_itself_while_it_is_called() -> None:
    events, heard = Events(), Heard()

    def once(name: str, values: Mapping[str, Any]) -> None:
        heard(name, values)
        end()

    end = events.subscribe(once, "relay.idle")
    events.subscribe(heard, "relay.idle")
    events.emit("relay.idle")
    events.emit("relay.idle")
    assert len(heard) == 3


def test_step_emits_start_and_stop_with_what_was_added() -> None:
    events, heard = Events(), Heard()
    events.subscribe(heard)
    with events.step("claim", destination="shop") as added:
        assert heard.names == ["claim.start"]
        added["count"] = 3
    assert heard == [("claim.start", {"destination": "shop"}), ("claim.stop", {"destination": "shop", "count": 3})]


@pytest.mark.parametrize("error", [ValueError("secret"), KeyboardInterrupt(), asyncio.CancelledError()])
def test_step_that_fails_emits_exception_without_its_text_and_raises_on(error: BaseException) -> None:
    events, heard = Events(), Heard()
    events.subscribe(heard)
    with pytest.raises(type(error)) as raised, events.step("send", id=7):
        raise error
    assert raised.value is error
    assert heard.names == ["send.start", "send.exception"]
    assert heard[1][1] == {"id": 7, "error": type(error).__qualname__}


def test_with_no_subscriber_a_step_costs_nothing_and_works() -> None:
    events = Events()
    with events.step("reap") as added:
        added["requeued"] = 1
    events.emit("relay.started")
