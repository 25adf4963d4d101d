"""What peers, models and diffs may say that does not fit: it stops no relay, sends nothing twice, and is not kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from redrive import CannotTell, Delivered, Unknown
from redrive.kit.proof.smtp_server import Fault
from redrive.systems.reviews import ChatCritic, Finding, Recipient
from redrive.systems.reviews.critic import findings_of
from redrive.systems.reviews.diff import AddedLine, FileDiff
from redrive.systems.reviews.findings import FINDINGS_MAX, LINE_CHARACTERS_READ, MESSAGE_MAX
from redrive.systems.reviews.mail import notification
from redrive.systems.reviews.providers import answer_of, found_of
from redrive.systems.reviews.taxonomy import category_of
from redrive.transports.http.client import Reply
from redrive.transports.smtp import replies
from tests.systems.reviews.conftest import ADA, Repository, desk, request, rows, submit
from tests.systems.reviews.test_smtp import mailing
from tests.transports.servers import HERE, Answering, serving

UNKEEPABLE = ["", "a\0b", "\ud800", "a\nb", "n" * 501, 7, None]
FITS = {"file": "shop/total.py", "line": 2, "severity": "error", "rule": "r", "message": "Bad."}
_STAGES = """
SELECT split_part(a.destination, '.', 2), count(*) FROM redrive.attempt a JOIN redrive_reviews.job j USING (message_id)
 WHERE a.verb = 'settle' AND j.changelist_id = %s GROUP BY 1
