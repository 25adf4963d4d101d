"""Notifications over SMTP: delivered with the server's reply as evidence, and held where its reply was lost (R-09,
R-12).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.errors import InvalidValue
from redrive.kit.database import open_database
from redrive.kit.proof.smtp_server import Act, Fault, SmtpServer, serving
from redrive.systems.reviews import Recipient, SmtpProvider
from redrive.systems.reviews.reconcile import Compared, reconcile
from tests.systems.reviews.conftest import ADA, QUICK, Repository, desk, request, rows, submit

_ROW = (
    "SELECT notified_at IS NOT NULL, status, evidence ->> 'reference' FROM redrive_reviews.delivery WHERE "
    "changelist_id = %s"
)


@asynccontextmanager
async def mailing(
    step: str = "", answer: str | Act = "", **options: Any
) -> AsyncIterator[tuple[SmtpServer, SmtpProvider]]:
    """A mail server that has this fault once, and a provider that sends by it."""
    faults = {step: Fault(answer, times=1)} if step else {}
    async with serving(SmtpServer(faults=faults)) as server:
        given = {"name": "mail", "sender": "reviews@example.org", "tls": "none", "policy": QUICK, **options}
        yield server, SmtpProvider(host="127.0.0.1", port=server.port, **given)


def read(server: SmtpServer) -> list[Any]:
    return [message_from_bytes(one.body, policy=policy.default) for one in server.mails]


async def compare(dsn: str, provider: SmtpProvider) -> Compared:
    async with open_database(dsn) as store:
        return await reconcile(store, provider)


@pytest.mark.req("R-09", "R-12")
async def test_a_review_arrives_as_a_mail_that_a_person_can_read_and_the_reply_is_the_evidence(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with (
        mailing("RCPT", "451 4.3.0 try again later") as (server, provider),
        desk(reviewing, repository, tmp_path, more=[provider]) as opened,
    ):
        submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "mail")]))
        await opened.state(changelist, "succeeded")
        await compare(reviewing, provider)
    (mail,) = read(server)
    assert (mail["To"], mail["From"], mail["Auto-Submitted"]) == (ADA, "reviews@example.org", "auto-generated")
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
    assert "queued as 00001" in row[2]
    kept = "SELECT evidence -> 'said' ->> 'message_id' FROM redrive_reviews.delivery WHERE changelist_id = %s"
    assert rows(reviewing, kept, changelist) == [(mail["Message-ID"],)]
    verified = "SELECT verified_at IS NOT NULL FROM redrive_reviews.delivery WHERE changelist_id = %s"
    assert rows(reviewing, verified, changelist) == [(True,)]


@pytest.mark.req("R-07", "R-12", "G-13")
async def test_a_mail_whose_reply_is_lost_is_held_and_a_persons_word_makes_the_job_succeed(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with (
        mailing("END", Act.LOSE_REPLY, name="confirmed") as (server, provider),
        desk(reviewing, repository, tmp_path, more=[provider]) as opened,
    ):
        submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "confirmed")]))
        await opened.state(changelist, "retryable_failed")
        held = "SELECT state, message_id FROM redrive_reviews.deliveries WHERE changelist_id = %s"
        ((state, message),) = rows(reviewing, held, changelist)
        assert state == "held"
        with psycopg.connect(reviewing) as conn:
            conn.execute("SELECT redrive.confirm_1(%s, 'anna', 'Ada has it', 'seen by Ada')", [message])
        # The relay claims it again and records the person's answer; it neither sends nor waits for the duty.
        await opened.state(changelist, "succeeded")
        assert rows(reviewing, _ROW, changelist) == [(True, "sent", "seen by Ada")]
        compared = await compare(reviewing, provider)
        assert (compared.verified, compared.learned) == (1, 0)
    assert len(read(server)) == 1


@pytest.mark.req("R-07", "R-12")
async def test_a_mark_that_was_lost_after_a_delivery_is_learned_from_the_engines_archive_and_not_sent_again(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with mailing(name="lost") as (server, provider):
        async with desk(reviewing, repository, tmp_path, more=[provider]) as opened:
            submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "lost")]))
            await opened.state(changelist, "succeeded")
        with psycopg.connect(reviewing) as conn:
            conn.execute(
                "UPDATE redrive_reviews.delivery SET notification_id = NULL, notified_at = NULL, evidence = NULL,"
                " status = 'queued' WHERE changelist_id = %s",
                [changelist],
            )
        compared = await compare(reviewing, provider)
        assert (compared.verified, compared.learned, compared.held) == (0, 1, 0)
        compared = await compare(reviewing, provider)
        assert (compared.verified, compared.learned, compared.held) == (1, 0, 0)
    assert len(read(server)) == 1
    assert rows(reviewing, _ROW, changelist)[0][:2] == (True, "sent")


@pytest.mark.req("R-12")
async def test_where_resend_is_chosen_the_same_mail_is_sent_again(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with (
        mailing("END", Act.LOSE_REPLY, in_doubt="resend") as (server, provider),
        desk(reviewing, repository, tmp_path, more=[provider]) as opened,
    ):
        submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "mail")]))
        await opened.state(changelist, "succeeded")
    first, second = read(server)
    assert first["Message-ID"] == second["Message-ID"]
    assert first.as_string() == second.as_string()


@pytest.mark.req("R-08")
async def test_a_mailbox_that_does_not_exist_fails_its_recipient_at_once(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with (
        mailing("RCPT", "550 5.1.1 no such user") as (server, provider),
        desk(reviewing, repository, tmp_path, more=[provider]) as opened,
    ):
        submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "mail")]))
        await opened.state(changelist, "retryable_failed")
    assert read(server) == []
    failed = "SELECT status, error_class FROM redrive_reviews.delivery WHERE changelist_id = %s"
    assert rows(reviewing, failed, changelist) == [("failed", "SMTP_RECIPIENT_REFUSED")]


@pytest.mark.req("R-12")
@pytest.mark.parametrize("wrong", [{"in_doubt": "lookup"}, {"sender": "nobody"}, {"sender": "a@b\r\nBcc: c@d"}])
def test_a_mail_provider_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        SmtpProvider(**{"name": "mail", "host": "127.0.0.1", "sender": "reviews@example.org", **wrong})
