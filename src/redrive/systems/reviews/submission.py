"""`submit` and `rerun`: a review, its recipients and its message, in the caller's transaction (R-06).

One statement on a connection of any driver that `redrive.enqueue` knows; a refusal leaves the transaction usable. SQL:
`sql/verbs/submit.sql`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, LiteralString, NewType
from uuid import UUID

from redrive.kit.statements import Steps, arun, as_headers, run
from redrive.systems.reviews.names import FIRST_DESTINATION, TENANT
from redrive.systems.reviews.request import Recipient, ReviewRefused, ReviewRequest, check_version, checked

JobId = NewType("JobId", UUID)
_SUBMIT: Final[LiteralString] = (
    "SELECT result, job_id, changelist_id, review_version, state, request_differs FROM "
    "redrive_reviews.submit_1(%s::text,"
    " %s::text, %s::text, %s::integer, %s::text, %s::text, %s::text, %s::text::json, %s::bytea, %s::boolean, %s::text,"
    " %s::text::json)"
)
_EARLIER: Final[LiteralString] = (
    "SELECT repository, base_commit, head_commit, review_version, recipients::text FROM "
    "redrive_reviews.earlier_2(%s::text, %s::text, %s::integer)"
)
# What is in the way of another version, as a sentence; {version} is the one that the changelist has.
_REFUSALS: Final[Mapping[str, str]] = {
    "review_in_progress": "version {version} of this changelist is still under way.",
    "rerun_not_requested": "this changelist has version {version}; another one is made by a rerun.",
    "version_not_higher": "this changelist has version {version}; a rerun needs a higher one.",
    "nothing_to_rerun": "this changelist was never submitted.",
}


@dataclass(frozen=True, slots=True)
class Submitted:
    """What `submit` and `rerun` give back.

    already_existed: the key, or the version of the changelist, was submitted before; the rest is that job's.
    request_differs: and then it was asked for something else, which is not done. state: succeeded, in_progress, or
    retryable_failed.
    """

    job_id: JobId
    changelist_id: str
    review_version: int
    already_existed: bool
    request_differs: bool
    state: str


def submit(conn: Any, request: ReviewRequest) -> Submitted:
    """Submit a changelist for review in the transaction of `conn`. Refused with `ReviewRefused`."""
    return run(conn, submit_steps(request))


async def asubmit(conn: Any, request: ReviewRequest) -> Submitted:
    """`submit` for an asynchronous connection."""
    return await arun(conn, submit_steps(request))


def rerun(
    conn: Any,
    changelist_id: str,
    *,
    review_version: int,
    idempotency_key: str,
    base_commit: str | None = None,
    head_commit: str | None = None,
    recipients: Sequence[Recipient] | None = None,
    tenant: str = TENANT,
) -> Submitted:
    """Review a changelist again, under a higher version and a new key, in the transaction of `conn`.

    What is not given is as in the version before. All recipients are notified of the new version, also those that know
    the old one.
    """
    steps = rerun_steps(
        changelist_id,
        review_version=review_version,
        idempotency_key=idempotency_key,
        base_commit=base_commit,
        head_commit=head_commit,
        recipients=recipients,
        tenant=tenant,
    )
    return run(conn, steps)


async def arerun(
    conn: Any,
    changelist_id: str,
    *,
    review_version: int,
    idempotency_key: str,
    base_commit: str | None = None,
    head_commit: str | None = None,
    recipients: Sequence[Recipient] | None = None,
    tenant: str = TENANT,
) -> Submitted:
    """`rerun` for an asynchronous connection."""
    steps = rerun_steps(
        changelist_id,
        review_version=review_version,
        idempotency_key=idempotency_key,
        base_commit=base_commit,
        head_commit=head_commit,
        recipients=recipients,
        tenant=tenant,
    )
    return await arun(conn, steps)


def submit_steps(request: ReviewRequest) -> Steps[Submitted]:
    """`submit` as statements, which the router runs."""
    return (yield from _submitting(checked(request), is_rerun=False))


def rerun_steps(
    changelist_id: str,
    *,
    review_version: int,
    idempotency_key: str,
    base_commit: str | None,
    head_commit: str | None,
    recipients: Sequence[Recipient] | None,
    tenant: str,
) -> Steps[Submitted]:
    given = {"base_commit": base_commit, "head_commit": head_commit, "recipients": recipients}
    named = {name: value for name, value in given.items() if value is not None}
    check_version(review_version)
    rows = yield _EARLIER, (tenant, changelist_id, review_version)
    repository, before_base, before_head, earlier, known = rows[0]
    if earlier is None:
        raise _refusal("nothing_to_rerun", "changelist_id", changelist_id, None, None)
    before: dict[str, Any] = {
        "base_commit": before_base,
        "head_commit": before_head,
        "recipients": [Recipient(one["recipient"], one["provider"], one["required"]) for one in json.loads(known)],
    }
    request = ReviewRequest(
        changelist_id=changelist_id,
        idempotency_key=idempotency_key,
        repository=repository,
        review_version=review_version,
        tenant=tenant,
        **{**before, **named},
    )
    return (yield from _submitting(checked(request), is_rerun=True))


def _submitting(request: ReviewRequest, *, is_rerun: bool) -> Steps[Submitted]:
    recipients = [
        {"recipient": one.address, "provider": one.provider, "required": one.required} for one in request.recipients
    ]
    rows = yield (
        _SUBMIT,
        (
            request.tenant,
            request.idempotency_key,
            request.changelist_id,
            request.review_version,
            request.repository,
            request.base_commit,
            request.head_commit,
            json.dumps(recipients),
            request.hash,
            is_rerun,
            FIRST_DESTINATION,
            as_headers({}),
        ),
    )
    result, job_id, changelist_id, version, state, differs = rows[0]
    if result in _REFUSALS:
        raise _refusal(result, "review_version", request.review_version, version, job_id)
    id = job_id if isinstance(job_id, UUID) else UUID(job_id)  # psycopg2 knows no uuid unless it was told
    return Submitted(JobId(id), changelist_id, version, result != "new", differs, state)


def _refusal(result: str, field: str, value: object, version: int | None, job_id: object) -> ReviewRefused:
    return ReviewRefused(result.upper(), field, value, _REFUSALS[result].format(version=version), job_id=job_id)
