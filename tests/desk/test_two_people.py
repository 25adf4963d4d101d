"""Two people approve the same thing: what a proposal is bound to, and who may be the second."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest

from redrive.errors import ActRefused, ApproverNeeded
from redrive.message import MessageId, ParkReason
from redrive.operate import operations
from redrive.operate.actions import messages
from redrive.operate.actions.messages import Request
from redrive.operate.actions.model import Noun
from redrive.operate.actions.results import Outcome
from redrive.operate.actions.table import find
from redrive.operate.desk import replays, workflow
from redrive.operate.desk.causes import Cause
from redrive.store.runtime import desk
from redrive.store.runtime.postgres import PostgresStore
from redrive.store.runtime.tenant_store import TenantStore
from redrive.who import Who
from tests.desk.failing import dead, fail_again
from tests.support import messages as m

pytestmark = pytest.mark.req("P-12")

ADA = Who(actor="ada", reason="looked into it")
GRACE = Who(actor="grace", reason="so did I")
PATCH = [{"op": "add", "path": "/iban", "value": "DE02"}]
OTHER_PATCH = [{"op": "add", "path": "/iban", "value": "DE99"}]


@pytest.fixture(autouse=True)
async def _money(store: PostgresStore) -> None:
    await store.rows("INSERT INTO redrive.destination (name, money) VALUES (%s, true) RETURNING 1", [m.DESTINATION])


def as_role(store: PostgresStore, role: str) -> TenantStore:
    return TenantStore(store, role=role, tenant="*")


async def triaged(store: PostgresStore) -> MessageId:
    (id_,) = await dead(store)
    await workflow.triage(store, [id_], Cause.DATA, ADA)
    return id_


async def edited(store: PostgresStore, id_: MessageId, patch: Any, who: Who) -> str:
    (result,) = await workflow.edit(store, [id_], patch, who)
    return result.detail if result.outcome is Outcome.REFUSED else result.outcome.value


async def body(store: PostgresStore, id_: MessageId) -> Any:
    (found,) = await store.rows(
        "SELECT coalesce((SELECT b.bytes FROM redrive.body b WHERE b.message_id = m.id ORDER BY version DESC LIMIT 1),"
        " m.body) FROM redrive.message m WHERE m.id = %s",
        [id_],
    )
    return json.loads(bytes(found[0]))


# an edit


async def test_an_edit_of_what_moves_money_is_proposed_and_the_same_bytes_are_approved(store: PostgresStore) -> None:
    id_ = await triaged(store)
    assert "second person" in await edited(store, id_, PATCH, ADA)
    assert "second person" in await edited(store, id_, PATCH, ADA)
    assert await body(store, id_) == {"order": 1}
    before, proposed = await workflow.proposal(store, id_)
    assert (json.loads(before), json.loads(proposed.body)) == ({"order": 1}, {"order": 1, "iban": "DE02"})
    assert (proposed.asked_by, proposed.reason, list(proposed.paths)) == ("ada", "looked into it", ["add /iban"])
    result = await workflow.approve(store, id_, proposed, GRACE)
    assert result.outcome is Outcome.DONE
    assert await body(store, id_) == {"order": 1, "iban": "DE02"}
    assert await store.rows("SELECT count(*) FROM redrive.proposal", []) == [(0,)]
    acts = await store.rows(
        "SELECT act, actor, after ->> 'sha256' FROM redrive.operator_action ORDER BY id DESC LIMIT 3", []
    )
    assert [(act, actor) for act, actor, _ in acts] == [("edit", "grace"), ("propose", "ada"), ("propose", "ada")]
    assert {sha256 for *_, sha256 in acts} == {proposed.sha256}


async def test_a_second_person_who_edits_otherwise_is_the_first(store: PostgresStore) -> None:
    id_ = await triaged(store)
    assert "second person" in await edited(store, id_, PATCH, ADA)
    assert "second person" in await edited(store, id_, OTHER_PATCH, GRACE)
    assert "second person" in await edited(store, id_, PATCH, ADA)
    assert await edited(store, id_, PATCH, GRACE) == "done"
    assert await body(store, id_) == {"order": 1, "iban": "DE02"}


async def test_what_was_proposed_for_one_version_is_none_for_the_next(store: PostgresStore) -> None:
    """One proposes a requeue, the other changes the account and requeues as the second: that is another thing."""
    id_ = await triaged(store)
    with pytest.raises(ActRefused, match="second person"):
        await store.requeue(id_, actor="ada", reason="x")
    assert "second person" in await edited(store, id_, PATCH, GRACE)
    await workflow.approve(store, id_, (await workflow.proposal(store, id_))[1], ADA)
    with pytest.raises(ActRefused, match="second person"):
        await store.requeue(id_, actor="grace", reason="x")
    assert await m.state_of(store, id_) == "parked·dead"


@pytest.mark.parametrize("change", ["triage", "remediate", "ignore"])
async def test_any_step_of_the_desk_voids_what_was_proposed(store: PostgresStore, change: str) -> None:
    id_ = await triaged(store)
    with pytest.raises(ActRefused, match="second person"):
        await store.discard(id_, actor="ada", reason="x")
    if change == "triage":
        await workflow.triage(store, [id_], Cause.TRANSIENT, GRACE)
    elif change == "remediate":
        await workflow.remediate(store, [id_], GRACE, evidence="seen")
    else:
        await workflow.ignore(store, [id_], GRACE)
    with pytest.raises(ActRefused, match="second person"):
        await store.discard(id_, actor="grace", reason="x")


async def test_a_proposed_payload_is_not_kept_for_longer_than_it_counts(store: PostgresStore) -> None:
    id_, other = await triaged(store), await triaged(store)
    now = await store.now()
    assert "second person" in await edited(store, id_, PATCH, ADA)
    await store.rows("UPDATE redrive.proposal SET asked_at = %s - interval '25 hours' RETURNING 1", [now])
    with pytest.raises(ActRefused, match="second person"):
        await store.discard(other, actor="ada", reason="x", now=now)
    assert await store.rows("SELECT act FROM redrive.proposal", []) == [("discard",)]


# the second person is an approver


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        ("requeue", ParkReason.DEAD),
        ("deny", ParkReason.HELD),
        ("discard", ParkReason.DEAD),
        ("confirm", ParkReason.HELD),
    ],
)
@pytest.mark.parametrize("role", ["redrive_operator", "redrive_console"])
async def test_the_second_person_is_an_approver_by_the_role_that_calls(
    store: PostgresStore, act: str, reason: ParkReason, role: str
) -> None:
    (id_,) = await dead(store, reason=reason)
    with pytest.raises(ActRefused, match="second person"):
        await getattr(as_role(store, role), act)(id_, actor="ada", reason="x")
    for _ in range(2):
        with pytest.raises(ApproverNeeded, match="role approver"):
            await getattr(as_role(store, role), act)(id_, actor="grace", reason="x")
    assert await m.state_of(store, id_) == f"parked·{reason.value}"
    await getattr(as_role(store, "redrive_approver"), act)(id_, actor="grace", reason="x")
    assert await m.state_of(store, id_) != f"parked·{reason.value}"


async def test_an_approver_is_named_in_the_results_of_an_act(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    operator = as_role(store, "redrive_operator")
    results = []
    for actor in ("ada", "grace"):
        request = Request(action=find(Noun.MESSAGE, "requeue"), who=Who(actor=actor, reason="x"))
        results += await messages.perform(operator, request, [id_])
    assert [(one.outcome, one.needs_approver) for one in results] == [("refused", False), ("refused", True)]


async def test_skip_cancel_copy_and_edit_need_an_approver_too(store: PostgresStore) -> None:
    operator, approver = as_role(store, "redrive_operator"), as_role(store, "redrive_approver")
    waiting = await m.enqueue(store, order_by="k")
    for store_, actor, error in ((operator, "ada", ActRefused), (operator, "grace", ApproverNeeded)):
        with pytest.raises(error):
            await store_.skip("default", "k", actor=actor, reason="x")
        with pytest.raises(error):
            await store_.cancel(waiting, actor=actor, reason="x")
    await approver.cancel(waiting, actor="grace", reason="x")
    assert await m.state_of(store, waiting) == "cancelled"
    id_ = await triaged(store)
    edit: dict[str, Any] = {"row_version": 2, "body": b"{}", "content_type": "application/json", "paths": []}
    assert await desk.edit(operator, id_, **edit, actor="ada", reason="x") == "second_person"
    assert await desk.edit(operator, id_, **edit, actor="grace", reason="x") == "approver"
    assert await desk.edit(approver, id_, **edit, actor="grace", reason="x") == "done"
    with pytest.raises(ActRefused):
        await store.discard(id_, actor="ada", reason="x")
    await store.discard(id_, actor="grace", reason="x")
    assert (await desk.copy(operator, id_, "again", actor="ada", reason="x"))[0] == "second_person"
    assert (await desk.copy(operator, id_, "other", actor="grace", reason="x"))[0] == "second_person"
    assert (await desk.copy(operator, id_, "other", actor="ada", reason="x"))[0] == "approver"
    assert (await desk.copy(approver, id_, "other", actor="ada", reason="x"))[0] == "new"


async def new_replay(store: PostgresStore, id_: MessageId, **values: Any) -> UUID:
    wanted = replays.NewReplay(
        name="again", filter={"ids": [str(id_)]}, actor="ada", reason="x", override=True, **values
    )
    return (await replays.create(store, wanted, now=m.START)).id


async def test_a_replay_is_approved_by_an_approver(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    replay = await new_replay(store, id_)
    operator, approver = as_role(store, "redrive_operator"), as_role(store, "redrive_approver")
    with pytest.raises(ActRefused, match="second person"):
        await replays.steer(approver, str(replay), "approve", actor="ada", reason="x")
    with pytest.raises(ApproverNeeded, match="role approver"):
        await replays.steer(operator, str(replay), "approve", actor="grace", reason="x")
    assert (await replays.steer(approver, str(replay), "approve", actor="grace", reason="x")).status == "running"


async def test_an_approved_replay_does_not_send_what_has_died_again_since(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    replay = await new_replay(store, id_)
    with pytest.raises(ActRefused):
        await store.requeue(id_, actor="ada", reason="x", now=m.START)
    await store.requeue(id_, actor="grace", reason="x", now=m.START)
    await fail_again(store)
    await replays.steer(store, str(replay), "approve", actor="grace", reason="x", now=m.at(300))
    await store.run_replay(every_seconds=0.9, limit=10, now=m.at(400))
    assert await store.rows("SELECT outcome, detail FROM redrive.replay_item", []) == [("skipped", "changed")]
    assert await m.state_of(store, id_) == "parked·dead"


async def test_a_replay_of_money_cannot_name_another_stage(store: PostgresStore) -> None:
    (id_,) = await dead(store)
    with pytest.raises(ActRefused, match="one stage"):
        await new_replay(store, id_, stage="notify")
    assert await store.rows("SELECT count(*) FROM redrive.replay", []) == [(0,)]
    await new_replay(store, id_, stage="first")
    assert await store.rows("SELECT status FROM redrive.replay", []) == [("waiting",)]


# cancel without a name


@pytest.mark.parametrize("role", ["redrive_operator", "redrive_console", "redrive_approver"])
async def test_a_person_cannot_cancel_as_if_they_were_the_application(store: PostgresStore, role: str) -> None:
    id_ = await m.enqueue(store)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="needs an actor"):
        await as_role(store, role).cancel(id_)
    assert await m.state_of(store, id_) == "pending"


@pytest.mark.parametrize("role", ["redrive_producer", "redrive_relay"])
async def test_the_application_cancels_its_own_message_alone(store: PostgresStore, role: str) -> None:
    id_ = await m.enqueue(store)
    assert await as_role(store, role).cancel(id_) == "cancelled"


# evidence


async def prove(store: PostgresStore, id_: MessageId) -> None:
    """Evidence that came while another transaction had the row: it is still dead."""
    async with store.connection() as other, other.transaction():
        await other.execute("SELECT 1 FROM redrive.parked FOR UPDATE")
        await store.rows("SELECT redrive.add_evidence(%s, 'statement', 'entry 7', 'ref-7', %s)", [id_, m.START])


@pytest.mark.req("P-11")
async def test_evidence_refuses_edit_replay_and_copy_and_says_which(store: PostgresStore) -> None:
    id_, discarded = await triaged(store), await triaged(store)
    for who in (ADA, GRACE):
        if who is ADA:
            with pytest.raises(ActRefused, match="second person"):
                await store.discard(discarded, actor=who.actor, reason=who.reason)
        else:
            await store.discard(discarded, actor=who.actor, reason=who.reason)
    running = await new_replay(store, id_)
    await replays.steer(store, str(running), "approve", actor="grace", reason="x", now=m.START)
    await prove(store, id_)
    await prove(store, discarded)
    assert "delivered" in await edited(store, id_, PATCH, ADA)
    with pytest.raises(ActRefused, match=r"delivered \(statement of entry 7, reference ref-7\)"):
        await store.requeue(id_, actor="ada", reason="x")
    with pytest.raises(ActRefused, match="delivered") as refused:
        await workflow.copy(store, discarded, "again", ADA)
    assert refused.value.next == f"redrive held confirm {discarded} --reference ref-7"
    await store.run_replay(every_seconds=0.9, limit=10, now=m.at(1))
    assert await store.rows("SELECT outcome, detail FROM redrive.replay_item", []) == [("skipped", "evidence")]
    plan = await replays.plan(
        store, replays.NewReplay(name="x", filter={"ids": [str(id_)]}, actor="ada", reason="x", override=True)
    )
    assert plan.verdicts == {"evidence": 1}
    assert await m.state_of(store, id_) == "parked·dead"


@pytest.mark.req("P-11")
async def test_a_dry_run_says_what_evidence_refuses_and_shows_late_answers_that_are_none(store: PostgresStore) -> None:
    id_, plain = await dead(store, count=2)
    await prove(store, id_)
    await store.rows(
        "INSERT INTO redrive.late_answer (message_id, attempt, worker, at, settlement, answer, reference)"
        " VALUES (%s, 1, %s, %s, 'close', 'delivered', 'ref-9') RETURNING 1",
        [plain, m.WORKER, m.START],
    )
    request = Request(action=find(Noun.MESSAGE, "requeue"), who=Who(actor="ada", reason="x"))
    refused, would = await messages.preview(store, request, [id_, plain])
    assert (refused.outcome, refused.next) == ("refused", f"redrive held confirm {id_} --reference ref-7")
    assert (would.outcome, "ref-9" in would.detail) == ("would", True)
    wanted = replays.NewReplay(name="x", filter={"ids": [str(id_), str(plain)]}, actor="ada", reason="x", override=True)
    plan = await replays.plan(store, wanted)
    assert (plan.verdicts, plan.late_successes) == ({"evidence": 1, "would": 1}, 1)
    shown = await operations.show_message(store, id_)
    assert [str(proof) for proof in shown.evidence] == ["statement of entry 7, reference ref-7"]
