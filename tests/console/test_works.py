"""What a form asked for is done once, is waited for a moment, and says what became of it."""

from __future__ import annotations

import asyncio

import pytest

from redrive.errors import ActRefused, InvalidValue
from redrive.operate.console import works
from redrive.operate.console.works import Work, Works
from redrive.operate.operations import ActResult, Outcome
from tests.support import messages as m

pytestmark = pytest.mark.req("G-21")


async def test_one_token_is_one_work() -> None:
    kept, times = Works(), 0

    async def doing(work: Work) -> None:
        nonlocal times
        times += 1
        work.add([ActResult(id=m.SOME_ID, outcome=Outcome.DONE, detail="done")])

    first, again = [await kept.begin("token", "ada", "Done:", doing, total=1) for _ in range(2)]
    assert first is again
    assert (times, first.succeeded, first.running) == (1, 1, False)


async def test_the_token_of_one_person_is_nothing_to_another() -> None:
    kept = Works()

    async def doing(work: Work) -> None:
        work.said = "secret"

    await kept.begin("token", "ada", "", doing)
    assert kept.find("token", "eve") is None
    assert kept.find("token", "ada") is not None


async def test_long_work_goes_on_after_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "WAIT_SECONDS", 0.01)
    kept, may_end = Works(), asyncio.Event()

    async def doing(work: Work) -> None:
        await may_end.wait()

    work = await kept.begin("token", "ada", "", doing, total=5)
    before = kept.changes("ada")
    assert work.running
    may_end.set()
    await work.ended.wait()
    assert kept.changes("ada") != before, "an open page notices its end"


@pytest.mark.parametrize(
    ("error", "said"),
    [(ActRefused("No.", next="try that"), "No."), (InvalidValue("Too long."), "Too long.")],
)
async def test_what_is_refused_is_said(error: Exception, said: str) -> None:
    async def doing(_: Work) -> None:
        raise error

    work = await Works().begin("token", "ada", "", doing)
    assert (work.failed, work.said) == (True, said)


async def test_refusals_are_counted_by_their_reason() -> None:
    work = Work("t", "ada", "")
    work.add([ActResult(id=m.SOME_ID, outcome=Outcome.REFUSED, detail=detail) for detail in ("a", "b", "b")])
    work.add([ActResult(id=m.SOME_ID, outcome=Outcome.DONE, detail="done")])
    assert work.refusals() == [("b", 2), ("a", 1)]
    assert (work.done, work.succeeded) == (4, 1)


async def test_works_are_kept_in_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "KEPT_MAX", 10)
    kept = Works()

    async def doing(_: Work) -> None: ...

    for number in range(30):
        await kept.begin(str(number), "ada", "", doing)
    assert kept.find("29", "ada") is not None
    assert kept.find("0", "ada") is None
