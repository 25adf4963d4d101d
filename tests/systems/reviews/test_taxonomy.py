"""The failure table of the document, row by row (R-02), the delays between attempts (R-03), and the same table in
SQL.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from redrive import answers
from redrive.answers import Absent, Answer, CannotTell, Delivered, Found, Retryable, Terminal, Unknown
from redrive.policy import Rules, SettlementKind, decide
from redrive.systems.reviews import ChatCritic
from redrive.systems.reviews.changelist import Changelist, fetch_changelist
from redrive.systems.reviews.diff import parse_diff
from redrive.systems.reviews.providers import CODES, TEXTS, answer_of, check_payload, found_of
from redrive.systems.reviews.stages import _asked as _asked_fields
from redrive.systems.reviews.taxonomy import (
    BY_CLASS,
    CATEGORIES,
    POLICY,
    SENT_WITHOUT_RECORD,
    category_of,
    of_status,
    retryable,
    terminal,
)
from redrive.transports.http import Egress, _failed
from redrive.transports.http.client import Reply
from tests.support import messages as m
from tests.systems.reviews.conftest import ADA, Repository, commit, git, rows
from tests.transports.servers import HERE, Answering, hang_up, serving

_LOST = (ConnectionRefusedError, ConnectionResetError, TimeoutError, socket.gaierror, aiohttp.ClientError)
DIFF = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1,2 @@\n a = 1\n+b = 2\n"
CHANGE = Changelist(base="1" * 40, head="2" * 40, diff=DIFF)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _reply(status: int, said: Any = None, **headers: str) -> Reply:
    return Reply(status, headers, json.dumps(said if said is not None else {}).encode(), True)


async def _asked(answer: Answering) -> Answer:
    """What a model's reply leads to, over a real connection."""
    async with serving(answer) as server:
        critic = ChatCritic(url=server.url, model="m", api_key="key-of-the-test", egress=HERE)
        try:
            await critic.review(CHANGE)
        except Answer as raised:
            return raised
        finally:
            await critic.aclose()
    raise AssertionError("the critic did not fail")


def _saying(status: int, said: Any = None, **headers: str) -> Answering:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(said if said is not None else {}, status=status, headers=headers)

    return answer


def _is(answer: Answer, category: str) -> bool:
    code = getattr(answer, "code", "")
    return category_of(code) == category and isinstance(answer, Retryable) == BY_CLASS[code].is_retryable


# a row each


@pytest.mark.req("R-02")
@pytest.mark.seed("001", "Network transient")
async def test_a_network_failure_is_retryable_and_where_it_may_have_been_sent_the_provider_is_asked() -> None:
    lost = await _asked(hang_up)
    assert isinstance(lost, Retryable)
    assert _is(lost, "network")
    for status in (502, 503, 504):
        assert _is(await _asked(_saying(status)), "network")
    refused = ChatCritic(
        url="http://127.0.0.1:1",
        model="m",
        egress=Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}), ports=frozenset({1})),
    )
    with pytest.raises(Retryable) as caught:
        await refused.review(CHANGE)
    await refused.aclose()
    assert caught.value.code == "CONNECTION_REFUSED"
    assert _is(answer_of(_reply(503)), "network")
    for status in (408, 502, 504):
        assert answer_of(_reply(status)) == Unknown("GATEWAY_LOST", f"The provider answered with status {status}.")


@pytest.mark.req("R-02", "R-03")
@pytest.mark.seed("001", "Rate limiting / quota throttling")
async def test_a_rate_limit_is_retryable_no_sooner_than_it_says() -> None:
    said = {"error": {"code": "rate_limit_exceeded"}}
    throttled = await _asked(_saying(400, said, **{"Retry-After": "7"}))
    assert throttled == retryable("RATE_LIMITED", "The model answered with status 400.", retry_after="7")
    assert (await _asked(_saying(429))).code == "RATE_LIMITED"  # type: ignore[attr-defined]
    assert _is(answer_of(_reply(429, {"code": "rate_limit_exceeded"})), "rate_limit")


@pytest.mark.req("R-02")
@pytest.mark.seed("001", "Upstream internal service errors")
async def test_an_internal_error_of_a_service_is_retryable() -> None:
    assert _is(await _asked(_saying(400, {"error": {"type": "internal_error"}})), "upstream")
    assert _is(await _asked(_saying(500)), "upstream")
    assert _is(answer_of(_reply(500, {"code": "internal_error"})), "upstream")
    assert _is(answer_of(_reply(507)), "upstream")