"""


def _reply(status: int, said: Any) -> Reply:
    return Reply(status, {}, json.dumps(said).encode(), True)


@pytest.mark.req("R-09", "R-12", "G-31")
@pytest.mark.parametrize("id", UNKEEPABLE, ids=[repr(one)[:12] for one in UNKEEPABLE])
def test_an_id_that_cannot_be_kept_is_no_id_so_the_provider_is_asked(id: object) -> None:
    assert answer_of(_reply(202, {"id": id})) == Unknown(
        "ACCEPTED_WITHOUT_ID", "The provider answered with status 202."
    )
    assert isinstance(found_of(_reply(200, {"id": id})), CannotTell)
    assert answer_of(_reply(202, {"id": "n" * 500})) == Delivered("n" * 500, {"status": 202})


@pytest.mark.req("R-04", "R-12", "G-15")
async def test_a_mail_servers_reply_is_kept_as_evidence_without_the_addresses_in_it(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    said = f"250 2.0.0 <{ADA}> accepted, queued as 4F2B\0"
    async with (
        mailing("END", said) as (_, provider),
        desk(reviewing, repository, tmp_path, more=[provider]) as opened,
    ):
        submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "mail")]))
        await opened.state(changelist, "succeeded", "retryable_failed")
    kept = rows(
        reviewing,
        "SELECT notification_id, evidence ->> 'reference' FROM redrive_reviews.delivery WHERE changelist_id = %s",
        changelist,
    )
    assert kept == [("250 2.0.0 <[…]> accepted, queued as 4F2B\N{REPLACEMENT CHARACTER}",) * 2]
    archived = rows(reviewing, "SELECT reference FROM redrive.attempt WHERE reference IS NOT NULL")
    assert ADA not in str(archived)


# a critic


@pytest.mark.req("R-09", "G-31")
def test_of_a_long_line_only_the_beginning_is_read_by_the_rules_and_its_length_is_found() -> None:
    """A pattern takes time by the square of a line that is made for it."""
    late = "x" * (LINE_CHARACTERS_READ - 12) + " breakpoint()"
    early = " breakpoint()" + "x" * LINE_CHARACTERS_READ
    found = [
        [one.rule for one in findings_of(FileDiff("a.py", [AddedLine(1, text)]))]
        for text in (early, late, "password" * 16_000)
    ]
    assert found == [["debugger", "long-line"], ["long-line"], ["long-line"]]


@pytest.mark.req("R-09", "G-31")
def test_a_mail_has_a_bound_and_says_what_it_leaves_out() -> None:
    findings = [
        Finding(file=f"{n}.py", line=1, severity="error", rule="r", message='"' * MESSAGE_MAX, excerpt="<" * 160)
        for n in range(FINDINGS_MAX)
    ]
    whole, cut = (_mail(some) for some in (findings[:3], findings))
    assert "more" not in whole["text"]
    assert len(json.dumps(cut)) < 256 * 1024
    left_out = FINDINGS_MAX - cut["text"].count("line 1: error")
    assert 0 < left_out < FINDINGS_MAX
    for name in ("text", "html"):
        assert f"{left_out} more findings" in cut[name]
    assert cut["subject"].endswith(f": {FINDINGS_MAX} errors")


def _mail(findings: Sequence[Finding]) -> dict[str, Any]:
    return notification(
        changelist_id="shop-42",
        review_version=1,
        recipient=ADA,
        repository="shop",
        base="1" * 40,
        head="2" * 40,
        critic="chat m",
        findings=findings,
    )


def _model(*answers: object) -> Answering:
    """These answers, one after the other; the last one again and again."""
    left = [one if isinstance(one, str) else json.dumps({"findings": one}) for one in answers]

    async def answer(_: web.Request) -> web.StreamResponse:
        content = left.pop(0) if len(left) > 1 else left[0]
        return web.json_response({"choices": [{"finish_reason": "stop", "message": {"content": content}}]})

    return answer


@pytest.mark.req("R-09", "R-01", "R-02")
async def test_what_a_model_finds_is_mailed_and_an_answer_that_does_not_fit_is_asked_for_again(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    wrong = [{**FITS, "message": "\ud800"}], [{**FITS, "line": 99}], [{**FITS, "rule": "\0"}]
    async with serving(_model("no JSON", *wrong, [{**FITS, "message": "Bad.\x1b\u202e"}])) as model:
        critic = ChatCritic(url=model.url, model="m", api_key="key-of-the-test", egress=HERE)
        async with desk(reviewing, repository, tmp_path, critic=critic) as opened:
            submit(reviewing, request(changelist, repository))
            assert await opened.state(changelist, "succeeded", "retryable_failed") == "succeeded"
            (sent,) = opened.sent
        asked = [json.loads(one.body) for one in model.asked]
    assert sent["subject"] == f"[review] {changelist} (version 1): 1 error"
    text = "SELECT convert_from(body, 'UTF8')::json ->> 'text' FROM redrive.message WHERE kind <> 'review'"
    assert "  line 2: error (r): Bad.\n      breakpoint()\n" in rows(reviewing, text)[0][0]
    assert dict(rows(reviewing, _STAGES, changelist)) == {"fetch": 1, "llm": 5}
    assert {(one.path, one.headers["Authorization"]) for one in model.asked} == {
        ("/chat/completions", "Bearer key-of-the-test")
    }
    assert asked == [asked[0]] * 5
    assert "breakpoint()" in asked[0]["messages"][1]["content"]


@pytest.mark.req("R-09", "R-01", "R-02")
async def test_a_model_that_never_fits_is_given_up_after_five_answers_and_nobody_is_notified(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with serving(_model([{**FITS, "line": 99}])) as model:
        critic = ChatCritic(url=model.url, model="m", egress=HERE)
        async with desk(reviewing, repository, tmp_path, critic=critic) as opened:
            submit(reviewing, request(changelist, repository))
            await opened.state(changelist, "retryable_failed")
            assert opened.calls == []
    assert dict(rows(reviewing, _STAGES, changelist)) == {"fetch": 1, "llm": 5}
    dead = "SELECT stage, error_class, category FROM redrive_reviews.dead_letters"
    assert rows(reviewing, dead) == [("llm", "ANSWER_INVALID", "upstream")]


# the failure table


@pytest.mark.req("R-02")
def test_every_class_that_the_mail_transport_names_has_its_row() -> None:
    named = {value for name, value in vars(replies).items() if name.isupper() and isinstance(value, str)}
    codes = {
        getattr(replies.refused(step, code, ""), "code", "")
        for step in ("GREETING", "EHLO", "AUTH", "MAIL", "RCPT", "DATA")
        for code in (421, 450, 451, 452, 454, 455, 500, 501, 502, 503, 504, 530, 535, 550, 551, 552, 553, 554, 555)
    }
    assert {one for one in named | codes if category_of(one) == "other"} == set()


@pytest.mark.req("R-02", "R-08")
async def test_a_refusal_of_the_mail_itself_is_a_rejection_by_policy(
    reviewing: str, repository: Repository, tmp_path: Path, changelist: str
) -> None:
    async with mailing() as (server, provider):
        server.faults["END"] = Fault("550 5.7.1 rejected as spam", times=1)
        async with desk(reviewing, repository, tmp_path, more=[provider]) as opened:
            submit(reviewing, request(changelist, repository, recipients=[Recipient(ADA, "mail")]))
            await opened.state(changelist, "retryable_failed")
    dead = "SELECT stage, error_class, category FROM redrive_reviews.dead_letters"
    assert rows(reviewing, dead) == [("notify", "SMTP_550", "policy")]
