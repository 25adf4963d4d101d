"""Who asks twice gets one job, and another version only where it is higher and asked for (R-06)."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from redrive.systems import reviews
from redrive.systems.reviews import Recipient, ReviewRefused, ReviewRequest
from redrive.systems.reviews.submission import Submitted
from tests.systems.reviews.conftest import ADA, GRACE, request, rows, submit


def _finish(dsn: str, changelist_id: str, how: str) -> None:
    """As if the latest job had come to this end."""
    with psycopg.connect(dsn) as conn:
        if how == "succeeded":
            conn.execute(
                "UPDATE redrive_reviews.job SET succeeded_at = clock_timestamp() WHERE changelist_id = %s",
                [changelist_id],
            )
        else:
            found = conn.execute("SELECT message_id FROM redrive_reviews.job WHERE changelist_id = %s", [changelist_id])
            row = found.fetchone()
            assert row is not None
            conn.execute("SELECT redrive.cancel_1(%s)", [row[0]])


def _rerun(dsn: str, changelist_id: str, version: int, **other: Any) -> Submitted:
    with psycopg.connect(dsn) as conn:
        return reviews.rerun(
            conn,
            changelist_id,
            review_version=version,
            **{"idempotency_key": f"{changelist_id} again {version}", **other},
        )


@pytest.mark.req("R-06")
@pytest.mark.seed(
    "001",
    "Duplicate `idempotency_key` submissions MUST return the originally created job record and MUST NOT "
    "create a second job.",
)
@pytest.mark.seed("001", "A new review-processing job MUST be created with a caller-provided `idempotency_key`.")
def test_the_same_key_is_the_same_job_and_another_request_under_it_is_said_so(reviewing: str, changelist: str) -> None:
    first = submit(reviewing, request(changelist))
    again = submit(reviewing, request(changelist))
    other = submit(reviewing, request(changelist, head_commit="elsewhere"))
    assert (first.already_existed, first.request_differs, first.state) == (False, False, "in_progress")
    assert (again.job_id, again.already_existed, again.request_differs) == (first.job_id, True, False)
    assert (other.job_id, other.already_existed, other.request_differs) == (first.job_id, True, True)
    # Also from another changelist: the key is the caller's, and the job that it names stays what it is.
    foreign = submit(reviewing, request(f"{changelist}-b", idempotency_key=f"key of {changelist}"))
    assert (foreign.job_id, foreign.changelist_id, foreign.request_differs) == (first.job_id, changelist, True)
    assert rows(
        reviewing, "SELECT count(*) FROM redrive_reviews.changelist WHERE changelist_id = %s", f"{changelist}-b"
    ) == [(0,)]


@pytest.mark.req("R-06")
@pytest.mark.seed("001", "The `jobs.idempotency_key` column MUST have a unique constraint.")
@pytest.mark.seed(
    "001",
    "If an insert violates that unique constraint, the service MUST treat it as a duplicate request "
    "and return the existing job instead of creating a second job.",
)
@pytest.mark.seed("001", "`idempotency_key` MUST be unique for job creation requests.")
def test_sixteen_submissions_at_once_make_one_job_and_one_message(reviewing: str, changelist: str) -> None:
    done: list[Submitted] = []
    start = threading.Barrier(16)

    def run() -> None:
        with psycopg.connect(reviewing) as conn:
            start.wait()
            done.append(reviews.submit(conn, request(changelist)))

    threads = [threading.Thread(target=run) for _ in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(done) == 16
    assert len({one.job_id for one in done}) == 1
    assert sum(not one.already_existed for one in done) == 1
    counted = "SELECT count(*) FROM redrive.message WHERE convert_from(body, 'UTF8')::json ->> 'changelist_id' = %s"
    assert rows(reviewing, counted, changelist) == [(1,)]


@pytest.mark.req("R-06")
@pytest.mark.seed("001", "**Blocked** when the request uses the same `review_version` (no-op; return existing result).")
@pytest.mark.seed(
    "001",
    "Reprocessing a succeeded job with identical `review_version` is **not allowed** as a new send "
    "operation; it should return prior success.",
)
def test_the_same_version_under_another_key_is_that_versions_job(reviewing: str, changelist: str) -> None:
    first = submit(reviewing, request(changelist))
    _finish(reviewing, changelist, "succeeded")
    again = submit(reviewing, request(changelist, idempotency_key=f"{changelist}: another"))
    assert (again.job_id, again.already_existed, again.state, again.request_differs) == (
        first.job_id,
        True,
        "succeeded",
        False,
    )
    differs = _rerun(reviewing, changelist, 1, head_commit="elsewhere")
    assert (differs.job_id, differs.request_differs) == (first.job_id, True)


@pytest.mark.req("R-06")
@pytest.mark.seed(
    "001",
    "**Allowed** only when the caller explicitly requests a **versioned rerun** with a strictly higher "
    "`review_version`.",
)
@pytest.mark.parametrize("ended", ["succeeded", "given up"])
@pytest.mark.seed(
    "001",
    "A versioned rerun MUST create a new logical attempt tied to the same `changelist_id` but a new `review_version`.",
)
@pytest.mark.seed(
    "001",
    "Reprocessing is **allowed** as a versioned rerun only with a new `review_version` (e.g., v3 -> "
    "v4), which creates new delivery intents under new keys.",
)
def test_a_rerun_is_a_new_job_of_the_same_changelist_with_new_deliveries(
    reviewing: str, changelist: str, ended: str
) -> None:
    recipients = [Recipient(ADA, "hooks"), Recipient(GRACE, "hooks", required=False)]
    first = submit(reviewing, request(changelist, recipients=recipients))
    _finish(reviewing, changelist, ended)
    with pytest.raises(ReviewRefused) as caught:
        submit(reviewing, request(changelist, review_version=2, idempotency_key=f"{changelist} 2"))
    assert (caught.value.reason, caught.value.job_id) == ("RERUN_NOT_REQUESTED", first.job_id)
    second = _rerun(reviewing, changelist, 4, head_commit="later")
    assert (second.changelist_id, second.review_version, second.already_existed) == (changelist, 4, False)
    assert second.job_id != first.job_id
    listed = rows(
        reviewing,
        "SELECT recipient, review_version, required FROM redrive_reviews.delivery WHERE changelist_id = %s "
        "ORDER BY 2, 1",
        changelist,
    )
    assert listed == [(ADA, 1, True), (GRACE, 1, False), (ADA, 4, True), (GRACE, 4, False)]
    assert _rerun(reviewing, changelist, 4, head_commit="later").already_existed
    with pytest.raises(ReviewRefused) as caught:
        _rerun(reviewing, changelist, 3)
    assert caught.value.reason == "VERSION_NOT_HIGHER"


@pytest.mark.req("R-06")
def test_a_rerun_that_is_repeated_after_a_later_version_is_the_same_request(reviewing: str, changelist: str) -> None:
    """What it does not name is as in the version before its own, not as in the latest."""
    submit(reviewing, request(changelist))
    _finish(reviewing, changelist, "succeeded")
    second = _rerun(reviewing, changelist, 2)
    _finish(reviewing, changelist, "succeeded")
    _rerun(reviewing, changelist, 3, head_commit="later", idempotency_key=f"{changelist} again")
    again = _rerun(reviewing, changelist, 2)
    assert (again.job_id, again.already_existed, again.request_differs) == (second.job_id, True, False)
    with psycopg.connect(reviewing) as conn, pytest.raises(ReviewRefused) as caught:
        reviews.rerun(conn, changelist, review_version=2**31, idempotency_key="large")
    assert caught.value.reason == "VERSION_INVALID"
    named = "SELECT head_commit, review_version FROM redrive_reviews.earlier_1('default', %s)"
    assert rows(reviewing, named, changelist) == [("later", 3)]


@pytest.mark.req("R-06")
def test_a_rerun_while_the_version_before_is_under_way_is_refused(reviewing: str, changelist: str) -> None:
    first = submit(reviewing, request(changelist))
    with pytest.raises(ReviewRefused) as caught:
        _rerun(reviewing, changelist, 2)
    assert (caught.value.reason, caught.value.job_id) == ("REVIEW_IN_PROGRESS", first.job_id)
    with pytest.raises(ReviewRefused) as caught:
        _rerun(reviewing, f"{changelist}-never", 2)
    assert caught.value.reason == "NOTHING_TO_RERUN"


@pytest.mark.req("R-06", "G-19")
@pytest.mark.parametrize(
    ("other", "reason", "field"),
    [
        ({"recipients": []}, "RECIPIENT_INVALID", "recipients"),
        ({"recipients": [Recipient("ada")]}, "RECIPIENT_INVALID", "recipient"),
        ({"recipients": [Recipient("ada@example.org\r\nBcc: eve@example.org")]}, "RECIPIENT_INVALID", "recipient"),
        ({"recipients": [Recipient("ada@example.org,eve@example.org")]}, "RECIPIENT_INVALID", "recipient"),
        ({"recipients": [Recipient(f"{'a' * 65}@example.org")]}, "RECIPIENT_INVALID", "recipient"),
        ({"recipients": [Recipient(ADA), Recipient(ADA, required=False)]}, "RECIPIENT_INVALID", "recipients"),
        (
            {"recipients": [Recipient(ADA), Recipient("ada@EXAMPLE.org", required=False)]},
            "RECIPIENT_INVALID",
            "recipients",
        ),
        ({"recipients": [Recipient(f"a{n}@b.c") for n in range(101)]}, "RECIPIENT_INVALID", "recipients"),
        ({"recipients": [Recipient(ADA, "E mail")]}, "PROVIDER_INVALID", "provider"),
        ({"repository": "../shop"}, "REPOSITORY_INVALID", "repository"),
        ({"head_commit": "--output=x"}, "COMMIT_INVALID", "head_commit"),
        ({"base_commit": "a..b"}, "COMMIT_INVALID", "base_commit"),
        ({"review_version": 0}, "VERSION_INVALID", "review_version"),
        ({"review_version": True}, "VERSION_INVALID", "review_version"),
        ({"changelist_id": ""}, "TEXT_INVALID", "changelist_id"),
        ({"changelist_id": "a\nb"}, "TEXT_INVALID", "changelist_id"),
        ({"idempotency_key": "k" * 501}, "TEXT_INVALID", "idempotency_key"),
    ],
)
def test_a_request_that_cannot_be_right_is_refused_by_its_field_and_nothing_is_written(
    reviewing: str, changelist: str, other: dict[str, Any], reason: str, field: str
) -> None:
    with psycopg.connect(reviewing) as conn:
        with pytest.raises(ReviewRefused) as caught:
            reviews.submit(conn, request(changelist, **other))
        assert (caught.value.reason, caught.value.field) == (reason, field)
        assert conn.execute("SELECT 1").fetchone() == (1,)
    assert rows(reviewing, "SELECT count(*) FROM redrive_reviews.changelist WHERE changelist_id = %s", changelist) == [
        (0,)
    ]


@pytest.mark.req("R-06")
def test_the_neighbours_of_what_is_refused_are_accepted(reviewing: str, changelist: str) -> None:
    long_address = f"{'a' * 64}@example.org"
    wanted = request(
        changelist,
        recipients=[Recipient(f"a{n}@b.c") for n in range(99)] + [Recipient(long_address)],
        idempotency_key=f"{changelist}{'k' * (500 - len(changelist))}",
        head_commit="feature/x~2",
        review_version=2_147_483_647,
    )
    assert not submit(reviewing, wanted).already_existed


@pytest.mark.req("R-06", "R-07")
def test_a_mailbox_is_one_recipient_however_its_domain_is_written(reviewing: str, changelist: str) -> None:
    """The case of a domain does not count; that of what stands before it is the receiving server's affair."""
    other = ("ada@EXAMPLE.org", "ada@example.org", "Ada@example.org")
    first = submit(reviewing, request(changelist, recipients=[Recipient(one) for one in other]))
    again = submit(reviewing, request(changelist, recipients=[Recipient(one) for one in other[1:]]))
    assert (again.job_id, again.request_differs) == (first.job_id, False)
    kept = 'SELECT recipient FROM redrive_reviews.delivery WHERE changelist_id = %s ORDER BY recipient COLLATE "C"'
    assert rows(reviewing, kept, changelist) == [("Ada@example.org",), ("ada@example.org",)]


