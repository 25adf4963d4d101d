"""What a form asked for is done once, is waited for a moment, and says what became of it."""

from __future__ import annotations

import asyncio

import pytest

from redrive.errors import ActRefused, InvalidValue
from redrive.operate.actions.results import ActResult, Outcome
from redrive.operate.console import jobs
from redrive.operate.console.jobs import Job, Jobs
from tests.support import messages as m

pytestmark = pytest.mark.req("G-21")


async def test_one_token_is_one_work() -> None:
    kept, times = Jobs(), 0

    async def doing(job: Job) -> None:
        nonlocal times
        times += 1
        job.add([ActResult(id=m.SOME_ID, outcome=Outcome.DONE, detail="done")])

    first, again = [await kept.begin("token", "ada", "Done:", doing, total=1) for _ in range(2)]
    assert first is again
    assert (times, first.succeeded, first.running) == (1, 1, False)


async def test_the_token_of_one_person_is_nothing_to_another() -> None:
    kept = Jobs()

    async def doing(job: Job) -> None:
        job.said = "secret"

    await kept.begin("token", "ada", "", doing)
    assert kept.find("token", "eve") is None
    assert kept.find("token", "ada") is not None


async def test_long_work_goes_on_after_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "WAIT_SECONDS", 0.01)
    kept, may_end = Jobs(), asyncio.Event()

    async def doing(job: Job) -> None:
        await may_end.wait()

    job = await kept.begin("token", "ada", "", doing, total=5)
    before = kept.changes("ada")
    assert job.running
    may_end.set()
    await job.ended.wait()
    assert kept.changes("ada") != before, "an open page notices its end"


@pytest.mark.parametrize(
    ("error", "said"),
    [(ActRefused("No.", next="try that"), "No."), (InvalidValue("Too long."), "Too long.")],
)
async def test_what_is_refused_is_said(error: Exception, said: str) -> None:
    async def doing(_: Job) -> None:
        raise error

    job = await Jobs().begin("token", "ada", "", doing)
    assert (job.failed, job.said) == (True, said)


async def test_refusals_are_counted_by_their_reason() -> None:
    job = Job("t", "ada", "")
    job.add([ActResult(id=m.SOME_ID, outcome=Outcome.REFUSED, detail=detail) for detail in ("a", "b", "b")])
    job.add([ActResult(id=m.SOME_ID, outcome=Outcome.DONE, detail="done")])
    assert job.refusals() == [("b", 2), ("a", 1)]
    assert (job.done, job.succeeded) == (4, 1)


async def test_works_are_kept_in_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "KEPT_MAX", 10)
    kept = Jobs()

    async def doing(_: Job) -> None: ...

    for number in range(30):
        await kept.begin(str(number), "ada", "", doing)
    assert kept.find("29", "ada") is not None
    assert kept.find("0", "ada") is None
