"""The witness can be trusted: it writes before it answers, remembers over a kill, and repeats its faults by seed."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive.kit.proof import journal
from redrive.kit.proof.failpoints import Failpoint, parse
from redrive.prove.config import LOOKUP, RESEND
from redrive.prove.environment import Environment
from redrive.prove.observer import Observer
from redrive.prove.script import FAULTY_REQUESTS_MAX, SEND_FAULTS, Script, quiet
from tests.support.scratch import scratch


@pytest.fixture
def environment() -> Iterator[Environment]:
    """One without a database: nothing but the observer runs on it."""
    with scratch("redrive-prove-") as place, Environment(place, "") as made:
        yield made


async def ask(place: Path, call: str, *, id: str = "m-1", destination: str = LOOKUP, attempt: int = 1) -> Any:
    reader, writer = await asyncio.open_unix_connection(place)
    asked = {"call": call, "destination": destination, "id": id, "attempt": attempt, "token": f"t-{id}"}
    writer.write(json.dumps({**asked, "body": base64.b64encode(b"{}").decode()}).encode() + b"\n")
    try:
        line = await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()
    try:
        return json.loads(line) if line else None
    except ValueError:
        return line


async def test_whoever_sees_the_socket_can_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, listen = tmp_path / "observer", socket.socket.listen
    there_before: list[bool] = []

    def look_and_listen(self: socket.socket, backlog: int) -> None:
        there_before.append(place.exists())
        listen(self, backlog)

    monkeypatch.setattr(socket.socket, "listen", look_and_listen)
    async with await Observer(tmp_path / "log", quiet()).serve(place):
        assert there_before == [False]
        assert (await ask(place, "lookup"))["answer"] == "absent"


async def test_a_killed_observer_knows_its_effects_again(environment: Environment) -> None:
    first = environment.observe()
    assert (await ask(environment.socket, "lookup"))["answer"] == "absent"
    reference = (await ask(environment.socket, "send"))["reference"]
    first.signal(signal.SIGKILL)
    first.wait(10)
    with environment.log.open("ab") as log:
        log.write(b'{"log": "effect", "tok')  # a line that the kill has cut

    environment.observe()

    assert await ask(environment.socket, "lookup", attempt=2) == {"answer": "found", "reference": reference}
    assert await ask(environment.socket, "send", attempt=3) == {"answer": "done", "reference": reference}
    logs = [line["log"] for line in journal.read(environment.log)]
    assert logs.count("effect") == 1
    assert logs.count("repeat") == 1
    assert (await ask(environment.socket, "send", id="m-2"))["reference"] != reference


async def test_a_destination_without_memory_has_an_effect_every_time(environment: Environment) -> None:
    environment.observe()
    first = await ask(environment.socket, "send", destination=RESEND)
    again = await ask(environment.socket, "send", destination=RESEND, attempt=2)
    assert first["reference"] != again["reference"]


EFFECTS = {"lost_reply": 1, "garbage": 1, "slow": 1, "reset": 0, "refuse": 0, "busy": 0}
REPLIES = {"lost_reply": None, "reset": None, "refuse": "refused", "busy": "busy", "slow": "done"}


@pytest.mark.parametrize("fault", EFFECTS)
async def test_every_fault_does_what_it_says(environment: Environment, fault: str) -> None:
    environment.observe(Script(send={fault: 100.0}))
    reply = await ask(environment.socket, "send")
    lines = list(journal.read(environment.log))
    assert lines[0]["fault"] == fault
    assert sum(line["log"] == "effect" for line in lines) == EFFECTS[fault]
    if fault == "garbage":
        assert isinstance(reply, bytes)
    else:
        assert (reply and reply["answer"]) == REPLIES[fault]


async def test_a_hanging_request_has_no_effect_when_its_client_goes(environment: Environment) -> None:
    environment.observe(Script(send={"hang": 100.0}, lookup={}))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await ask(environment.socket, "send")
    async with asyncio.timeout(10):
        while (await ask(environment.socket, "lookup"))["answer"] != "absent":  # until it has seen that we left
            pass
    assert [line["log"] for line in journal.read(environment.log)].count("effect") == 0


def test_the_same_seed_gives_the_same_faults_and_they_end() -> None:
    ids = [f"m-{number}" for number in range(2000)]
    first = [Script(seed=1).fault("send", id, 1) for id in ids]
    assert first == [Script(seed=1).fault("send", id, 1) for id in ids]
    assert first != [Script(seed=2).fault("send", id, 1) for id in ids]
    assert set(first) == {None, *SEND_FAULTS}
    assert [Script(seed=1).fault("send", id, FAULTY_REQUESTS_MAX + 1) for id in ids] == [None] * len(ids)


def test_a_failpoint_is_read_as_it_is_written() -> None:
    point = Failpoint(event="claim.stop", nth=3, act="sleep", seconds=2.5)
    assert parse(str(point)) == point
    assert parse("claim.stop:3:kill") == Failpoint(event="claim.stop", nth=3)
    for wrong in ("claim.stop:0:kill", "claim.stop:1:burn", "clam.stop:1:kill"):
        with pytest.raises(ValueError, match="not a failpoint"):
            parse(wrong)
