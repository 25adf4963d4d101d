"""Reconciliation sends nothing twice: it asks by the token that was used, believes "not there" only while tokens are
remembered, and no provider holds up the others (R-07, R-12, G-13, G-31).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from redrive import Absent, CannotTell
from redrive.kit.database import open_database
from redrive.operate.actions.results import Outcome
from redrive.operate.desk import workflow
from redrive.operate.desk.causes import Cause
from redrive.systems.reviews import HttpProvider, Recipient
from redrive.systems.reviews.providers import believed
from redrive.systems.reviews.reconcile import ASKED_IN_VAIN_MAX, reconcile_all
from redrive.systems.reviews.simulators.script import Script
from redrive.who import Who
from tests.support import messages as m
from tests.systems.reviews.conftest import ADA, GRACE, Repository, desk, job_state, request, rows, submit
from tests.systems.reviews.test_delivery import compare, write
from tests.transports.servers import HERE, never, serving

ANNA = Who(actor="anna", reason="a test")
pytestmark = pytest.mark.req("R-07")
_VIOLATIONS = "SELECT repair FROM redrive_reviews.violation"


async def _with_a_corrected_address(dsn: str) -> None:
    """As an operator remediates a dead letter: the notification has another version then, with a token of its own."""
    ((message,),) = rows(dsn, "SELECT message_id FROM redrive_reviews.delivery")
    patch = [{"op": "replace", "path": "/recipient", "value": "ada@elsewhere.example"}]
    async with open_database(dsn) as store:
        assert (await workflow.triage(store, [message], Cause.DATA, ANNA))[0].outcome is Outcome.DONE
        assert (await workflow.edit(store, [message], patch, ANNA))[0].outcome is Outcome.DONE
    write(dsn, "SELECT redrive.requeue_1(%s, 'anna', 'the address is right now')", message)


@pytest.mark.req("R-12", "R-11")
async def test_a_notification_that_was_edited_is_asked_about_by_the_token_that_it_was_sent_with(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path, Script(first=["refused"])) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "retryable_failed")
        await _with_a_corrected_address(reviewing)
        await opened.state(changelist, "succeeded")
        compared = await compare(reviewing, opened.provider)
        assert (compared.verified, compared.requeued) == (1, 0)
        assert [one["to"] for one in opened.sent] == ["ada@elsewhere.example"]


@pytest.mark.req("R-12", "R-11")
async def test_what_was_edited_and_is_missing_at_the_provider_is_sent_again_as_it_was_edited(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path, Script(first=["refused"])) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "retryable_failed")
        await _with_a_corrected_address(reviewing)
        await opened.state(changelist, "succeeded")
    opened.log.unlink()
    async with desk(reviewing, repository, tmp_path) as again:
        assert (await compare(reviewing, again.provider)).requeued == 1
        await again.state(changelist, "succeeded")
        assert [one["to"] for one in again.sent] == ["ada@elsewhere.example"]
        assert (await compare(reviewing, again.provider)).requeued == 0


@pytest.mark.req("R-12", "G-13")
@pytest.mark.parametrize("has_evidence", [True, False])
async def test_a_provider_that_no_longer_remembers_tokens_is_not_believed_that_it_has_nothing(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, has_evidence: bool
) -> None:
    """What it accepted is enough then; without a kept acceptance a person decides."""
    async with desk(reviewing, repository, tmp_path) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "succeeded")
    opened.log.unlink()
    age = "UPDATE redrive_reviews.delivery SET notified_at = notified_at - interval '2 days', evidence = {}"
    write(reviewing, age.format("evidence" if has_evidence else "NULL"))
    async with desk(reviewing, repository, tmp_path) as again:
        compared = await compare(reviewing, again.provider)
        assert (compared.verified, compared.held, compared.requeued) == (has_evidence, not has_evidence, 0)
        assert again.calls == ["asked"]
        assert job_state(reviewing, changelist) == ("succeeded" if has_evidence else "retryable_failed")
    assert rows(reviewing, _VIOLATIONS) == ([] if has_evidence else [("held",)])


@pytest.mark.req("G-13")
@pytest.mark.parametrize(("age", "answer"), [(86_399, Absent), (86_401, CannotTell)])
def test_absent_is_believed_while_the_token_is_remembered(age: int, answer: type) -> None:
    asked = m.attempt()
    for since in (
        {"token_used_since": asked.claimed_at - timedelta(seconds=age), "in_doubt_since": asked.claimed_at},
        {"in_doubt_since": asked.claimed_at - timedelta(seconds=age)},
    ):
        assert isinstance(believed(Absent(), m.attempt(**since), token_ttl_seconds=86_400), answer)
    assert isinstance(believed(Absent(), m.attempt(), token_ttl_seconds=86_400), Absent)


@pytest.mark.req("G-31")
async def test_a_provider_that_does_not_answer_is_not_asked_about_every_row(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    recipients = [Recipient(f"person-{n}@example.org", "hooks") for n in range(ASKED_IN_VAIN_MAX + 3)]
    async with desk(reviewing, repository, tmp_path) as opened:
        submit(reviewing, request(changelist, repository, recipients=recipients))
        await opened.state(changelist, "succeeded")
    async with serving(never) as mute:
        compared = await compare(reviewing, HttpProvider(name="hooks", url=mute.url, egress=HERE, timeout_seconds=0.05))
        assert (compared.asked_in_vain, compared.verified, len(mute.asked)) == (ASKED_IN_VAIN_MAX, 0, ASKED_IN_VAIN_MAX)


@pytest.mark.req("G-31")
async def test_no_provider_waits_for_the_answers_of_another(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path) as opened:
        submit(
            reviewing, request(changelist, repository, recipients=[Recipient(ADA, "hooks"), Recipient(GRACE, "hooks")])
        )
        await opened.state(changelist, "succeeded")
        write(reviewing, "UPDATE redrive_reviews.delivery SET provider = 'slow' WHERE recipient = %s", ADA)
        is_asked = asyncio.Event()

        async def second(_: web.Request) -> web.StreamResponse:
            is_asked.set()
            return web.json_response({"id": "n-2"})

        async def first(_: web.Request) -> web.StreamResponse:
            await is_asked.wait()  # for ever, where the providers are asked one after the other
            return web.json_response({"id": "n-1"})

        async with serving(first) as one, serving(second) as other, open_database(reviewing) as store:
            waiting = HttpProvider(name="slow", url=one.url, egress=HERE, timeout_seconds=20.0)
            prompt = HttpProvider(name="hooks", url=other.url, egress=HERE, timeout_seconds=20.0)
            assert [compared.verified for compared in await reconcile_all(store, [waiting, prompt])] == [1, 1]
