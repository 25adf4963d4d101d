"""pause and resume, register and heartbeat, duties: what relays tell each other through the store."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from redrive.errors import ActRefused, InvalidValue, SettingsError
from redrive.message import ParkReason, WorkerId
from redrive.ports import DestinationState, RelayInfo, duty_hold_seconds
from tests.conformance.steps import (
    ACT,
    ALICE,
    BOB,
    MAIL,
    T0,
    at,
    claim_one,
    crashed,
    enqueue,
    parked,
    put_into,
    retried,
    settle,
)
from tests.conformance.subjects import Subject


def relay(worker: WorkerId = ALICE, *destinations: str, records: tuple[str, ...] = ()) -> RelayInfo:
    return RelayInfo(
        worker=worker,
        name="relay",
        host="here",
        pid=1,
        version="1",
        destinations=destinations or (MAIL,),
        records=records,
        policies={MAIL: "p1"},
    )


async def heard(store: Subject, worker: WorkerId = ALICE) -> list[DestinationState]:
    return sorted(await store.heartbeat(worker, now=at(5)), key=lambda state: state.name)


@pytest.mark.req("G-25")
async def test_a_second_pause_changes_nothing_and_says_so(store: Subject) -> None:
    await store.register(relay(), now=T0)
    assert await store.pause(MAIL, actor="ada", reason="bug", now=at(1))
    assert not await store.pause(MAIL, actor="bob", reason="other", now=at(2))
    assert await heard(store) == [
        DestinationState(name=MAIL, paused=True, pause_reason="bug", paused_by="ada", paused_at=at(1))
    ]


@pytest.mark.req("G-25")
async def test_a_resumed_destination_is_as_if_never_paused(store: Subject) -> None:
    await store.register(relay(), now=T0)
    assert not await store.resume(MAIL, **ACT, now=at(1))
    await store.pause(MAIL, **ACT, now=at(2))
    assert await store.resume(MAIL, **ACT, now=at(3))
    assert not await store.resume(MAIL, **ACT, now=at(4))
    assert await heard(store) == [DestinationState(name=MAIL, paused=False)]


@pytest.mark.req("G-25")
async def test_a_destination_that_nobody_has_registered_can_be_paused(store: Subject) -> None:
    assert not await store.resume("later", **ACT, now=T0)
    assert await store.pause("later", **ACT, now=T0)
    await store.register(relay(ALICE, "later"), now=at(1))
    assert [state.paused for state in await heard(store)] == [True]


@pytest.mark.req("G-19")
@pytest.mark.parametrize("values", [{"actor": "", "reason": "x"}, {"actor": "x", "reason": " "}])
async def test_pause_and_resume_need_an_actor_and_a_reason(store: Subject, values: dict[str, str]) -> None:
    with pytest.raises(InvalidValue):
        await store.pause(MAIL, **values, now=T0)
    await store.pause(MAIL, **ACT, now=T0)
    with pytest.raises(InvalidValue):
        await store.resume(MAIL, **values, now=T0)
    assert not await store.pause(MAIL, **ACT, now=T0)


@pytest.mark.req("G-29")
async def test_a_heartbeat_tells_about_the_relays_own_destinations(store: Subject) -> None:
    await store.register(relay(ALICE, MAIL, "bank"), now=T0)
    await store.register(relay(BOB, "fax"), now=T0)
    await store.pause("fax", **ACT, now=T0)
    assert [state.name for state in await heard(store)] == ["bank", MAIL]
    assert [(state.name, state.paused) for state in await heard(store, BOB)] == [("fax", True)]


@pytest.mark.req("G-29")
async def test_a_relay_that_is_not_registered_hears_nothing(store: Subject) -> None:
    assert await heard(store) == []
    await store.register(relay(), now=T0)
    await store.deregister(ALICE)
    assert await heard(store) == []
    await store.deregister(ALICE)


@pytest.mark.req("G-29")
async def test_a_relay_can_register_again(store: Subject) -> None:
    await store.register(relay(), now=T0)
    await store.register(relay(), now=at(50))
    assert await store.forget_relays(after_seconds=10, now=at(55)) == 0
    assert [state.name for state in await heard(store)] == [MAIL]


@pytest.mark.req("G-29")
async def test_relays_not_seen_for_long_are_forgotten(store: Subject) -> None:
    await store.register(relay(ALICE), now=T0)
    await store.register(relay(BOB), now=T0)
    await store.heartbeat(BOB, now=at(40))
    assert await store.forget_relays(after_seconds=50, now=at(50)) == 0
    assert await store.forget_relays(after_seconds=50, now=at(51)) == 1
    assert (await heard(store, ALICE), len(await heard(store, BOB))) == ([], 1)


@pytest.mark.req("G-27")
async def test_whether_a_destination_records_is_what_the_last_relay_said(store: Subject) -> None:
    await store.register(relay(ALICE, MAIL, records=(MAIL,)), now=T0)
    await store.register(relay(BOB, MAIL), now=T0)
    id = await put_into(store, "held")
    await store.confirm(id, **ACT, now=at(9))
    assert store.state_of(id) == "delivered"


@pytest.mark.req("G-17")
async def test_a_duty_is_begun_by_one_worker_at_a_time(store: Subject) -> None:
    assert await store.begin_duty("reap", ALICE, every_seconds=10, now=T0)
    assert not await store.begin_duty("reap", BOB, every_seconds=10, now=at(9))
    assert not await store.begin_duty("reap", ALICE, every_seconds=10, now=at(9))
    assert await store.begin_duty("expire", BOB, every_seconds=10, now=at(9))


@pytest.mark.req("G-17")
async def test_a_duty_is_due_again_after_its_interval(store: Subject) -> None:
    await store.begin_duty("reap", ALICE, every_seconds=10, now=T0)
    await store.end_duty("reap", ALICE, result="0 requeued", now=at(1))
    assert not await store.begin_duty("reap", BOB, every_seconds=10, now=at(10.9))
    assert await store.begin_duty("reap", BOB, every_seconds=10, now=at(11))


@pytest.mark.req("G-17")
async def test_a_duty_whose_holder_died_is_taken_over_after_the_hold_time(store: Subject) -> None:
    hold_seconds = duty_hold_seconds(60)
    await store.begin_duty("reap", ALICE, every_seconds=60, now=T0)
    assert not await store.begin_duty("reap", BOB, every_seconds=60, now=at(hold_seconds))
    assert await store.begin_duty("reap", BOB, every_seconds=60, now=at(hold_seconds + 0.1))


@pytest.mark.req("G-17")
async def test_a_holder_that_was_replaced_cannot_end_the_duty(store: Subject) -> None:
    await store.begin_duty("reap", ALICE, every_seconds=10, now=T0)
    assert await store.begin_duty("reap", BOB, every_seconds=10, now=at(601))
    await store.end_duty("reap", ALICE, result="late", now=at(602))
    assert not await store.begin_duty("reap", ALICE, every_seconds=10, now=at(612))
    await store.end_duty("reap", BOB, result="done", now=at(612))
    assert await store.begin_duty("reap", ALICE, every_seconds=10, now=at(622))


@pytest.mark.req("G-17")
async def test_ending_a_duty_that_nobody_began_changes_nothing(store: Subject) -> None:
    await store.end_duty("reap", ALICE, result="x", now=T0)
    assert await store.begin_duty("reap", ALICE, every_seconds=10, now=T0)


def bank(worker: WorkerId, address: str | None) -> RelayInfo:
    """A relay that moves money."""
    addresses = {} if address is None else {MAIL: address}
    return replace(relay(worker), money=(MAIL,), in_doubt={MAIL: "hold"}, addresses=addresses)


async def refused(store: Subject, worker: WorkerId, address: str | None, *, now: datetime) -> str | None:
    """Why the relay may not start with that address."""
    try:
        await store.register(bank(worker, address), now=now)
    except SettingsError as error:
        return next(word for word in ("in doubt", "being sent", "another relay") if word in error.message)
    return None


@pytest.mark.req("P-05")
async def test_the_address_of_money_changes_only_when_nothing_is_open_there(store: Subject) -> None:
    await store.register(bank(ALICE, "old"), now=T0)
    assert await refused(store, BOB, "new", now=at(59)) == "another relay"
    assert await refused(store, BOB, "old", now=at(59)) is None
    await store.deregister(BOB)
    id = enqueue(store)
    attempt = await claim_one(store, now=at(60))
    assert await refused(store, BOB, "new", now=at(61)) == "being sent"
    await settle(store, parked(attempt, ParkReason.HELD), now=at(61))
    assert await refused(store, BOB, "new", now=at(61)) == "in doubt"
    assert await refused(store, BOB, None, now=at(61)) == "in doubt"
    assert await refused(store, BOB, "old", now=at(61)) is None
    await store.deregister(BOB)
    with pytest.raises(ActRefused):
        await store.confirm(id, **ACT, now=at(62))  # money takes two people
    await store.confirm(id, **{**ACT, "actor": "ben"}, now=at(62))
    assert await refused(store, BOB, "new", now=at(62)) is None
    assert await refused(store, ALICE, "old", now=at(63)) == "another relay"


@pytest.mark.req("P-05")
async def test_a_message_that_waits_in_doubt_keeps_the_address(store: Subject) -> None:
    await store.register(bank(ALICE, "old"), now=T0)
    enqueue(store)
    await settle(store, retried(await claim_one(store), in_doubt=True), now=at(1))
    assert await refused(store, BOB, "new", now=at(100)) == "in doubt"


@pytest.mark.req("P-05")
async def test_the_address_of_what_moves_no_money_may_change(store: Subject) -> None:
    await store.register(replace(bank(ALICE, "old"), money=()), now=T0)
    await crashed(store)
    await store.register(replace(bank(BOB, "new"), money=()), now=at(1))
