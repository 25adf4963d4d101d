"""Notifications over SMTP: delivered with the server's reply as evidence, and held where its reply was lost (R-09,
R-12).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_string, policy
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.errors import InvalidValue
from redrive.kit.database import open_database
from redrive.kit.proof import journal
from redrive.systems.reviews import Recipient, SmtpProvider
from redrive.systems.reviews.reconcile import reconcile
from redrive.systems.reviews.simulators import mail_server
from redrive.systems.reviews.simulators.script import Script
from tests.systems.reviews.conftest import ADA, QUICK, Repository, desk, job_state, request, rows, submit

_ROW = (
    "SELECT notified_at IS NOT NULL, status, evidence ->> 'reference' FROM redrive_reviews.delivery WHERE "
    "changelist_id = %s"
)


@asynccontextmanager
async def mailing(log: Path, *first: str, **options: Any) -> AsyncIterator[SmtpProvider]:
    server, port, mail = await mail_server.start(log, Script(first=first))
    try:
        given = {
            "name": "mail",
            "port": port,
            "sender": "reviews@example.org",
            "tls": "none",
            "policy": QUICK,
            **options,
        }
        yield SmtpProvider(host="127.0.0.1", **given)
    finally:
        server.close()
        mail.close()


def sent(log: Path) -> list[Any]:
    return [
        message_from_string(line["data"], policy=policy.default) for line in journal.read(log) if line["log"] == "sent"
    ]


@pytest.mark.req("R-09", "R-12")
async def test_a_review_arrives_as_a_mail_that_a_person_can_read_and_the_reply_is_the_evidence(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    log = tmp_path / "mail.log"
    async with (
        mailing(log, "unavailable") as provider,
        desk(reviewing, repository, tmp_path, more=[provider]) as opened,
    ):
        submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "mail")]))
        await opened.state(changelist, "succeeded")
        async with open_database(reviewing) as store:
            await reconcile(store, provider)
    (mail,) = sent(log)
    assert (mail["To"], mail["From"]) == (ADA, "reviews@example.org")
    assert mail["Subject"] == f"[review] {changelist} (version 1): 2 errors, 1 warning"
    plain = mail.get_body(("plain",)).get_content()
    html = mail.get_body(("html",)).get_content()
    for text in (plain, html):
        assert "shop/total.py" in text
        assert "hunter2" not in text
    assert "line 2: error (debugger): A breakpoint was left here." in plain
    assert "<b>Line 2</b>" in html
    (row,) = rows(reviewing, _ROW, changelist)
    assert row[:2] == (True, "sent")
    assert "queued as Q000001" in row[2]
    verified = "SELECT verified_at IS NOT NULL FROM redrive_reviews.delivery WHERE changelist_id = %s"
    assert rows(reviewing, verified, changelist) == [(True,)]


@pytest.mark.req("R-07", "R-12", "G-13")
async def test_a_mail_whose_reply_is_lost_is_held_and_a_persons_word_makes_the_job_succeed(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    log = tmp_path / "mail.log"
    async with (
        mailing(log, "accepted_lost") as provider,
        desk(reviewing, repository, tmp_path, more=[provider]) as opened,
    ):
        submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "mail")]))
        await opened.state(changelist, "retryable_failed")
        held = (
            "SELECT redrive_reviews.state_of_delivery(d), d.message_id FROM redrive_reviews.delivery d "
            "WHERE changelist_id = %s"
        )
        ((state, message),) = rows(reviewing, held, changelist)
        assert state == "held"
        with psycopg.connect(reviewing) as conn:
            conn.execute("SELECT redrive.confirm_1(%s, 'anna', 'Ada has it', 'seen by Ada')", [message])
        async with open_database(reviewing) as store:
            await reconcile(store, provider)
        assert job_state(reviewing, changelist) == "succeeded"
    assert len(sent(log)) == 1
    assert rows(reviewing, _ROW, changelist)[0][:2] == (True, "sent")


@pytest.mark.req("R-12")
async def test_where_resend_is_chosen_the_same_mail_is_sent_again(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    log = tmp_path / "mail.log"
    async with (
        mailing(log, "accepted_lost", in_doubt="resend") as provider,
        desk(reviewing, repository, tmp_path, more=[provider]) as opened,
    ):
        submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "mail")]))
        await opened.state(changelist, "succeeded")
    first, second = sent(log)
    assert first["Message-ID"] == second["Message-ID"]
    assert first.as_string() == second.as_string()


@pytest.mark.req("R-08")
async def test_a_mailbox_that_does_not_exist_fails_its_recipient_at_once(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    log = tmp_path / "mail.log"
    async with mailing(log, "refused") as provider, desk(reviewing, repository, tmp_path, more=[provider]) as opened:
        submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "mail")]))
        await opened.state(changelist, "retryable_failed")
    assert sent(log) == []
    failed = "SELECT status, error_class FROM redrive_reviews.delivery WHERE changelist_id = %s"
    assert rows(reviewing, failed, changelist) == [("failed", "SMTP_RECIPIENT_REFUSED")]


@pytest.mark.req("R-12")
@pytest.mark.parametrize("wrong", [{"in_doubt": "lookup"}, {"sender": "nobody"}, {"sender": "a@b\r\nBcc: c@d"}])
def test_a_mail_provider_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        SmtpProvider(**{"name": "mail", "host": "127.0.0.1", "sender": "reviews@example.org", **wrong})