@pytest.mark.req("R-06")
def test_a_submission_that_is_rolled_back_never_was(reviewing: str, changelist: str) -> None:
    with psycopg.connect(reviewing) as conn:
        submitted = reviews.submit(conn, request(changelist))
        conn.rollback()
    assert rows(reviewing, "SELECT count(*) FROM redrive_reviews.job WHERE job_id = %s", submitted.job_id) == [(0,)]
    assert not submit(reviewing, request(changelist)).already_existed


@pytest.mark.req("R-06")
async def test_an_asynchronous_connection_submits_and_reruns(reviewing: str, changelist: str) -> None:
    async with await psycopg.AsyncConnection.connect(reviewing) as conn:
        first = await reviews.asubmit(conn, request(changelist))
        with pytest.raises(ReviewRefused):
            await reviews.arerun(conn, changelist, review_version=2, idempotency_key=f"{changelist} again")
        assert (await reviews.asubmit(conn, request(changelist))).job_id == first.job_id


@pytest.mark.req("R-06")
def test_a_request_is_read_from_json_field_by_field() -> None:
    given = {
        "changelist_id": "c",
        "idempotency_key": "k",
        "repository": "shop",
        "base_commit": "a",
        "head_commit": "b",
        "recipients": [ADA, {"address": GRACE, "provider": "hooks", "required": False}],
    }
    assert ReviewRequest.read(given).recipients == [Recipient(ADA), Recipient(GRACE, "hooks", required=False)]
    for wrong, reason in (
        ({**given, "more": 1}, "FIELD_UNKNOWN"),
        ({key: value for key, value in given.items() if key != "repository"}, "FIELD_MISSING"),
        ({**given, "recipients": ADA}, "RECIPIENT_INVALID"),
        ({**given, "recipients": [{"to": ADA}]}, "RECIPIENT_INVALID"),
    ):
        with pytest.raises(ReviewRefused) as caught:
            ReviewRequest.read(wrong)
        assert caught.value.reason == reason
