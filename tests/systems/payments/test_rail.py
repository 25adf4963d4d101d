"""The rail that is the judge: it pays what its ledger says, whatever it answers, and a kill takes nothing back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from redrive.errors import InvalidValue
from redrive.systems.payments.rail.ledger import read_effects
from redrive.systems.payments.rail.script import FAULTY_REQUESTS_MAX, Fault, Profile, Script, parsed
from tests.systems.payments.rails import get, order, post, running


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "rail.log"


async def test_a_token_is_paid_once_and_keeps_its_reference(ledger: Path) -> None:
    async with running(ledger) as rail:
        first = await post(rail.url, order())
        again = await post(rail.url, order())
        assert first[:2] == (201, {"code": "ACCEPTED", "reference": "R-00000001", "message": ""})
        assert again[:2] == (200, {"code": "DUPLICATE", "reference": "R-00000001", "message": ""})
        (effect,) = rail.effects
        assert (effect.token, effect.instruction_id, effect.amount) == ("t-1", "pay-t-1", "12.34")
        assert await get(f"{rail.url}/payments/unknown") == (
            404,
            {"code": "NOT_FOUND", "reference": None, "message": ""},
        )


async def test_a_token_with_another_body_is_refused(ledger: Path) -> None:
    async with running(ledger) as rail:
        await post(rail.url, order())
        status, said, _ = await post(rail.url, order(amount="99.00"))
        assert (status, said["code"], len(rail.effects)) == (422, "TOKEN_REUSED", 1)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"amount": "0"}, "amount"),
        ({"amount": "NaN"}, "amount"),
        ({"amount": 12}, "amount"),
        ({"currency": ""}, "currency"),
    ],
)
async def test_what_is_no_payment_is_refused(ledger: Path, change: dict[str, Any], field: str) -> None:
    async with running(ledger) as rail:
        status, said, _ = await post(rail.url, order(**change))
        assert (status, said["code"]) == (400, "INVALID_REQUEST")
        assert field in said["message"]
        assert not rail.effects


PAID_WITHOUT_A_WORD = [
    *(Fault.LOST_REPLY, Fault.GARBAGE, Fault.ERROR_AFTER),
    *(Fault.ERROR_WITHOUT_CODE, Fault.BAD_GATEWAY),
]


@pytest.mark.parametrize("fault", PAID_WITHOUT_A_WORD)
async def test_it_is_paid_and_the_sender_cannot_know(ledger: Path, fault: Fault) -> None:
    async with running(ledger, faults={fault: 100}) as rail:
        if fault == Fault.LOST_REPLY:
            with pytest.raises(aiohttp.ClientError):
                await post(rail.url, order())
        else:
            status, said, _ = await post(rail.url, order())
            assert (status, isinstance(said, bytes)) in {(200, True), (500, False), (500, True), (502, True)}
        assert len(rail.effects) == 1
        status, said = await get(f"{rail.url}/payments/t-1")
        assert (status, said["code"], said["amount"]) == (200, "ACCEPTED", "12.34")


NOTHING = {
    Fault.THROTTLED: (429, "THROTTLED"),
    Fault.UNAVAILABLE: (503, "UNAVAILABLE"),
    Fault.ERROR_BEFORE: (500, "INTERNAL"),
    Fault.INSUFFICIENT_FUNDS: (402, "INSUFFICIENT_FUNDS"),
    Fault.ACCOUNT_CLOSED: (422, "ACCOUNT_CLOSED"),
    Fault.LIMIT_EXCEEDED: (422, "LIMIT_EXCEEDED"),
    Fault.INVALID_DESTINATION: (422, "INVALID_DESTINATION"),
}


@pytest.mark.parametrize("fault", list(NOTHING))
async def test_nothing_is_paid_and_it_says_why(ledger: Path, fault: Fault) -> None:
    async with running(ledger, faults={fault: 100}, retry_after_seconds=7) as rail:
        status, said, headers = await post(rail.url, order())
        assert (status, said["code"]) == NOTHING[fault]
        assert headers.get("Retry-After") == ("7" if fault == Fault.THROTTLED else None)
        assert not rail.effects


async def test_a_late_payment_is_not_in_the_books_until_it_is_made(ledger: Path) -> None:
    async with running(ledger, faults={Fault.LATE: 100}, late_seconds=(0.5, 0.5)) as rail:
        with pytest.raises(aiohttp.ClientError):
            await post(rail.url, order())
        assert (await get(f"{rail.url}/payments/t-1"))[0] == 404 or rail.effects
        assert (await post(rail.url, order()))[0] == 409 or rail.effects
        await _until(lambda: rail.effects)
        await _until_found(rail.url, "t-1")
        assert (await post(rail.url, order()))[1]["code"] == "DUPLICATE"
        assert len(rail.effects) == 1


async def test_a_refused_payment_may_be_made_all_the_same(ledger: Path) -> None:
    async with running(ledger, faults={Fault.REFUSED_LATE: 100}, late_seconds=(0.1, 0.1)) as rail:
        assert (await post(rail.url, order()))[1]["code"] == "INSUFFICIENT_FUNDS"
        await _until(lambda: rail.effects)


async def test_a_slow_rail_pays_before_it_answers(ledger: Path) -> None:
    async with running(ledger, faults={Fault.SLOW_LATE: 100}, late_seconds=(0.1, 0.1), hang_seconds=0.3) as rail:
        status, said, _ = await post(rail.url, order())
        assert (status, said["reference"]) == (201, rail.effects[0].reference)


async def test_a_rail_that_remembers_tokens_and_cannot_be_asked_pays_once(ledger: Path) -> None:
    async with running(ledger, profile=Profile.TOKEN) as rail:
        assert [(await post(rail.url, order()))[1]["code"] for _ in range(2)] == ["ACCEPTED", "DUPLICATE"]
        assert (await get(f"{rail.url}/payments/t-1"))[0] == 501


async def test_a_rail_that_forgets_tokens_pays_each_request(ledger: Path) -> None:
    async with running(ledger, profile=Profile.LOOKUP) as rail:
        for _ in range(2):
            assert (await post(rail.url, order()))[0] == 201
        assert [effect.token for effect in rail.effects] == ["t-1", "t-1"]
        assert (await get(f"{rail.url}/payments/t-1"))[0] == 200


async def test_a_rail_that_cannot_be_asked_does_not_say_that_it_has_nothing(ledger: Path) -> None:
    async with running(ledger, profile=Profile.NEITHER) as rail:
        assert (await get(f"{rail.url}/payments/t-1"))[0] == 501


async def test_the_statement_comes_in_pages_and_goes_on_behind_a_cursor(ledger: Path) -> None:
    async with running(ledger) as rail:
        for number in range(5):
            await post(rail.url, order(f"t-{number}"))
        _, first = await get(f"{rail.url}/statement?limit=3")
        _, rest = await get(f"{rail.url}/statement?after={first['next']}&limit=3")
        tokens = [entry["token"] for page in (first, rest) for entry in page["entries"]]
        assert tokens == [f"t-{number}" for number in range(5)]
        assert rest["next"] is None
        assert (await get(f"{rail.url}/statement?after=x"))[0] == 400


async def test_what_goes_wrong_can_be_changed_and_planned(ledger: Path) -> None:
    async with running(ledger, plans={"pay-t-1": ["unavailable", "ok"]}) as rail:
        assert [(await post(rail.url, order()))[0] for _ in range(2)] == [503, 201]
        async with aiohttp.ClientSession() as session:
            async with session.put(f"{rail.url}/script", json={"faults": {"throttled": 100}}) as reply:
                assert reply.status == 200
            async with session.put(f"{rail.url}/script", json={"faults": {"nonsense": 100}}) as reply:
                assert reply.status == 400
        assert (await post(rail.url, order("t-2")))[0] == 429


def test_the_same_seed_draws_the_same_faults_and_every_campaign_ends() -> None:
    faults = {"lost_reply": 30.0, "late": 20.0, "cannot_tell": 50.0}
    draws = [
        [
            Script(seed=seed, faults=faults).fault("send", token=f"t-{number}", instruction="", nth=nth)
            for number in range(200)
            for nth in range(1, FAULTY_REQUESTS_MAX + 3)
        ]
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]
    assert set(draws[0]) == {"lost_reply", "late", None}
    assert {
        fault for place, fault in enumerate(draws[0]) if place % (FAULTY_REQUESTS_MAX + 2) >= FAULTY_REQUESTS_MAX
    } == {None}


@pytest.mark.parametrize("text", ["nonsense=5", "late=x", "late=70,lost_reply=40", "late=-1"])
def test_shares_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        Script(faults=parsed(text))


@pytest.mark.full
async def test_a_kill_takes_back_nothing_that_was_paid_or_accepted(ledger: Path) -> None:
    script = {"plans": {"pay-now": ["lost_reply"], "pay-later": ["late"]}, "late_seconds": [1.0, 1.0]}
    killed = Killable(ledger, script)
    for token in ("now", "later"):
        with pytest.raises(aiohttp.ClientError):
            await post(killed.url, order(token))
    killed.kill()
    assert [effect.token for effect in read_effects(ledger)] in (["now"], ["now", "later"])
    again = Killable(ledger, script)
    try:
        await _until_found(again.url, "later")
        assert (await post(again.url, order("now")))[1]["code"] == "DUPLICATE"
        assert sorted(effect.token for effect in read_effects(ledger)) == ["later", "now"]
    finally:
        again.kill()


class Killable:
    """The rail as a process of its own."""

    def __init__(self, ledger: Path, script: dict[str, Any]) -> None:
        module = "redrive.systems.payments.rail.server"
        self._child = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._child.stdin
        assert self._child.stdout
        self._child.stdin.write(json.dumps({"ledger": str(ledger), "script": script}).encode())
        self._child.stdin.close()
        self.url = self._child.stdout.readline().decode().strip()

    def kill(self) -> None:
        self._child.send_signal(signal.SIGKILL)
        self._child.wait(30)
        assert self._child.stdout
        self._child.stdout.close()


async def _until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def _until_found(url: str, token: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while (await get(f"{url}/payments/{token}"))[0] != 200:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
