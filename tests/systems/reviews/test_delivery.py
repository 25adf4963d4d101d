"""Send, then mark, in one write; and what each of the other orders leads to (R-07, R-10, R-11, R-12)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive import CannotTell
from redrive.kit.database import open_database
from redrive.systems.reviews import HttpProvider, Recipient, SmtpProvider
from redrive.systems.reviews.providers import Provider, Records
from redrive.systems.reviews.reconcile import Compared, reconcile
from redrive.systems.reviews.simulators.script import Script
from tests.systems.reviews.conftest import (
    ADA,
    GRACE,
    Desk,
    Repository,
    desk,
    job_state,
    request,
    rows,
    submit,
)
from tests.transports.servers import HERE, Answering, hang_up, never, serving

pytestmark = pytest.mark.req("R-07")
_ROW = "SELECT notification_id, notified_at IS NOT NULL, status FROM redrive_reviews.delivery WHERE changelist_id = %s"
_MESSAGE = "SELECT message_id FROM redrive_reviews.delivery WHERE changelist_id = %s"
_VIOLATIONS = "SELECT repair FROM redrive_reviews.violation WHERE changelist_id = %s"
_STATE = "SELECT state FROM redrive_reviews.deliveries WHERE changelist_id = %s"


def write(dsn: str, query: str, *values: Any) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(query.encode(), values)


async def compare(dsn: str, provider: Provider) -> Compared:
    async with open_database(dsn) as store:
        return await reconcile(store, provider)


async def waiting_notification(opened: Desk, changelist: str, repository: Repository, **other: Any) -> None:
    """A job whose notification waits: its destination is paused until `go_on`."""
    write(opened.dsn, "SELECT redrive.pause_1('reviews.notify.hooks', 'anna', 'a test')")
    submit(opened.dsn, request(changelist, repository, **other))
    await opened.until(lambda: rows(opened.dsn, _MESSAGE, changelist)[0][0])


def go_on(dsn: str) -> None:
    write(dsn, "SELECT redrive.resume_1('reviews.notify.hooks', 'anna', 'a test')")


# the first row of the matrix, and the three retry cases


@pytest.mark.req("R-07", "G-13")
@pytest.mark.seed("001", "Email sent but DB write failed")
@pytest.mark.parametrize("fault", ["accepted_lost", "accepted_502"])
async def test_a_mail_that_was_accepted_and_not_recorded_is_looked_up_and_not_sent_again(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, fault: str
) -> None:
    async with desk(reviewing, repository, tmp_path, Script(first=[fault])) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "succeeded")
        (sent,) = opened.sent
        assert opened.calls == ["request", "sent", "asked"]
    assert rows(reviewing, _ROW, changelist) == [(sent["id"], True, "sent")]


@pytest.mark.seed("001", "If `notified_at` is set, do not send again.")
@pytest.mark.seed(
    "001", "If a row already exists with `notified_at` populated, skip send for that recipient (already delivered)."
)
@pytest.mark.seed(
    "001", "A retry worker MUST always check persisted delivery state (`notified_at`, `notification_id`) before send."
)
async def test_a_row_that_is_marked_with_evidence_is_not_sent_again(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path) as opened:
        await waiting_notification(opened, changelist, repository)
        (message,) = rows(reviewing, _MESSAGE, changelist)[0]
        write(reviewing, "SELECT redrive_reviews.mark_sent_1(%s, 'n-7', '{\"status\": 202}')", message)
        go_on(reviewing)
        closed = "SELECT reference FROM redrive.attempt WHERE message_id = %s AND closed = 'delivered'"
        assert await opened.until(lambda: rows(reviewing, closed, message)) == [("n-7",)]
        assert opened.calls == []


@pytest.mark.seed("001", "If `notified_at` is null and `notification_id` is null, safe to attempt send.")
async def test_a_row_without_marks_is_sent_without_a_question(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "succeeded")
        assert opened.calls == ["request", "sent"]


@pytest.mark.seed("001", 'If `notification_id` exists but `notified_at` is null, treat as "send may have happened"')
@pytest.mark.parametrize("was_sent", [True, False])
@pytest.mark.seed("001", "Retries MUST re-read the outbox row first")
async def test_a_row_with_an_id_and_no_moment_is_asked_about_before_it_is_sent(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, was_sent: bool
) -> None:
    async with desk(reviewing, repository, tmp_path) as opened:
        await waiting_notification(opened, changelist, repository)
        if was_sent:
            token = rows(
                reviewing, "SELECT token::text FROM redrive.pending WHERE destination = 'reviews.notify.hooks'"
            )[-1][0]
            await _send_beside(opened, token)
        write(
            reviewing,
            "UPDATE redrive_reviews.delivery SET notification_id = 'n-1' WHERE changelist_id = %s",
            changelist,
        )
        before = len(opened.calls)
        go_on(reviewing)
        await opened.state(changelist, "succeeded")
        assert opened.calls[before:] == (["asked"] if was_sent else ["asked", "request", "sent"])
        assert len(opened.sent) == 1
    assert rows(reviewing, _ROW, changelist) == [(opened.sent[0]["id"], True, "sent")]


async def _send_beside(opened: Desk, token: str) -> None:
    """As a worker that died before it wrote anything."""
    import aiohttp

    said = {"token": token, "to": ADA, "subject": "s"}
    async with aiohttp.ClientSession() as session, session.post(f"{opened.provider.url}/messages", json=said) as reply:
        assert reply.status == 202


# the second row: marked as sent, and the provider does not know it


@pytest.mark.req("R-12", "R-10")
@pytest.mark.seed("001", "DB write succeeded but send failed")
async def test_a_row_that_was_marked_before_it_was_sent_is_cleared_counted_and_sent(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    """The mark is found by the send itself: the provider is asked before anything goes out."""
    async with desk(reviewing, repository, tmp_path) as opened:
        await waiting_notification(opened, changelist, repository)
        write(
            reviewing,
            "UPDATE redrive_reviews.delivery SET notification_id = 'n-0', notified_at = clock_timestamp(), "
            "status = 'sent'"
            " WHERE changelist_id = %s",
            changelist,
        )
        go_on(reviewing)
        await opened.until(lambda: rows(reviewing, _VIOLATIONS, changelist))
        await opened.state(changelist, "succeeded")
        assert opened.calls == ["asked", "request", "sent"]
    assert rows(reviewing, _VIOLATIONS, changelist) == [("requeued",)]
    assert rows(reviewing, _ROW, changelist) == [(opened.sent[0]["id"], True, "sent")]


@pytest.mark.req("R-12", "R-10")
@pytest.mark.seed("001", "If implementation detects a row with `notified_at` set but no provider evidence")
@pytest.mark.seed(
    "001", "The canonical contract is send first, then mark; any violation must be detectable and repaired"
)
async def test_reconciliation_finds_a_closed_delivery_that_the_provider_does_not_have_and_sends_it_with_the_same_token(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "succeeded")
        (first,) = opened.sent
        provider = opened.provider
    opened.log.unlink()  # the provider has lost it: as if it had never been accepted
    async with desk(reviewing, repository, tmp_path, provider={}) as again:
        # Nothing is verified before the provider was asked afterwards.
        compared = await compare(reviewing, again.provider)
        assert compared.requeued >= 1
        assert job_state(reviewing, changelist) != "succeeded" or again.sent
        await again.state(changelist, "succeeded")
        mine = [one for one in again.sent if one["token"] == first["token"]]
        assert len(mine) == 1
        assert mine[0]["sha256"] == first["sha256"]
        second = await compare(reviewing, again.provider)
        assert second.requeued == 0
    assert rows(reviewing, _VIOLATIONS, changelist) == [("requeued",)]
    assert rows(
        reviewing, "SELECT count(*) FROM redrive_reviews.delivery_message WHERE changelist_id = %s", changelist
    ) == [(2,)]
    assert provider.name == again.provider.name


@pytest.mark.req("R-08", "R-12")
async def test_an_optional_recipient_whose_mark_is_cleared_leaves_its_job_succeeded(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    """It is held for a person; nothing that is required is open, so the job is not under way again."""
    recipients = [Recipient(ADA, "hooks"), Recipient(GRACE, "hooks", required=False)]
    async with desk(reviewing, repository, tmp_path) as opened:
        submit(reviewing, request(changelist, repository, recipients=recipients))
        await opened.until(lambda: {state for _, state in _both_are_over(reviewing, changelist) or ()} == {"sent"})
    write(
        reviewing,
        "UPDATE redrive_reviews.delivery SET evidence = NULL, provider = %s WHERE changelist_id = %s AND NOT required",
        f"mail-{changelist}",
        changelist,
    )
    blind = SmtpProvider(name=f"mail-{changelist}", host="127.0.0.1", sender="reviews@example.org")
    assert (await compare(reviewing, blind)).held == 1
    assert dict(
        rows(reviewing, "SELECT recipient, state FROM redrive_reviews.deliveries WHERE changelist_id = %s", changelist)
    ) == {ADA: "sent", GRACE: "held"}
    assert job_state(reviewing, changelist) == "succeeded"


@pytest.mark.req("R-07", "G-31")
@pytest.mark.parametrize("answer", [never, hang_up])
async def test_a_provider_that_never_answers_a_question_does_not_hold_up_reconciliation(answer: Answering) -> None:
    async with serving(answer) as mute:
        records = Records(HttpProvider(name="mute", url=mute.url, egress=HERE, timeout_seconds=0.05))
        assert isinstance(await records.ask("a-token"), CannotTell)
        await records.aclose()


async def test_what_the_provider_has_is_verified_once_and_not_asked_again(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path, provider={"name": "once"}) as opened:
        submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "once")]))
        await opened.state(changelist, "succeeded")
        assert (await compare(reviewing, opened.provider)).verified == 1
        assert (await compare(reviewing, opened.provider)).verified == 0
        assert opened.calls == ["request", "sent", "asked"]


@pytest.mark.req("R-10")
@pytest.mark.seed("001", "Never mark failed permanently until reconciliation attempted")
@pytest.mark.parametrize("has_it", [True, False])
@pytest.mark.parametrize("refusals", [["refused"], ["unavailable"] * 5], ids=["refused", "used up"])
async def test_before_a_recipient_is_given_up_the_provider_is_asked_and_what_it_has_is_delivered(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, refusals: list[str], has_it: bool
) -> None:
    """With the mail a worker that died has sent, under a provider that refuses the token all the same."""
    first = [*([""] if has_it else []), *refusals]
    async with desk(reviewing, repository, tmp_path, Script(first=first), provider={"knows_tokens": False}) as opened:
        await waiting_notification(opened, changelist, repository)
        if has_it:
            token = rows(
                reviewing,
                "SELECT redrive.token_for(d.message_id, 1, 'first')::text FROM redrive_reviews.delivery d"
                " WHERE changelist_id = %s",
                changelist,
            )[0][0]
            await _send_beside(opened, token)
        before = len(opened.calls)
        go_on(reviewing)
        await opened.state(changelist, "succeeded" if has_it else "retryable_failed")
        assert opened.calls[before:] == ["request", "refused"] * len(refusals) + ["asked"]
        assert len(opened.sent) == has_it
    assert rows(reviewing, _STATE, changelist) == [("sent" if has_it else "failed",)]


@pytest.mark.req("R-10", "R-08")
async def test_a_late_success_of_a_dead_notification_is_confirmed_by_reconciliation_and_the_job_succeeds(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path, Script(first=["unavailable"] * 5)) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "retryable_failed")
        (message,) = rows(reviewing, _MESSAGE, changelist)[0]
        token = rows(reviewing, "SELECT redrive.token_for(%s, 1, 'first')::text", message)[0][0]
        await _send_beside(opened, token)
        compared = await compare(reviewing, opened.provider)
        assert compared.learned >= 1
        assert job_state(reviewing, changelist) == "succeeded"
    assert rows(reviewing, _ROW, changelist) == [(opened.sent[0]["id"], True, "sent")]


# what a job is


@pytest.mark.req("R-08")
@pytest.mark.seed(
    "001",
    "Mark job `succeeded` only when all required recipients for the target `review_version` have delivery "
    "rows with `notified_at` set.",
)
async def test_an_optional_recipient_that_fails_does_not_keep_a_job_from_succeeding_and_a_required_one_does(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    recipients = [Recipient(ADA, "hooks"), Recipient(GRACE, "hooks", required=False)]
    async with desk(reviewing, repository, tmp_path, Script(first=["", "refused"])) as opened:
        await waiting_notification(opened, changelist, repository, recipients=recipients)
        go_on(reviewing)
        ended = await opened.until(lambda: _both_are_over(reviewing, changelist))
        by_name = dict(ended)
        expected = "succeeded" if by_name[ADA] == "sent" else "retryable_failed"
        assert job_state(reviewing, changelist) == expected
        assert sorted(by_name.values()) == ["failed", "sent"]


def _both_are_over(dsn: str, changelist: str) -> list[tuple[Any, ...]] | None:
    query = "SELECT recipient, state FROM redrive_reviews.deliveries WHERE changelist_id = %s"
    found = rows(dsn, query, changelist)
    return found if all(state in ("sent", "failed") for _, state in found) else None


@pytest.mark.req("R-08", "R-12")
@pytest.mark.seed(
    "001",
    "Permanent failures (invalid recipient, policy rejection) SHOULD mark recipient delivery row failed and "
    "require operator or caller intervention.",
)
@pytest.mark.seed("001", "Otherwise keep job `retryable_failed` or `in_progress` depending on retry policy.")
async def test_a_refused_recipient_asks_for_an_operator_whose_replay_makes_the_job_succeed(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path, Script(first=["refused"])) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "retryable_failed")
        (row,) = rows(
            reviewing,
            "SELECT status, error_class, message_id FROM redrive_reviews.delivery WHERE changelist_id = %s",
            changelist,
        )
        assert row[:2] == ("failed", "RECIPIENT_INVALID")
        write(reviewing, "SELECT redrive.requeue_1(%s, 'anna', 'the mailbox exists now')", row[2])
        assert job_state(reviewing, changelist) in ("in_progress", "succeeded")
        await opened.state(changelist, "succeeded")
        assert len(opened.sent) == 1


@pytest.mark.req("R-11")
@pytest.mark.seed(
    "001",
    "All delivery attempts MUST be recorded in an outbox or delivery log keyed by `(changelist_id, recipient, "
    "review_version)`.",
)
@pytest.mark.seed(
    "001",
    "Provider idempotency keys SHOULD be deterministic and derived from the same tuple to prevent duplicate "
    "external deliveries.",
)
@pytest.mark.seed(
    "001",
    "Call provider send API using deterministic message payload and provider idempotency token "
    "derived from `(changelist_id, recipient, review_version)`.",
)
async def test_every_attempt_of_a_triple_is_listed_and_each_sent_the_same_bytes_under_one_token(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path, Script(first=["unavailable", "throttled"])) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "succeeded")
        from redrive.kit.proof import journal

        requests = [line for line in journal.read(opened.log) if line["log"] == "request"]
    assert len({(one["token"], one["sha256"]) for one in requests}) == 1
    listed = rows(
        reviewing,
        "SELECT attempt, code FROM redrive_reviews.delivery_attempts WHERE (tenant, changelist_id, recipient, "
        "review_version)"
        " = ('default', %s, %s, 1) ORDER BY attempt",
        changelist,
        ADA,
    )
    assert listed == [(1, "GATEWAY_LOST"), (2, "RATE_LIMITED"), (3, None)]


@pytest.mark.req("R-07", "R-11")
@pytest.mark.seed(
    "001",
    "Notification dedupe MUST be enforced by outbox/delivery-log uniqueness on `(changelist_id, "
    "recipient, review_version)`.",
)
def test_a_triple_has_one_row_and_one_message_whoever_writes(reviewing: str, changelist: str) -> None:
    submit(reviewing, request(changelist))
    again = (
        "INSERT INTO redrive_reviews.delivery (tenant, changelist_id, recipient, review_version, "
        "job_id, provider, required)"
        " SELECT tenant, changelist_id, recipient, review_version, job_id, provider, required"
        " FROM redrive_reviews.delivery WHERE changelist_id = %s"
    )
    with pytest.raises(psycopg.errors.UniqueViolation):
        write(reviewing, again, changelist)


@pytest.mark.req("R-11")
def test_the_token_of_a_triple_is_the_same_in_every_database() -> None:
    from uuid import uuid4

    from redrive.message import MessageId, token
    from redrive.systems.reviews.names import triple_of

    one, another = (
        token(MessageId(uuid4()), 1, "first", tenant="default", seed=triple_of("c", ADA, 3)) for _ in range(2)
    )
    assert one == another
    assert triple_of("c:1", "a@b", 3) != triple_of("c", "1:a@b", 3)


# a provider that cannot be asked, without a server


@pytest.mark.req("R-12")
@pytest.mark.parametrize("decision", [True, False])
async def test_over_smtp_a_mark_without_an_acceptance_is_held_until_a_person_decides(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, decision: bool
) -> None:
    async with desk(reviewing, repository, tmp_path) as opened:
        submit(reviewing, request(changelist, repository))
        await opened.state(changelist, "succeeded")
        provider = f"mail-{changelist}"
        write(
            reviewing,
            "UPDATE redrive_reviews.delivery SET evidence = NULL, provider = %s WHERE changelist_id = %s",
            provider,
            changelist,
        )
        blind = SmtpProvider(name=provider, host="127.0.0.1", sender="reviews@example.org")
        assert (await compare(reviewing, blind)).held == 1
        assert rows(reviewing, _STATE, changelist) == [("held",)]
        assert job_state(reviewing, changelist) == "retryable_failed"
        assert (await compare(reviewing, blind)).held == 0
        decided = "SELECT redrive_reviews.decide_1('default', %s, %s, 1, %s, 'anna', 'a test')"
        assert rows(reviewing, decided, changelist, ADA, decision) == [("done",)]
        assert rows(reviewing, decided, changelist, ADA, decision)[0][0] != "done"
        await asyncio.wait_for(opened.state(changelist, "succeeded"), 30)
    assert rows(reviewing, _VIOLATIONS, changelist) == [("held",)]
    messages = rows(
        reviewing, "SELECT count(*) FROM redrive_reviews.delivery_message WHERE changelist_id = %s", changelist
    )
    assert messages == [(1 if decision else 2,)]
