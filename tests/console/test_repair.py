"""The steps of a group over HTTP: the number that a button shows is the number that it touches."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from redrive.operate.desk import workflow
from redrive.operate.desk.causes import Cause
from redrive.operate.web.principal import Role
from redrive.store.reads.desk import list_groups
from redrive.store.reads.models import GroupFilter
from redrive.store.runtime.postgres import PostgresStore
from redrive.who import Who
from tests.api.conftest import House, asking, bearer
from tests.desk.failing import dead

pytestmark = pytest.mark.req("G-21", "G-16")


@pytest.fixture
async def ada(house: House) -> AsyncIterator[Any]:
    secret = await house.token(Role.OPERATOR)
    async with asking(house.app(), headers={**bearer(secret), "Accept": "text/html"}, follow_redirects=True) as client:
        yield client


async def failing(house: House, destination: str, *, count: int = 4, **values: Any) -> str:
    """The group of new dead letters."""
    async with PostgresStore(house.dsn, connections=1) as store:
        now = await store.now()
        await dead(store, count=count, destination=destination, now=now, **values)
        (group,) = (await list_groups(store, GroupFilter(destination=destination))).rows
        return group.id


def form_of(html: str, action: str) -> dict[str, str]:
    """The hidden fields of the form that goes there."""
    form = re.search(rf'<form[^>]*action="[^"]*{re.escape(action)}"[^>]*>(.*?)</form>', html, re.DOTALL)
    assert form, action
    return {
        name: value.replace("&#43;", "+")
        for name, value in re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form[1])
    }


async def test_what_failed_after_the_page_was_made_is_not_of_the_step(ada: Any, house: House) -> None:
    group = await failing(house, "later")
    page = (await ada.get(f"/groups/{group}")).text
    assert "Set the cause of 4 messages" in page
    await failing(house, "later", count=3)
    form = form_of(page, "/triage")
    after = await ada.post(f"/groups/{group}/triage", data={**form, "cause": "data", "reason": "INC-7"})
    assert "Cause set for <strong>4 messages</strong>" in after.text
    assert "Set the cause of 3 messages" in after.text
    rows = house.execute(
        "SELECT workflow, count(*) FROM redrive.parked WHERE destination = 'later' GROUP BY 1 ORDER BY 1"
    )
    assert rows == [("open", 3), ("triaged", 4)]


async def test_the_way_of_a_group_leads_from_step_to_step(ada: Any, house: House) -> None:
    group = await failing(house, "steps", error_class="HTTP_503")
    page = await ada.get(f"/groups/{group}")
    assert 'value="transient" required checked' in page.text
    page = await ada.post(
        f"/groups/{group}/triage", data={**form_of(page.text, "/triage"), "cause": "transient", "reason": "r"}
    )
    assert "What was done about it?" in page.text
    refused = await ada.post(f"/groups/{group}/remediate", data={**form_of(page.text, "/remediate"), "reason": "r"})
    assert (refused.status_code, "Say what was done" in refused.text) == (422, True)
    page = await ada.post(
        f"/groups/{group}/remediate", data={**form_of(page.text, "/remediate"), "evidence": "it is up", "reason": "r"}
    )
    assert "Check 4 messages" in page.text
    with_relay = "UPDATE redrive.parked SET workflow = 'validated' WHERE destination = 'steps' RETURNING 1"
    assert len(house.execute(with_relay)) == 4
    page = await ada.get(f"/groups/{group}")
    assert "Replay 4 messages" in page.text
    form = {**form_of(page.text, "/replay"), "canary": "1", "rate_per_second": "50", "stop_at": "10", "reason": "again"}
    made = await ada.post(f"/groups/{group}/replay", data=form)
    assert made.url.path.startswith("/replays/")
    assert "of 4 delivered" in made.text
    again = await ada.post(f"/groups/{group}/replay", data=form)
    assert again.url.path == made.url.path, "the same form is the same replay"
    assert "Being replayed" in (await ada.get(f"/groups/{group}")).text


async def test_a_group_is_assigned_and_resolved(ada: Any, house: House) -> None:
    group = await failing(house, "marks")
    page = await ada.get(f"/groups/{group}")
    form = {**form_of(page.text, "/mark/assign"), "value": "grace", "reason": "on call"}
    assert "grace" in (await ada.post(f"/groups/{group}/mark/assign", data=form)).text
    form = {**form_of(page.text, "/mark/resolve"), "reason": "fixed"}
    assert ">resolved<" in (await ada.post(f"/groups/{group}/mark/resolve", data=form)).text
    assert group not in (await ada.get("/groups")).text
    assert group in (await ada.get("/groups?view=resolved")).text
    nonsense = await ada.post(f"/groups/{group}/mark/nonsense", data={"reason": "r", "form_token": "n"})
    assert nonsense.status_code == 422


async def test_a_payload_is_edited_for_all_or_for_one(ada: Any, house: House) -> None:
    group = await failing(house, "edits", body=b'{"currency":null,"n":1}')
    page = await ada.get(f"/groups/{group}")
    await ada.post(f"/groups/{group}/triage", data={**form_of(page.text, "/triage"), "cause": "data", "reason": "r"})
    editor = await ada.get(f"/groups/{group}/edit")
    form = {**form_of(editor.text, "/edit"), "after": '{"currency":"EUR","n":1}', "reason": "r"}
    looked = await ada.post(f"/groups/{group}/edit/check", data=form)
    assert "<html" in looked.text, "without a script it is the whole page"
    assert "Save for 4 messages" in looked.text
    part = await ada.post(f"/groups/{group}/edit/check", data=form, headers={"HX-Request": "true"})
    assert "<html" not in part.text
    done = await ada.post(f"/groups/{group}/edit", data={**form, "scope": "one"})
    assert "New version saved for <strong>1 message</strong>" in done.text
    other = {**form, "form_token": "another", "scope": "all", "after": '{"currency":"USD","n":1}'}
    done = await ada.post(f"/groups/{group}/edit", data=other)
    assert "New version saved for <strong>4 messages</strong>" in done.text


async def test_a_destination_is_paused_and_resumed_with_a_reason(ada: Any, house: House) -> None:
    await failing(house, "pausing")
    page = await ada.get("/destinations/pausing")
    form = {**form_of(page.text, "/destinations/pause/pausing"), "reason": "maintenance"}
    paused = await ada.post("/destinations/pause/pausing", data=form)
    assert "pausing is paused." in paused.text
    assert "maintenance" in paused.text
    form = {**form_of(paused.text, "/destinations/resume/pausing"), "reason": "over"}
    assert "pausing is resumed." in (await ada.post("/destinations/resume/pausing", data=form)).text


async def test_whatever_is_pasted_is_found(ada: Any, house: House) -> None:
    group = await failing(house, "found", key="order:4711", count=1)
    (id_,) = house.execute("SELECT id FROM redrive.message WHERE key = 'order:4711'")[0]
    assert (await ada.get(f"/find?q={id_}")).url.path == f"/messages/{id_}"
    assert (await ada.get(f"/find?q={group[:12]}")).url.path == f"/groups/{group[:12]}"
    assert str(id_) in (await ada.get("/find?q=order:4711")).text


@pytest.mark.req("P-12")
async def test_a_proposed_payload_is_shown_beside_the_old_and_approved_by_an_approver(ada: Any, house: House) -> None:
    async with PostgresStore(house.dsn, connections=1) as store:
        (id_,) = await dead(store, destination="bank-2", now=await store.now())
        house.execute("INSERT INTO redrive.destination (name, money) VALUES ('bank-2', true) RETURNING name")
        who = Who(actor="proposer", reason="a typing error")
        await workflow.triage(store, [id_], Cause.DATA, who)
        await workflow.edit(store, [id_], [{"op": "add", "path": "/iban", "value": "DE02"}], who)
    page = (await ada.get(f"/messages/{id_}")).text
    assert "Waits for a second person" in page
    assert "DE02" not in page
    act = f"/messages/{id_}/proposed"
    headers = {"Accept": "text/html"}
    for role, status, version in ((Role.OPERATOR, 403, 1), (Role.APPROVER, 200, 2)):
        secret = await house.token(role, name=f"eva the {role}")
        async with asking(house.app(), headers={**bearer(secret), **headers}, follow_redirects=True) as eva:
            shown = (await eva.get(act)).text
            assert "DE02" in shown
            answer = await eva.post(act, data={**form_of(shown, act), "reason": "INC-7"})
            assert answer.status_code == status
        assert house.execute("SELECT version FROM redrive.parked WHERE id = %s", id_) == [(version,)]


async def test_the_second_person_for_money_is_an_approver(ada: Any, house: House) -> None:
    async with PostgresStore(house.dsn, connections=1) as store:
        (id_,) = await dead(store, destination="bank", now=await store.now())
    house.execute("INSERT INTO redrive.destination (name, money) VALUES ('bank', true) RETURNING name")
    act = f"/messages/{id_}/requeue"

    async def asked_by(client: Any) -> Any:
        form = form_of((await client.get(act)).text, act)
        return await client.post(act, data={**form, "reason": "INC-7"})

    assert "a second person has to ask too" in (await asked_by(ada)).text
    headers = {"Accept": "text/html"}
    for role, status, state in ((Role.OPERATOR, 403, "parked"), (Role.APPROVER, 200, "pending")):
        secret = await house.token(role, name=f"ben the {role}")
        async with asking(house.app(), headers={**bearer(secret), **headers}, follow_redirects=True) as ben:
            assert (await asked_by(ben)).status_code == status
        assert house.execute("SELECT redrive.state_of(%s)", id_) == [(state,)]