@pytest.mark.req("R-02")
@pytest.mark.seed("001", "Idempotency or optimistic-lock conflicts")
async def test_a_conflict_is_retryable() -> None:
    assert _is(await _asked(_saying(409)), "conflict")
    assert _is(answer_of(_reply(409, {"code": "conflict"})), "conflict")


@pytest.mark.req("R-02")
@pytest.mark.seed("001", "Validation and schema errors")
async def test_what_breaks_a_schema_is_terminal_but_an_answer_of_a_model_is_asked_for_again() -> None:
    assert _is(await _asked(_saying(400)), "validation")
    assert _is(answer_of(_reply(422)), "validation")
    assert _is(answer_of(_reply(422, {"code": "invalid_recipient"})), "validation")
    payloads: Sequence[Any] = ({"repository": "shop", "base_commit": "main"}, {"repository": 7}, [], "text")
    for payload in payloads:
        with pytest.raises(Terminal) as caught:
            _asked_fields(payload)
        assert _is(caught.value, "validation")
    for payload in [{}, [], {**dict.fromkeys(TEXTS, "x"), "recipient": "no address"}, {"recipient": ADA}]:
        with pytest.raises(Terminal) as caught:
            check_payload(payload)
        assert _is(caught.value, "validation")
    assert category_of("UNDECODABLE") == "validation"
    for said in ("no JSON", {"findings": "none"}, {"findings": [{"file": "a.py", "line": 1}]}):
        text = said if isinstance(said, str) else json.dumps(said)
        invalid = await _asked(_saying(200, {"choices": [{"message": {"content": text}}]}))
        assert isinstance(invalid, Retryable)
        assert invalid.code == "ANSWER_INVALID"
    assert (await _asked(_saying(200, {"choices": []}))).code == "ANSWER_INVALID"  # type: ignore[attr-defined]


@pytest.mark.req("R-02")
@pytest.mark.seed("001", "Authentication/authorization")
async def test_a_credential_that_is_refused_is_terminal() -> None:
    for status in (401, 403):
        assert _is(await _asked(_saying(status)), "auth")
        assert _is(answer_of(_reply(status)), "auth")
    assert _is(await _asked(_saying(400, {"error": {"code": "invalid_api_key"}})), "auth")


@pytest.mark.req("R-02", "R-09")
@pytest.mark.seed("001", "Not found / permanent resource state")
async def test_what_is_not_there_is_terminal(repository: Repository, tmp_path: Path) -> None:
    assert _is(await _asked(_saying(404)), "not_found")
    assert _is(answer_of(_reply(404)), "not_found")
    assert _is(answer_of(_reply(410, {"code": "channel_deleted"})), "not_found")
    for path, head, code in (
        (tmp_path / "nowhere", repository.head, "REPOSITORY_UNKNOWN"),
        (tmp_path, repository.head, "REPOSITORY_UNKNOWN"),
        (repository.path, "f" * 40, "COMMIT_UNKNOWN"),
        (repository.path, "no-such-branch", "COMMIT_UNKNOWN"),
    ):
        with pytest.raises(Terminal) as caught:
            await fetch_changelist(path, repository.base, head)
        assert caught.value.code == code


@pytest.mark.req("R-02")
@pytest.mark.seed("001", "Content policy / hard business-rule reject")
async def test_a_content_policy_is_terminal() -> None:
    blocked = {"choices": [{"finish_reason": "content_filter", "message": {"content": ""}}]}
    assert _is(await _asked(_saying(200, blocked)), "policy")
    assert _is(await _asked(_saying(400, {"error": {"code": "content_filter"}})), "policy")
    for code in ("moderation_block", "policy_denied"):
        assert _is(answer_of(_reply(403, {"code": code})), "policy")


@pytest.mark.req("R-02", "R-10")
@pytest.mark.seed("001", "Configuration/runtime bug")
async def test_a_configuration_that_cannot_work_is_terminal_and_counts_as_a_defect() -> None:
    critic = ChatCritic(url="http://127.0.0.1:1", model="m")  # loopback is not allowed unless it is said
    with pytest.raises(Terminal) as caught:
        await critic.review(CHANGE)
    await critic.aclose()
    assert (caught.value.code, caught.value.bug, category_of(caught.value.code)) == ("CONFIG_INVALID", True, "defect")
    assert {category_of(code) for code in ("UNCLASSIFIED", "CRASHED", "RETURN_INVALID")} == {"defect"}


# around the table


