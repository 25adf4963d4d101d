"""The way of a dead letter: each step needs the one before, is audited, and leaves nothing half done (G-16)."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import pytest

import redrive
from redrive.answers import Absent, CannotTell, Found, LookupAnswer, Terminal
from redrive.errors import ActRefused, InvalidValue
from redrive.events import Events
from redrive.message import Attempt, MessageId, ParkReason, token
from redrive.operate.actions.results import ActResult, Outcome
from redrive.operate.desk import workflow
from redrive.operate.desk.causes import Cause
from redrive.operate.desk.workflow import EVIDENCE
from redrive.relay.dispatching.requests import Requests
from redrive.store.reads.desk import latest_requests
from redrive.store.reads.messages import show_parked
from redrive.store.reads.models import ParkedFilter, ParkedRecord
from redrive.store.runtime import desk
from redrive.store.runtime.postgres import PostgresStore
from redrive.testing import ManualClock
from redrive.transports.functions import FunctionTransport
from redrive.who import Who
from tests.desk.failing import ACT, dead, fail_again
from tests.support import messages as m

pytestmark = pytest.mark.req("G-16")

ADA = Who(**ACT)


@dataclass
class Order:
    order: int


PATCH = [{"op": "add", "path": "/currency", "value": "EUR"}]


async def record(store: PostgresStore, id_: MessageId) -> ParkedRecord:
    found = await show_parked(store, id_)
    assert found is not None
    return found


async def step_of(store: PostgresStore, id_: MessageId) -> str:
    return (await record(store, id_)).workflow


def outcomes(results: list[ActResult]) -> list[str]:
    return [result.outcome.value for result in results]


def relay(store: PostgresStore, **options: Any) -> Requests:
    app = redrive.App()
    app.destination(m.DESTINATION, **options)(lambda _: None)
    return Requests(store, app.destinations, m.WORKER, clock=ManualClock(), random=Random(1), events=Events())


async def remediated(store: PostgresStore, count: int = 1, **values: Any) -> list[MessageId]:
    ids = await dead(store, count=count, **values)
    await workflow.triage(store, ids, Cause.TRANSIENT, ADA)
    await workflow.remediate(store, ids, ADA, evidence="it is up again")
    return ids


async def validated_by(store: PostgresStore, ids: list[MessageId], **options: Any) -> list[ActResult]:
    """Ask, and let a relay with these options of its destination answer."""
    asking = asyncio.create_task(workflow.validate(store, ids, ADA, seconds=20))
    answering = relay(store, **options)
    while not asking.done():
        await answering.run_once()
        await asyncio.sleep(0.01)
    return await asking


async def test_a_validation_that_finds_no_free_thread_is_answered_and_the_relay_goes_on(store: PostgresStore) -> None:
    """All threads of the destination are in use for longer than its timeout: `validate` has not begun."""
    free = threading.Event()
    app = redrive.App()
    app.destination(m.DESTINATION, concurrency=1, timeout_seconds=0.05, validate=lambda _: None)(lambda _: None)
    transport = cast("FunctionTransport", app.destinations[m.DESTINATION].transport)
    for _ in range(transport._threads._max_workers):
        transport._threads.submit(free.wait)
    answering = Requests(store, app.destinations, m.WORKER, clock=ManualClock(), random=Random(1), events=Events())
    ids = await remediated(store)
    try:
        asking = asyncio.create_task(workflow.validate(store, ids, ADA, seconds=20))
        while not asking.done():
            await answering.run_once()
    finally:
        free.set()
    assert outcomes(await asking) == ["refused"]
    assert await step_of(store, ids[0]) == "remediated"
    ((code,),) = await store.rows("SELECT answer ->> 'code' FROM redrive.request", [])
    assert code == "VALIDATE_BUSY"


async def test_a_letter_goes_from_open_to_validated_step_by_step(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    assert await step_of(store, id_) == "open"
    await workflow.triage(store, [id_], Cause.TRANSIENT, ADA, owner="grace")
    assert await step_of(store, id_) == "triaged"
    await workflow.remediate(store, [id_], ADA, evidence="erp is up since 14:02")
    assert await step_of(store, id_) == "remediated"
    (result,) = await validated_by(store, [id_])
    found = await record(store, id_)
    assert (result.outcome, found.workflow, found.cause, found.owner) == (
        Outcome.DONE,
        "validated",
        "transient",
        "grace",
    )
    acts = await store.rows("SELECT act, actor, before ->> 'workflow' FROM redrive.operator_action ORDER BY id", [])
    assert acts == [("triage", "ada", "open"), ("remediate", "ada", "triaged"), ("validate", "ada", "remediated")]


async def test_no_step_can_be_left_out(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    assert outcomes(await workflow.remediate(store, [id_], ADA, evidence="x")) == ["refused"]
    assert outcomes(await workflow.edit(store, [id_], PATCH, ADA)) == ["refused"]
    assert outcomes(await workflow.validate(store, [id_], ADA, seconds=0)) == ["refused"]
    await workflow.triage(store, [id_], Cause.DATA, ADA)
    assert outcomes(await workflow.validate(store, [id_], ADA, seconds=0)) == ["refused"]
    assert outcomes(await workflow.verify(store, [id_], ADA)) == ["refused"]
    assert await step_of(store, id_) == "triaged"


@pytest.mark.parametrize(
    ("cause", "given", "enough"),
    [
        (Cause.TRANSIENT, {"evidence": "up again"}, True),
        (Cause.TRANSIENT, {"ticket": "INC-7"}, False),
        (Cause.AUTH_CONFIG, {"evidence": "key rotated"}, True),
        (Cause.AUTH_CONFIG, {"ticket": "INC-7"}, False),
        (Cause.CODE_DEFECT, {"evidence": "release 2.4"}, True),
        (Cause.CODE_DEFECT, {"ticket": "INC-7"}, False),
        (Cause.DATA, {"ticket": "INC-7"}, True),
        (Cause.DATA, {"evidence": "seems fine"}, False),
        (Cause.DATA, {"patch": PATCH}, True),
        (Cause.TRANSIENT, {"patch": PATCH}, False),
    ],
    ids=str,
)
async def test_validation_is_refused_without_the_evidence_of_the_cause(
    store: PostgresStore, cause: Cause, given: dict[str, Any], enough: bool
) -> None:
    assert set(EVIDENCE) == set(Cause)
    (id_,) = await dead(store)
    await workflow.triage(store, [id_], cause, ADA)
    if "patch" in given:
        await workflow.edit(store, [id_], given["patch"], ADA)
    else:
        await workflow.remediate(store, [id_], ADA, **given)
    (asked,) = await desk.validate(store, [id_], **ACT)
    assert asked.result == ("asked" if enough else "no_evidence")


async def test_only_dead_letters_have_a_workflow(store: PostgresStore) -> None:
    (held,) = await dead(store, reason=ParkReason.HELD)
    pending = await m.enqueue(store)
    nobody = m.SOME_ID
    results = await workflow.triage(store, [held, pending, nobody], Cause.DATA, ADA)
    assert outcomes(results) == ["refused", "refused", "not_found"]


async def test_an_edit_is_a_new_version_beside_the_old_one(store: PostgresStore) -> None:
    (id_,) = await dead(store, body=b'{"amount":12.5,"to":"x"}')
    await workflow.triage(store, [id_], Cause.DATA, ADA)
    assert outcomes(await workflow.edit(store, [id_], PATCH, ADA)) == ["done"]
    bodies = await store.rows("SELECT version, bytes, created_by FROM redrive.body", [])
    assert bodies == [(2, b'{"amount":12.5,"currency":"EUR","to":"x"}', "ada")]
    assert (await store.rows("SELECT body FROM redrive.message", [])) == [(b'{"amount":12.5,"to":"x"}',)]
    await store.requeue(id_, **ACT, now=m.START)
    taken = await m.claim(store)
    assert (taken.version, json.loads(taken.body)["currency"], taken.token) == (2, "EUR", token(id_, 2, "first"))
    assert taken.token != str(id_)


async def test_the_audit_of_an_edit_has_places_and_checksums_and_no_data(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    await workflow.triage(store, [id_], Cause.DATA, ADA)
    await workflow.edit(store, [id_], [{"op": "add", "path": "/card", "value": "4111-secret"}], ADA)
    rows = await store.rows("SELECT row_to_json(o)::text FROM redrive.operator_action o", [])
    text = " ".join(row[0] for row in rows)
    assert "add /card" in text
    assert "sha256" in text
    assert "4111-secret" not in text


async def test_a_letter_in_doubt_keeps_its_payload(store: PostgresStore) -> None:
    """Ruling 15: an earlier version may have had its effect."""
    (id_,) = await dead(store, park={"in_doubt": True})
    await workflow.triage(store, [id_], Cause.DATA, ADA)
    (result,) = await workflow.edit(store, [id_], PATCH, ADA)
    assert (result.outcome, "may have had an effect" in result.detail) == (Outcome.REFUSED, True)


async def test_two_who_edit_at_once_do_not_overwrite_each_other(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    await workflow.triage(store, [id_], Cause.DATA, ADA)
    seen = (await record(store, id_)).row_version
    values: dict[str, Any] = {"row_version": seen, "content_type": "application/json", "paths": [], **ACT}
    assert await desk.edit(store, id_, body=b"1", **values) == "done"
    assert await desk.edit(store, id_, body=b"2", **values) == "changed"
    assert (await record(store, id_)).version == 2


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        (b'{"amount":0.12345678901234567890}', "application/json", "round"),
        (b"\x00\x01", "application/octet-stream", "only JSON"),
        (b'{"currency":"USD"}', "application/json", "nothing at"),
    ],
)
def test_a_payload_that_a_patch_would_spoil_is_refused(body: bytes, content_type: str, words: str) -> None:
    patch = [{"op": "test", "path": "/missing", "value": 1}]
    with pytest.raises(InvalidValue, match=words):
        workflow.patched(body, content_type, patch)


async def test_whatever_is_changed_has_to_be_validated_again(store: PostgresStore) -> None:
    (id_,) = await remediated(store)
    await validated_by(store, [id_])
    assert await step_of(store, id_) == "validated"
    await workflow.edit(store, [id_], PATCH, ADA)
    assert await step_of(store, id_) == "remediated"


async def test_validation_runs_the_destinations_own_code_in_a_relay_and_sends_nothing(store: PostgresStore) -> None:
    good, bad = await remediated(store, 2)
    seen: list[Attempt] = []

    def check(attempt: Attempt) -> None:
        seen.append(attempt)
        if attempt.id == bad:
            raise Terminal("SCHEMA_INVALID", "currency is missing")

    results = {result.id: result for result in await validated_by(store, [good, bad], validate=check)}
    assert results[good].outcome is Outcome.DONE
    assert results[bad].detail == "not valid (SCHEMA_INVALID: currency is missing)"
    assert (await step_of(store, good), await step_of(store, bad)) == ("validated", "remediated")
    assert {attempt.payload["order"] for attempt in seen} == {1}
    assert len(await store.history(good)) == 1


async def test_a_payload_that_its_schema_refuses_is_not_valid(store: PostgresStore) -> None:
    good, bad = (await remediated(store))[0], (await remediated(store, body=b'{"order":"x"}'))[0]
    results = {result.id: result for result in await validated_by(store, [good, bad], schema=Order)}
    assert (results[good].outcome, results[bad].outcome) == (Outcome.DONE, Outcome.REFUSED)
    assert await step_of(store, bad) == "remediated"


@pytest.mark.parametrize(
    ("answer", "step"), [(Absent(), "validated"), (Found(), "remediated"), (CannotTell("BUSY"), "remediated")]
)
async def test_what_is_in_doubt_is_looked_up_before_it_is_valid(
    store: PostgresStore, answer: LookupAnswer, step: str
) -> None:
    (id_,) = await remediated(store, park={"in_doubt": True})
    await validated_by(store, [id_], lookup=lambda _: answer)
    assert await step_of(store, id_) == step


async def test_an_answer_about_what_was_changed_meanwhile_counts_for_nothing(store: PostgresStore) -> None:
    (id_,) = await remediated(store)
    await desk.validate(store, [id_], **ACT)
    (asked,) = await store.take_requests(m.WORKER, [m.DESTINATION], limit=10, hold_seconds=60)
    await workflow.edit(store, [id_], PATCH, ADA)
    assert await store.answer_request(m.WORKER, asked.id, {"valid": True})
    assert await step_of(store, id_) == "remediated"
    assert (await latest_requests(store, [id_]))[id_].answer == {"valid": False, "code": "CHANGED"}


async def test_a_request_that_takes_relays_down_is_not_given_to_a_third(store: PostgresStore) -> None:
    (id_,) = await remediated(store)
    await desk.validate(store, [id_], **ACT, now=m.START)
    taken = [
        len(await store.take_requests(m.WORKER, [m.DESTINATION], limit=10, hold_seconds=60, now=m.at(seconds)))
        for seconds in (0, 30, 61, 122, 183)
    ]
    assert taken == [1, 0, 1, 0, 0]
    assert (await latest_requests(store, [id_]))[id_].answer == {"valid": False, "code": "CRASHED"}
    assert await step_of(store, id_) == "remediated"


async def test_a_late_answer_of_a_relay_that_lost_its_request_is_refused(store: PostgresStore) -> None:
    (id_,) = await remediated(store)
    await desk.validate(store, [id_], **ACT, now=m.START)
    (first,) = await store.take_requests(m.WORKER, [m.DESTINATION], limit=10, hold_seconds=60, now=m.START)
    await store.take_requests(m.OTHER_WORKER, [m.DESTINATION], limit=10, hold_seconds=60, now=m.at(61))
    assert not await store.answer_request(m.WORKER, first.id, {"valid": True})
    assert await store.answer_request(m.OTHER_WORKER, first.id, {"valid": False, "code": "NO"})
    assert await step_of(store, id_) == "remediated"


async def test_a_relay_takes_no_request_of_another_destination(store: PostgresStore) -> None:
    (id_,) = await remediated(store)
    await desk.validate(store, [id_], **ACT)
    assert await store.take_requests(m.WORKER, ["other"], limit=10, hold_seconds=60) == []


async def test_what_nobody_answers_is_said_to_be_open(store: PostgresStore) -> None:
    (id_,) = await remediated(store)
    (result,) = await workflow.validate(store, [id_], ADA, seconds=0)
    assert (result.outcome, result.detail) == (Outcome.REFUSED, "asked; no relay has answered yet")


async def test_an_ignored_letter_stays_where_it_is_until_it_is_triaged(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    assert outcomes(await workflow.ignore(store, [id_], ADA)) == ["done"]
    assert outcomes(await workflow.ignore(store, [id_], ADA)) == ["refused"]
    await workflow.triage(store, [id_], Cause.DATA, ADA)
    assert await step_of(store, id_) == "triaged"


async def test_a_step_by_filter_takes_all_that_match(store: PostgresStore) -> None:
    mine = await dead(store, count=3)
    await dead(store, error_class="HTTP_403")
    found = await workflow.select(store, ParkedFilter(reason=ParkReason.DEAD, error_class="HTTP_422"))
    assert sorted(found) == sorted(mine)
    group = bytes.fromhex((await record(store, mine[0])).failure_group or "")
    assert len(await workflow.select(store, ParkedFilter(reason=ParkReason.DEAD, failure_group=group))) == 3


@pytest.mark.req("G-19")
async def test_a_step_without_actor_reason_or_message_is_refused_at_the_call(store: PostgresStore) -> None:
    with pytest.raises(InvalidValue):
        Who(actor=" ", reason="x")
    with pytest.raises(InvalidValue):
        Who(actor="ada", reason="")
    with pytest.raises(InvalidValue):
        await workflow.triage(store, [], Cause.DATA, ADA)
    with pytest.raises(InvalidValue):
        await workflow.remediate(store, [m.SOME_ID], ADA)


@pytest.mark.parametrize(
    ("act", "reason", "state"),
    [
        ("requeue", ParkReason.DEAD, "pending"),
        ("deny", ParkReason.HELD, "pending"),
        ("discard", ParkReason.DEAD, "discarded"),
        ("discard", ParkReason.HELD, "discarded"),
    ],
)
async def test_sending_money_again_or_giving_it_up_takes_two_people(
    store: PostgresStore, act: str, reason: ParkReason, state: str
) -> None:
    """I25: two distinct principals."""
    await money(store)
    (id_,) = await dead(store, reason=reason)
    for _ in range(2):
        with pytest.raises(ActRefused, match="second person"):
            await getattr(store, act)(id_, actor="ada", reason="looked into it", now=m.START)
    assert await m.state_of(store, id_) == f"parked·{reason.value}"
    await getattr(store, act)(id_, actor="grace", reason="so did I", now=m.at(5))
    assert await m.state_of(store, id_) == state
    acts = await store.rows("SELECT act, actor FROM redrive.operator_action ORDER BY id", [])
    assert acts == [("propose", "ada"), ("propose", "ada"), (act, "grace")]


async def test_what_one_person_asked_for_is_forgotten_after_a_day(store: PostgresStore) -> None:
    await money(store)
    (id_,) = await dead(store)
    for actor, seconds in (("ada", 0), ("grace", 86_401), ("grace", 86_402)):
        with pytest.raises(ActRefused, match="second person"):
            await store.requeue(id_, actor=actor, reason="x", now=m.at(seconds))
    await store.requeue(id_, actor="ada", reason="x", now=m.at(86_403))


async def test_a_second_person_for_one_act_is_none_for_another(store: PostgresStore) -> None:
    await money(store)
    first, second = await dead(store, count=2)
    with pytest.raises(ActRefused):
        await store.requeue(first, actor="ada", reason="x")
    with pytest.raises(ActRefused):
        await store.requeue(second, actor="grace", reason="x")


async def money(store: PostgresStore) -> None:
    await store.rows("INSERT INTO redrive.destination (name, money) VALUES (%s, true) RETURNING 1", [m.DESTINATION])


async def test_what_was_discarded_can_be_copied_under_a_new_key(store: PostgresStore) -> None:
    (id_,) = await dead(store, key="order:1", order_by="customer:7", headers={"x-a": "b"})
    await workflow.triage(store, [id_], Cause.DATA, ADA)
    await workflow.edit(store, [id_], PATCH, ADA)
    with pytest.raises(ActRefused, match="is dead"):
        await workflow.copy(store, id_, "order:1:again", ADA)
    await store.discard(id_, **ACT)
    copied = await workflow.copy(store, id_, "order:1:again", ADA)
    assert await workflow.copy(store, id_, "order:1:again", ADA) == copied
    assert (await m.state_of(store, id_), await m.state_of(store, copied)) == ("discarded", "pending")
    taken = await m.claim(store, now=await store.now())
    assert (taken.id, taken.key, taken.order_by, taken.headers) == (copied, "order:1:again", "customer:7", {"x-a": "b"})
    assert (taken.version, taken.payload, taken.sequence) == (1, {"order": 1, "currency": "EUR"}, 2)
    acts = await store.rows("SELECT act, subject FROM redrive.operator_action ORDER BY id DESC LIMIT 1", [])
    assert acts == [("copy", str(id_))]


async def test_a_copy_needs_a_key_that_is_nobodys_and_for_money_a_second_person(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    await m.enqueue(store, key="taken", body=b'{"order":2}')
    await store.discard(id_, **ACT)
    with pytest.raises(ActRefused, match="another message"):
        await workflow.copy(store, id_, "taken", ADA)
    with pytest.raises(InvalidValue):
        await workflow.copy(store, id_, "", ADA)
    await money(store)
    with pytest.raises(ActRefused, match="second person"):
        await workflow.copy(store, id_, "new", ADA)
    await workflow.copy(store, id_, "new", Who(actor="grace", reason="so do I"))


async def test_a_letter_that_fails_again_begins_anew(store: PostgresStore) -> None:
    (id_,) = await remediated(store)
    await store.requeue(id_, **ACT, now=m.START)
    await fail_again(store)
    found = await record(store, id_)
    assert (found.workflow, found.cause, found.edited) == ("open", None, False)
