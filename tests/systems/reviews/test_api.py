"""Submissions over HTTP: the rules and answers of the library, by role and tenant (R-06, G-21)."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.principal import Role
from redrive.systems import reviews
from redrive.systems.reviews import Recipient
from tests.api.conftest import ORIGIN, House, asking, bearer
from tests.systems.reviews.conftest import ADA, GRACE, Repository, desk, request, rows, submit

pytestmark = [pytest.mark.req("R-06", "G-21")]
JOBS = "/api/v1/reviews/jobs"
ATTEMPTS = "/api/v1/reviews/attempts"
_COUNT = (
    "SELECT (SELECT count(*) FROM redrive_reviews.job WHERE changelist_id = %s),"
    " (SELECT count(*) FROM redrive_reviews.changelist WHERE changelist_id = %s),"
    " (SELECT count(*) FROM redrive.message WHERE convert_from(body, 'UTF8')::json ->> 'changelist_id' = %s)"
)


class Caller:
    """Asks the API as a role of a tenant."""

    def __init__(self, house: House, client: Any) -> None:
        self._house, self._client = house, client

    async def post(self, path: str, body: Any, *, role: Role = Role.OPERATOR, tenant: str = "*") -> tuple[int, Any]:
        """With an Idempotency-Key of its own: what repeats a submission is the key in its body."""
        headers = {**bearer(await self._house.token(role, tenant)), "Idempotency-Key": secrets.token_hex(8)}
        reply = await self._client.post(path, json=body, headers=headers)
        return reply.status_code, reply.json()

    async def get(
        self, path: str, asked: Mapping[str, Any], *, role: Role = Role.OPERATOR, tenant: str = "*"
    ) -> tuple[int, Any]:
        reply = await self._client.get(path, params=asked, headers=bearer(await self._house.token(role, tenant)))
        return reply.status_code, reply.json()


@pytest.fixture
async def caller(reviewing: str) -> AsyncIterator[Caller]:
    house = House(reviewing)
    app = create_app(reviewing, AuthConfig(origin=ORIGIN), systems={"reviews": reviews.system})
    async with asking(app) as client:
        yield Caller(house, client)


def body(changelist: str, **other: Any) -> dict[str, Any]:
    """The same as `request` of the conftest."""
    wanted: Mapping[str, Any] = {
        "changelist_id": changelist,
        "idempotency_key": f"key of {changelist}",
        "repository": "shop",
        "base_commit": "main",
        "head_commit": "topic",
        "recipients": [{"address": ADA, "provider": "hooks"}],
    }
    return {**wanted, **other}


def written(dsn: str, changelist: str) -> tuple[Any, ...]:
    """Jobs, changelists and messages of that name."""
    return rows(dsn, _COUNT, changelist, changelist, changelist)[0]


def succeed(dsn: str, changelist: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "UPDATE redrive_reviews.job SET succeeded_at = clock_timestamp() WHERE changelist_id = %s", [changelist]
        )


async def test_a_submission_is_one_job_by_its_key_however_often_and_by_whichever_way(
    reviewing: str, changelist: str, caller: Caller
) -> None:
    status, made = await caller.post(JOBS, body(changelist))
    assert (status, made["already_existed"], made["request_differs"], made["state"]) == (
        201,
        False,
        False,
        "in_progress",
    )
    status, again = await caller.post(JOBS, body(changelist))
    assert (status, again) == (200, {**made, "already_existed": True})
    status, differs = await caller.post(JOBS, body(changelist, head_commit="elsewhere"))
    assert (status, differs["job_id"], differs["request_differs"]) == (200, made["job_id"], True)
    library = submit(reviewing, request(changelist))
    assert (str(library.job_id), library.already_existed, library.request_differs) == (made["job_id"], True, False)
    assert written(reviewing, changelist) == (1, 1, 1)


async def test_a_rerun_is_refused_while_the_version_before_is_under_way_and_needs_a_higher_version(
    reviewing: str, changelist: str, caller: Caller
) -> None:
    _, made = await caller.post(JOBS, body(changelist))
    path, second = f"{JOBS}/{changelist}/reruns", {"review_version": 2, "idempotency_key": f"{changelist} 2"}
    status, refused = await caller.post(path, second)
    assert (status, refused["reason"], refused["job_id"]) == (409, "REVIEW_IN_PROGRESS", made["job_id"])
    succeed(reviewing, changelist)
    status, plain = await caller.post(JOBS, body(changelist, review_version=2, idempotency_key="another"))
    assert (status, plain["reason"]) == (409, "RERUN_NOT_REQUESTED")
    assert (await caller.post(path, {**second, "review_version": 1}))[1]["job_id"] == made["job_id"]
    status, rerun = await caller.post(path, {**second, "head_commit": "better"})
    assert (status, rerun["review_version"], rerun["already_existed"]) == (201, 2, False)
    assert (await caller.post(path, {**second, "head_commit": "better"}))[0] == 200
    kept = "SELECT base_commit, head_commit FROM redrive_reviews.job WHERE changelist_id = %s AND review_version = 2"
    assert rows(reviewing, kept, changelist) == [("main", "better")]
    succeed(reviewing, changelist)
    status, lower = await caller.post(path, {"review_version": 0, "idempotency_key": "lower"})
    assert (status, lower["reason"]) == (422, "VERSION_INVALID")


async def test_a_viewer_submits_nothing(reviewing: str, changelist: str, caller: Caller) -> None:
    for path, given in (
        (JOBS, body(changelist)),
        (f"{JOBS}/{changelist}/reruns", {"review_version": 2, "idempotency_key": "k"}),
    ):
        status, problem = await caller.post(path, given, role=Role.VIEWER)
        assert (status, problem["code"]) == (403, "ROLE_TOO_LOW")
    assert written(reviewing, changelist) == (0, 0, 0)


async def test_a_caller_of_one_tenant_submits_there_and_reruns_nothing_of_another(
    reviewing: str, changelist: str, caller: Caller
) -> None:
    await caller.post(JOBS, body(changelist))
    succeed(reviewing, changelist)
    again = {"review_version": 2, "idempotency_key": f"{changelist} 2"}
    status, problem = await caller.post(f"{JOBS}/{changelist}/reruns?tenant=default", again, tenant="acme")
    assert (status, problem["reason"]) == (422, "NOTHING_TO_RERUN")
    status, made = await caller.post(f"{JOBS}?tenant=default", body(changelist), tenant="acme")
    assert (status, made["already_existed"]) == (201, False)
    owners = "SELECT tenant, review_version FROM redrive_reviews.job WHERE changelist_id = %s ORDER BY tenant"
    assert rows(reviewing, owners, changelist) == [("acme", 1), ("default", 1)]


@pytest.mark.req("R-11")
async def test_attempts_are_listed_by_changelist_recipient_and_version_and_name_addresses_to_operators_only(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str, caller: Caller
) -> None:
    recipients = [Recipient(ADA, "hooks"), Recipient(GRACE, "hooks")]
    async with desk(reviewing, repository, tmp_path) as opened:
        submit(reviewing, request(changelist, repository, recipients=recipients))
        await opened.state(changelist, "succeeded")
    asked = {"changelist_id": changelist, "version": 1}
    status, found = await caller.get(ATTEMPTS, asked)
    assert (status, [(one["recipient"], one["answer"]) for one in found["items"]]) == (
        200,
        [(ADA, "delivered"), (GRACE, "delivered")],
    )
    _, found = await caller.get(ATTEMPTS, {**asked, "recipient": "ada@Example.ORG"})
    assert [one["recipient"] for one in found["items"]] == [ADA]
    _, found = await caller.get(ATTEMPTS, asked, role=Role.VIEWER)
    assert [one["recipient"] for one in found["items"]] == ["…@example.org"] * 2
    for wrong, status in (({"version": 2}, 404), ({"version": 0}, 422), ({"changelist_id": "never"}, 404)):
        assert (await caller.get(ATTEMPTS, {**asked, **wrong}))[0] == status
    assert (await caller.get(ATTEMPTS, asked, tenant="acme"))[0] == 404


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    "wrong",
    [
        {"recipients": []},
        {"recipients": [{"address": "no address"}]},
        {"recipients": [{"address": ADA}, {"address": ADA, "required": False}]},
        {"review_version": 0},
        {"review_version": "1"},
        {"head_commit": "--output=x"},
        {"unknown": 1},
        {"idempotency_key": ""},
        {"base_commit": "main\n"},
    ],
)
async def test_what_cannot_be_right_is_refused_and_nothing_is_written(
    reviewing: str, changelist: str, caller: Caller, wrong: dict[str, Any]
) -> None:
    status, problem = await caller.post(JOBS, body(changelist, **wrong))
    assert (status, "detail" in problem) == (422, True)
    assert written(reviewing, changelist) == (0, 0, 0)


async def test_a_recipient_that_is_named_twice_alike_is_notified_once(
    reviewing: str, changelist: str, caller: Caller
) -> None:
    twice = [{"address": ADA, "provider": "hooks"}, {"address": ADA, "provider": "hooks"}]
    await caller.post(JOBS, body(changelist, recipients=twice))
    same = submit(reviewing, request(changelist, recipients=[Recipient(ADA, "hooks")]))
    assert (same.already_existed, same.request_differs) == (True, False)
    counted = "SELECT count(*) FROM redrive_reviews.delivery WHERE changelist_id = %s"
    assert rows(reviewing, counted, changelist) == [(1,)]
