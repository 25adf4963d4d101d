"""The way of a review from the commit to the notification, and that a failure of one stage repeats no other (R-01)."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.systems.reviews import Recipient
from redrive.systems.reviews.simulators.script import Script
from tests.systems.reviews.conftest import ADA, GRACE, Repository, desk, request, rows, submit

_ATTEMPTS = """
SELECT split_part(a.destination, '.', 2), count(*) FROM redrive.attempt a
 WHERE a.verb = 'settle' AND a.message_id IN (
       SELECT message_id FROM redrive_reviews.job WHERE changelist_id = %s
       UNION SELECT message_id FROM redrive_reviews.delivery WHERE changelist_id = %s) GROUP BY 1
"""


@pytest.mark.req("R-01", "R-08", "R-09")
@pytest.mark.seed(
    "001",
    "Persist DB update in a single write: set `notification_id`, set `notified_at = now()`, and "
    "mark delivery status `sent`.",
)
@pytest.mark.seed("001", "Persist an outbox/delivery-log row per recipient keyed by that tuple.")
async def test_a_changelist_is_fetched_reviewed_and_every_recipient_is_notified_once(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path) as opened:
        wanted = request(changelist, repository, recipients=[Recipient(ADA, "hooks"), Recipient(GRACE, "hooks")])
        submit(reviewing, wanted)
        assert await opened.state(changelist, "succeeded") == "succeeded"
        assert sorted(one["to"] for one in opened.sent) == [ADA, GRACE]
        assert {one["subject"] for one in opened.sent} == {f"[review] {changelist} (version 1): 2 errors, 1 warning"}
    assert dict(rows(reviewing, _ATTEMPTS, changelist, changelist)) == {"fetch": 1, "llm": 1, "notify": 2}
    written = rows(
        reviewing,
        "SELECT notification_id, notified_at IS NOT NULL, status FROM redrive_reviews.delivery WHERE "
        "changelist_id = %s",
        changelist,
    )
    assert {one[0] for one in written} == {one["id"] for one in opened.sent}
    assert {one[1:] for one in written} == {(True, "sent")}


@pytest.mark.req("R-01", "R-12")
@pytest.mark.seed("001", "Failure in one stage MUST NOT consume attempts from other stages.")
@pytest.mark.seed(
    "001", "If a stage exhausts budget, processing transitions to dead-letter with stage-specific metadata."
)
async def test_five_failures_of_notify_leave_fetch_and_llm_at_one_attempt_each(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with desk(reviewing, repository, tmp_path, Script(first=["unavailable"] * 5)) as opened:
        submit(reviewing, request(changelist, repository))
        assert await opened.state(changelist, "succeeded", "retryable_failed") == "retryable_failed"
    assert dict(rows(reviewing, _ATTEMPTS, changelist, changelist)) == {"fetch": 1, "llm": 1, "notify": 5}
    assert opened.sent == []
    (dead,) = rows(
        reviewing,
        "SELECT stage, error_class, category FROM redrive_reviews.dead_letters WHERE message_id ="
        " (SELECT message_id FROM redrive_reviews.delivery WHERE changelist_id = %s)",
        changelist,
    )
    assert dead == ("notify", "GATEWAY_LOST", "network")


@pytest.mark.req("R-02", "R-08", "G-19")
async def test_a_changelist_that_cannot_be_reviewed_waits_for_an_operator_with_nothing_half_written(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    """Each bad input is dead in `fetch` by a class of its own; nobody is notified, and no diff is kept."""
    wrong: dict[str, dict[str, str]] = {
        "REPOSITORY_UNKNOWN": {"repository": "elsewhere"},
        "COMMIT_UNKNOWN": {"head_commit": "f" * 40},
        "DIFF_EMPTY": {"head_commit": repository.base},
    }
    async with desk(reviewing, repository, tmp_path) as opened:
        for error_class, other in wrong.items():
            submit(reviewing, request(f"{changelist}-{error_class}", repository, **other))
            await opened.state(f"{changelist}-{error_class}", "retryable_failed")
        assert opened.calls == []
    async with desk(reviewing, repository, tmp_path, diff_bytes_max=10) as opened:
        submit(reviewing, request(f"{changelist}-DIFF_TOO_LARGE", repository))
        await opened.state(f"{changelist}-DIFF_TOO_LARGE", "retryable_failed")
    for error_class in [*wrong, "DIFF_TOO_LARGE"]:
        left = rows(
            reviewing,
            "SELECT k.stage, k.error_class, d.status, d.message_id, w.message_id FROM redrive_reviews.job j"
            " JOIN redrive_reviews.dead_letters k USING (message_id)"
            " JOIN redrive_reviews.delivery d ON d.job_id = j.job_id"
            " LEFT JOIN redrive_reviews.work w ON w.message_id = j.message_id WHERE j.changelist_id = %s",
            f"{changelist}-{error_class}",
        )
        assert left == [("fetch", error_class, "waiting", None, None)]
