"""Replays: a snapshot goes out again in order, at a rate, a few first; each message at most once more (G-16)."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from redrive.answers import Terminal
from redrive.errors import ActRefused, InvalidValue, NotFound
from redrive.events import Events
from redrive.message import MessageId, Priority
from redrive.operate.desk import replays, workflow
from redrive.operate.desk.replays import NewReplay
from redrive.operate.findings import findings
from redrive.ports import ClaimRequest
from redrive.recover.engine_duties import replay as replay_duty
from redrive.store.reads.messages import show_parked
from redrive.store.reads.models import ReplayItem, ReplayView
from redrive.store.reads.status import Status
from redrive.store.reads.status import status as read_status
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who
from tests.desk.failing import ACT, dead, fail_again
from tests.desk.test_workflow import money
from tests.support import messages as m

pytestmark = pytest.mark.req("G-16")

ROOMS = [ClaimRequest(m.DESTINATION, level.level, 1000) for level in Priority]
CLASS = {"error_class": "HTTP_422"}


async def create(store: PostgresStore, *, now: datetime = m.START, **values: Any) -> ReplayView:
    given: dict[str, Any] = {
        "name": "erp",
        "filter": CLASS,
        "override": True,
        "rate_per_second": 1000.0,
        **ACT,
        **values,
    }
    return await replays.create(store, NewReplay(**given), now=now)


async def step(store: PostgresStore, seconds: float) -> int | None:
    return await store.run_replay(every_seconds=0.9, limit=1000, now=m.at(seconds))


async def items(store: PostgresStore, replay: ReplayView) -> list[ReplayItem]:
    return list((await replays.list_items(store, replay.id, limit=1000)).rows)


async def counted(store: PostgresStore, replay: ReplayView) -> Counter[str]:
    return Counter(item.outcome for item in await items(store, replay))


async def deliver(store: PostgresStore, seconds: float, *, failing: int = 0) -> list[MessageId]:
    """Everything that is due, in the order in which it is handed out; the first so many fail as before."""
    order: list[MessageId] = []
    while taken := (await store.claim(m.WORKER, ROOMS, lease_seconds=60, now=m.at(seconds))).attempts:
        for attempt in taken:
            bad = len(order) < failing
            parked = m.park(answer=Terminal("HTTP_422"), error_class="HTTP_422")
            order.append(attempt.id)
            await m.settle(store, attempt, parked if bad else m.close(), now=m.at(seconds), text="customer is unknown")
    return order


async def status(store: PostgresStore, replay: ReplayView) -> str:
    return (await replays.find(store, str(replay.id))).status


async def test_every_message_of_the_filter_is_sent_once_more_and_no_other(store: PostgresStore) -> None:
    mine = await dead(store, count=5)
    await dead(store, count=2, error_class="HTTP_403")
    replay = await create(store)
    assert await step(store, 1) == 5
    assert sorted(await deliver(store, 2)) == sorted(mine)
    assert await step(store, 3) == 5
    assert await counted(store, replay) == {"delivered": 5}
    assert await status(store, replay) == "done"
    assert await step(store, 9) is None
    attempts = await store.rows("SELECT message_id, count(*) FROM redrive.attempt WHERE verb = 'settle' GROUP BY 1", [])
    assert all(count == (2 if id_ in mine else 1) for id_, count in attempts)


async def test_the_archive_says_who_replayed_it_and_why(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    replay = await create(store)
    await step(store, 1)
    entry = (await store.history(id_))[-1]
    assert (entry.verb, entry.actor, entry.reason, entry.reference) == ("replay", "ada", ACT["reason"], str(replay.id))
    ((subject, after),) = await store.rows("SELECT subject, after FROM redrive.operator_action", [])
    assert (subject, after["messages"], after["override"]) == (f"replay {replay.id}", 1, True)


async def test_only_what_was_validated_goes_unless_that_is_overridden(store: PostgresStore) -> None:
    first, second = await dead(store, count=2)
    await store.rows("UPDATE redrive.parked SET workflow = 'validated' WHERE id = %s RETURNING 1", [first])
    plan = await replays.plan(store, NewReplay(name="x", filter=CLASS, **ACT))
    assert plan.verdicts == {"would": 1, "not_validated": 1}
    replay = await create(store, override=False)
    assert {item.message_id: item.detail for item in await items(store, replay)} == {
        first: None,
        second: "not_validated",
    }
    await step(store, 1)
    assert (await m.state_of(store, first), await m.state_of(store, second)) == ("pending", "parked·dead")


async def test_a_dry_run_counts_and_changes_nothing(store: PostgresStore) -> None:
    ids = await dead(store, count=3)
    await workflow.ignore(store, ids[:1], Who(**ACT))
    plan = await replays.plan(store, NewReplay(name="x", filter=CLASS, override=True, **ACT))
    assert (plan.verdicts, plan.money) == ({"would": 2, "ignored": 1}, False)
    assert (await replays.list_replays(store)).rows == []


async def test_the_rate_is_kept_however_late_a_step_comes(store: PostgresStore) -> None:
    await dead(store, count=40)
    await create(store, rate_per_second=2.0)
    sent = [await step(store, seconds) for seconds in (0, 1, 2, 3.5, 100, 101)]
    assert sent == [2, 2, 2, 3, 4, 2], "after a pause of the duty at most two seconds' worth"


async def test_a_slow_rate_sends_less_than_one_a_step(store: PostgresStore) -> None:
    await dead(store, count=3)
    await create(store, rate_per_second=0.5)
    assert [await step(store, seconds) for seconds in (0, 1, 2, 3, 4)] == [0, 1, 0, 1, 0]


async def test_a_step_comes_no_more_often_than_it_should(store: PostgresStore) -> None:
    await dead(store, count=3)
    await create(store, rate_per_second=1.0)
    assert await step(store, 1) == 1
    assert await step(store, 1.5) is None


async def test_the_rest_goes_only_when_the_first_few_have_arrived(store: PostgresStore) -> None:
    await dead(store, count=10)
    replay = await create(store, canary=3)
    assert await step(store, 1) == 3
    assert await step(store, 2) == 0, "they are still under way"
    assert len(await deliver(store, 3)) == 3
    assert await step(store, 4) == 3 + 7
    await deliver(store, 5)
    await step(store, 6)
    assert (await status(store, replay), await counted(store, replay)) == ("done", {"delivered": 10})


async def test_one_failure_among_the_first_few_stops_it(store: PostgresStore) -> None:
    await dead(store, count=10)
    replay = await create(store, canary=3)
    await step(store, 1)
    await deliver(store, 2, failing=1)
    await step(store, 3)
    found = await replays.find(store, str(replay.id))
    assert (found.status, found.stop_reason, found.waiting) == ("stopped", "1 of 3 failed", 7)
    assert await step(store, 4) == 0
    acts = await store.rows("SELECT act, actor FROM redrive.operator_action ORDER BY id", [])
    assert acts[-1] == ("stop_replay", "redrive")


@pytest.mark.parametrize(("failing", "stopped"), [(2, False), (3, True)])
async def test_it_stops_when_too_large_a_part_fails(store: PostgresStore, failing: int, stopped: bool) -> None:
    await dead(store, count=30)
    replay = await create(store, rate_per_second=10.0, failure_ratio_max=0.2)
    await step(store, 1)
    await deliver(store, 1.5, failing=failing)
    await step(store, 2)
    assert (await status(store, replay) == "stopped") == stopped
    if stopped:
        await replays.steer(store, str(replay.id), "resume", **ACT, now=m.at(3))
        assert await step(store, 4) == 10, "what failed before it was resumed does not count again"


async def test_a_message_that_fails_as_before_is_dead_again_and_escalated(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    replay = await create(store)
    await step(store, 1)
    await fail_again(store, now=m.at(2))
    await step(store, 3)
    record = await show_parked(store, id_)
    assert record is not None
    assert (record.workflow, record.escalated) == ("open", True)
    assert [(item.outcome, item.detail) for item in await items(store, replay)] == [("dead", "same_class")]
    assert (await replays.find(store, "erp")).same_class == 1


async def test_a_message_that_fails_otherwise_is_not_escalated(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    replay = await create(store)
    await step(store, 1)
    await fail_again(store, now=m.at(2), error_class="HTTP_403")
    await step(store, 3)
    record = await show_parked(store, id_)
    assert record is not None
    assert not record.escalated
    assert [(item.outcome, item.detail) for item in await items(store, replay)] == [("dead", "HTTP_403")]


async def test_paused_sends_nothing_resumed_goes_on_cancelled_leaves_the_rest(store: PostgresStore) -> None:
    await dead(store, count=9)
    replay = await create(store, rate_per_second=3.0)
    await step(store, 0)
    await replays.steer(store, "erp", "pause", **ACT, now=m.at(1))
    assert len(await deliver(store, 2)) == 3
    assert await step(store, 3) == 3, "what was under way is judged"
    await replays.steer(store, "erp", "resume", **ACT, now=m.at(4))
    assert await step(store, 5) == 3
    await replays.steer(store, "erp", "cancel", **ACT, now=m.at(6))
    assert await counted(store, replay) == {"delivered": 3, "requeued": 3, "skipped": 3}
    await deliver(store, 7)
    await step(store, 8)
    found = await replays.find(store, "erp")
    assert (found.status, found.delivered, found.skipped, found.finished_at) == ("cancelled", 6, 3, m.at(8))
    assert (await store.rows("SELECT count(*) FROM redrive.parked", [])) == [(3,)]
    for act in ("pause", "resume", "cancel", "approve"):
        with pytest.raises(ActRefused, match="is cancelled"):
            await replays.steer(store, "erp", act, **ACT)


async def test_the_same_request_twice_is_one_replay(store: PostgresStore) -> None:
    await dead(store, count=2)
    first = await create(store, request_key="r-1")
    assert (await create(store, request_key="r-1")).id == first.id
    with pytest.raises(ActRefused, match="another filter"):
        await create(store, request_key="r-1", filter={"destination": m.DESTINATION})
    assert len((await replays.list_replays(store)).rows) == 1


async def test_a_message_is_in_one_unfinished_replay_at_a_time(store: PostgresStore) -> None:
    await dead(store, count=2)
    await create(store)
    with pytest.raises(ActRefused, match="Nothing that matches"):
        await create(store)
    plan = await replays.plan(store, NewReplay(name="x", filter=CLASS, override=True, **ACT))
    assert plan.verdicts == {"in_another_replay": 2}


async def test_what_has_left_the_dead_or_was_changed_is_skipped_with_the_reason(store: PostgresStore) -> None:
    discarded, requeued, changed, kept = await dead(store, count=4)
    replay = await create(store)
    await store.discard(discarded, **ACT)
    await store.requeue(requeued, **ACT, now=m.START)
    await workflow.ignore(store, [changed], Who(**ACT))
    await step(store, 1)
    found = {item.message_id: (item.outcome, item.detail) for item in await items(store, replay)}
    assert found == {
        discarded: ("skipped", "discarded"),
        requeued: ("skipped", "pending"),
        changed: ("skipped", "changed"),
        kept: ("requeued", None),
    }


async def test_messages_of_one_key_go_in_their_order(store: PostgresStore) -> None:
    ids = []
    for number in range(6):
        ids += await dead(store, order_by=f"customer:{number % 2}", park={"halts": False}, now=m.at(number))
    replay = await create(store, rate_per_second=1.0, out_of_order=True)
    order: list[MessageId] = []
    for seconds in range(10, 24):
        await step(store, seconds)
        order += await deliver(store, seconds)
    assert await status(store, replay) == "done"
    for key in (0, 1):
        assert [id_ for id_ in order if id_ in ids[key::2]] == ids[key::2]


async def test_a_key_that_went_on_is_left_alone_unless_that_is_meant(store: PostgresStore) -> None:
    first = (await dead(store, order_by="customer:7", park={"halts": False}))[0]
    await m.enqueue(store, order_by="customer:7")
    await deliver(store, 1)
    with pytest.raises(ActRefused, match="Nothing that matches"):
        await create(store)
    plan = await replays.plan(store, NewReplay(name="x", filter=CLASS, override=True, **ACT))
    assert plan.verdicts == {"moved_on": 1}
    await create(store, out_of_order=True)
    await step(store, 2)
    assert await m.state_of(store, first) == "pending"


async def test_a_key_that_goes_on_after_the_snapshot_is_noticed_at_the_send(store: PostgresStore) -> None:
    first = (await dead(store, order_by="customer:7", park={"halts": False}))[0]
    replay = await create(store)
    await m.enqueue(store, order_by="customer:7")
    await deliver(store, 1)
    await step(store, 2)
    assert [(item.outcome, item.detail) for item in await items(store, replay)] == [("skipped", "moved_on")]
    assert await m.state_of(store, first) == "parked·dead"


async def test_a_halted_key_goes_on_behind_its_replayed_head(store: PostgresStore) -> None:
    head = (await dead(store, order_by="customer:7"))[0]
    behind = await m.enqueue(store, order_by="customer:7")
    await create(store)
    await step(store, 1)
    assert await deliver(store, 2) == [head, behind]


async def test_a_replay_starts_at_the_failed_stage_or_where_it_is_told(store: PostgresStore) -> None:
    for stage, expected in ((None, "second"), ("first", "first")):
        (id_,) = await dead(store)
        await store.rows("UPDATE redrive.parked SET stage = 'second' WHERE id = %s RETURNING 1", [id_])
        await create(store, stage=stage)
        await step(store, 1)
        taken = await m.claim(store, now=m.at(2))
        assert (taken.stage, taken.spent) == (expected, 0)
        await m.settle(store, taken, m.close(), now=m.at(2))
        await step(store, 3)


async def test_money_waits_for_a_second_person(store: PostgresStore) -> None:
    await money(store)
    (id_,) = await dead(store)
    replay = await create(store)
    assert (replay.status, await step(store, 1)) == ("waiting", None)
    with pytest.raises(ActRefused, match="second person"):
        await replays.steer(store, "erp", "approve", **ACT)
    with pytest.raises(ActRefused, match="is waiting"):
        await replays.steer(store, "erp", "resume", actor="grace", reason="x")
    approved = await replays.steer(store, "erp", "approve", actor="grace", reason="checked", now=m.at(2))
    assert (approved.status, approved.approved_by) == ("running", "grace")
    await step(store, 3)
    assert await m.state_of(store, id_) == "pending"


async def test_status_names_the_replays_that_need_a_person(store: PostgresStore) -> None:
    await dead(store, count=10)
    stopped = await create(store, canary=3, name="stopped")
    await step(store, 1)
    await deliver(store, 2, failing=1)
    await step(store, 3)
    assert _found(await read_status(store)) == [("replay_stopped", "stopped")]
    await replays.steer(store, str(stopped.id), "cancel", **ACT)
    await money(store)
    await create(store, name="waiting")
    assert _found(await read_status(store)) == [("replay_waiting", "waiting")]


def _found(status: Status) -> list[tuple[str, str]]:
    return [(found.code, found.subject) for found in findings(status) if found.code.startswith("replay")]


async def test_verify_closes_what_arrived_and_nothing_else(store: PostgresStore) -> None:
    arrived, open_one = await dead(store, count=2)
    never = (await dead(store, error_class="HTTP_403"))[0]
    replay = await create(store)
    await step(store, 1)
    taken = {attempt.id: attempt for attempt in (await m.claim_all(store, now=m.at(2))).attempts}
    await m.settle(store, taken[arrived], m.close(), now=m.at(2))
    who = Who(actor="grace", reason="seen in the ERP")
    results = await workflow.verify(store, [arrived, open_one, never], who)
    assert [result.outcome.value for result in results] == ["done", "refused", "refused"]
    (again,) = await workflow.verify(store, [arrived], who)
    assert again.detail == "it is verified already"
    await step(store, 3)
    assert (await replays.find(store, str(replay.id))).verified == 1


async def test_no_more_than_so_many_are_under_way(store: PostgresStore) -> None:
    await dead(store, count=8)
    await create(store)
    assert await store.run_replay(every_seconds=0.9, limit=5, now=m.at(1)) == 5
    assert await store.run_replay(every_seconds=0.9, limit=5, now=m.at(2)) == 0
    await deliver(store, 3)
    assert await store.run_replay(every_seconds=0.9, limit=5, now=m.at(4)) == 5 + 3


async def test_a_step_that_is_not_committed_has_not_happened(store: PostgresStore) -> None:
    """Whoever dies in the middle of a step: an item is marked in the transaction that moves its message."""
    await dead(store, count=2)
    replay = await create(store)
    async with store.connection() as conn, conn.transaction(force_rollback=True):
        await conn.execute("SELECT redrive.run_replay_1(0.9, 100, %s)", [m.at(1)])
    assert await counted(store, replay) == {"waiting": 2}
    assert await step(store, 2) == 2
    assert await m.conserved(store)


async def test_two_relays_at_once_do_not_send_twice(store: PostgresStore) -> None:
    await dead(store, count=4)
    await create(store)
    async with store.connection() as conn, conn.transaction():
        await conn.execute("SELECT redrive.run_replay_1(0.9, 100, %s)", [m.at(1)])
        assert await step(store, 1) is None, "somebody else is at it"
    assert len(await deliver(store, 2)) == 4


async def test_the_duty_does_a_step_of_every_replay(store: PostgresStore) -> None:
    for number in range(3):
        await dead(store, error_class=f"CODE_{number}")
        await create(store, filter={"error_class": f"CODE_{number}"}, now=await store.now())
    assert await replay_duty(store, events=Events()) == "3 of 3 replays"
    assert await replay_duty(store, events=Events()) == "0 of 0 replays"


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    "values",
    [
        {"filter": {}},
        {"filter": {"destination": ""}},
        {"filter": {"everything": "yes"}},
        {"rate_per_second": 0.0},
        {"rate_per_second": 10_001.0},
        {"canary": -1},
        {"canary": 1001},
        {"failure_ratio_max": 1.1},
        {"name": ""},
        {"name": "x" * 101},
        {"request_key": ""},
    ],
    ids=str,
)
async def test_a_replay_out_of_bounds_is_refused_at_the_call(store: PostgresStore, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        await create(store, **values)


@pytest.mark.req("G-19")
async def test_sql_refuses_a_replay_of_everything_too(store: PostgresStore) -> None:
    with pytest.raises(Exception, match="needs a filter"):
        await store.rows("SELECT * FROM redrive.plan_replay_1('{}', false, true, 10)", [])


async def test_a_replay_that_is_not_there_is_not_found(store: PostgresStore) -> None:
    with pytest.raises(NotFound):
        await replays.find(store, "nothing")
    with pytest.raises(NotFound):
        await replays.steer(store, str(m.SOME_ID), "pause", **ACT)