@pytest.mark.req("R-02")
@pytest.mark.seed("001", "Retries MUST stop immediately when a failure is reclassified to non-retryable.")
def test_a_failure_that_becomes_terminal_stops_at_once() -> None:
    rules = Rules(policy=POLICY)
    attempt = m.attempt(spent=1)
    again = decide(attempt, retryable("CONFLICT"), rules, now=NOW, random=random.Random(1))
    stopped = decide(attempt, terminal("AUTH_DENIED"), rules, now=NOW, random=random.Random(1))
    assert (again.kind, stopped.kind, stopped.exhausted) == (SettlementKind.RETRY, SettlementKind.PARK, False)


@pytest.mark.req("R-03")
@pytest.mark.seed("001", "Backoff timers MUST be recomputed per attempt (no precomputed static schedule).")
@pytest.mark.seed(
    "001",
    "For all retryable failures, the system MUST apply the following backoff parameters unless an "
    "upstream `Retry-After` value is larger",
)
@pytest.mark.seed(
    "001", "Transient provider/network failures SHOULD produce retryable states with exponential backoff."
)
def test_delays_double_from_a_second_to_a_minute_with_full_jitter() -> None:
    drawn = random.Random(7)
    for failures, most in ((1, 1), (2, 2), (3, 4), (4, 8), (7, 60), (50, 60)):
        delays = [POLICY.backoff.delay_seconds(failures, drawn) for _ in range(400)]
        assert 0 <= min(delays) < 0.05 * most
        assert 0.95 * most < max(delays) <= most


@pytest.mark.req("R-03")
@pytest.mark.seed(
    "001", "effective delay is `max(calculated_backoff, retry_after)`, capped by an operational ceiling of 5 minutes"
)
def test_retry_after_counts_where_it_is_longer_up_to_five_minutes() -> None:
    rules = Rules(policy=POLICY)
    for asked, least, most in ((120, 120, 120), ("Thu, 01 Jan 2026 00:01:00 GMT", 60, 60), (9999, 300, 300), (0, 0, 1)):
        answer = retryable("RATE_LIMITED", retry_after=asked)
        settled = decide(m.attempt(), answer, rules, now=NOW, random=random.Random(3))
        assert least <= settled.delay_seconds <= most


@pytest.mark.req("R-01")
@pytest.mark.seed("001", "`max_attempts_per_stage`: 5 (inclusive of first attempt)")
def test_the_fifth_failure_of_a_stage_is_the_last() -> None:
    rules = Rules(policy=POLICY)
    kinds = [
        decide(m.attempt(spent=spent), retryable("CONFLICT"), rules, now=NOW, random=random.Random(1)).kind
        for spent in range(5)
    ]
    assert kinds == [SettlementKind.RETRY] * 4 + [SettlementKind.PARK]


@pytest.mark.req("R-02")
@pytest.mark.seed(
    "001",
    "All failures MUST be classified as either **retryable** (automatic retries allowed) or "
    "**non-retryable** (fail immediately to dead-letter queue).",
)
def test_every_class_is_in_one_row_and_sql_has_the_same_table(reviewing: str) -> None:
    classes = [name for one in CATEGORIES for name in one.classes]
    assert len(classes) == len(set(classes))
    for error_class in [*classes, "SOMETHING_ELSE"]:
        said = rows(reviewing, "SELECT redrive_reviews.category_of(%s)", error_class)
        assert said == [(category_of(error_class),)]
    assert set(CODES.values()) <= set(classes)
    assert all(of_status(status, None).code in classes for status in range(400, 600))


@pytest.mark.req("R-02")
def test_every_class_that_the_engine_and_the_http_transport_name_has_its_row() -> None:
    """A relay gives up with these by itself; none may be counted as `other`, where no alert looks."""
    engine = {
        value for name, value in vars(answers).items() if name.isupper() and isinstance(value, str) and value == name
    }
    assert {"UNCLASSIFIED", "UNDECODABLE", "MESSAGE_GONE"} <= engine
    network = {getattr(_failed(error(), has_begun=begun), "code", "") for error in _LOST for begun in (True, False)}
    assert {"CONNECTION_REFUSED", "CONNECTION_LOST", "TIMEOUT", "REQUEST_FAILED"} <= network
    assert {one for one in engine | network | {SENT_WITHOUT_RECORD} if category_of(one) == "other"} == set()


@pytest.mark.req("R-02")
def test_a_class_that_is_not_of_its_kind_cannot_be_said() -> None:
    with pytest.raises(AssertionError):
        retryable("AUTH_DENIED")
    with pytest.raises(AssertionError):
        terminal("CONFLICT")


@pytest.mark.req("R-09", "R-11")
@pytest.mark.parametrize(
    ("status", "said", "meaning"),
    [
        (202, {"id": "n-1"}, Delivered("n-1", {"status": 202})),
        (200, {"id": "n-1"}, Delivered("n-1", {"status": 200})),
        (202, {}, Unknown("ACCEPTED_WITHOUT_ID", "The provider answered with status 202.")),
        (202, {"id": 7}, Unknown("ACCEPTED_WITHOUT_ID", "The provider answered with status 202.")),
    ],
)
def test_what_a_provider_accepts_has_an_id_or_is_in_doubt(status: int, said: Any, meaning: Answer) -> None:
    assert answer_of(_reply(status, said)) == meaning


@pytest.mark.req("R-07", "R-09")
def test_a_lookup_believes_only_the_providers_own_word_that_it_is_not_there() -> None:
    assert found_of(_reply(200, {"id": "n-1"})) == Found("n-1", {"by": "lookup"})
    assert isinstance(found_of(_reply(404, {"code": "not_found"})), Absent)
    for status, said in ((404, {}), (404, "no"), (200, {}), (500, {}), (301, {"id": "n-1"})):
        assert isinstance(found_of(_reply(status, said)), CannotTell)


@pytest.fixture
def bounded(tmp_path: Path) -> tuple[Path, str, str]:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    base = commit(tmp_path, {"a.txt": "a\n"})
    return tmp_path, base, commit(tmp_path, {"big.txt": "x" * 79 + "\n" + "line\n" * 100})


@pytest.mark.req("R-09")
async def test_a_diff_has_a_bound_and_an_empty_one_is_refused(bounded: tuple[Path, str, str]) -> None:
    path, base, head = bounded
    whole = await fetch_changelist(path, base, head)
    size = len(whole.diff.encode())
    assert (whole.base, whole.head) == (base, head)
    assert (await fetch_changelist(path, base, head, bytes_max=size)) == whole
    for arguments, code in (
        ({"bytes_max": size - 1, "head": head}, "DIFF_TOO_LARGE"),
        ({"bytes_max": size, "head": base}, "DIFF_EMPTY"),
    ):
        with pytest.raises(Terminal) as caught:
            await fetch_changelist(path, base, **arguments)  # type: ignore[arg-type]
        assert caught.value.code == code


@pytest.mark.req("R-09")
async def test_a_commit_that_looks_like_an_option_is_no_option(bounded: tuple[Path, str, str]) -> None:
    path, base, _ = bounded
    target = path / "written"
    with pytest.raises(Terminal) as caught:
        await fetch_changelist(path, base, f"--output={target}")
    assert caught.value.code == "COMMIT_UNKNOWN"
    assert not target.exists()


def _git_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """The first `git` on the path runs `line` and then becomes the real one."""
    real = shutil.which("git")
    script = tmp_path / "bin" / "git"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\n{line}\nexec {real} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")


@pytest.mark.req("R-09")
async def test_a_repository_of_another_user_is_read(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay is seldom the user to whom the repositories of a machine belong; git would refuse them."""
    _git_that(tmp_path, monkeypatch, "export GIT_TEST_ASSUME_DIFFERENT_OWNER=1")
    plain = ["git", "-C", str(repository.path), "rev-parse", "HEAD"]
    refused = await asyncio.to_thread(subprocess.run, plain, capture_output=True, check=False)
    assert b"dubious ownership" in refused.stderr
    assert (await fetch_changelist(repository.path, repository.base, repository.head)).head == repository.head


@pytest.mark.req("R-02", "R-09")
@pytest.mark.parametrize("step", ["rev-parse", " diff "])
@pytest.mark.parametrize("end", ["kill -9 $$", "exit 128"])
async def test_a_git_that_does_not_finish_is_tried_again_and_is_no_empty_diff(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, end: str
) -> None:
    _git_that(tmp_path, monkeypatch, f'case " $* " in *"{step}"*) {end} ;; esac')
    with pytest.raises(Answer) as caught:
        await fetch_changelist(repository.path, repository.base, repository.head)
    said = "REPOSITORY_UNKNOWN" if (step, end) == ("rev-parse", "exit 128") else "UPSTREAM_INTERNAL"
    assert getattr(caught.value, "code", "") == said


@pytest.mark.req("R-09")
async def test_a_setting_of_the_repository_does_not_change_the_names_of_files(bounded: tuple[Path, str, str]) -> None:
    path, base, head = bounded
    git(path, "config", "diff.dstPrefix", "other/")
    git(path, "config", "diff.noprefix", "true")
    diff = (await fetch_changelist(path, base, head)).diff
    assert [one.path for one in parse_diff(diff)] == ["big.txt"]
    assert "+++ b/big.txt" in diff
