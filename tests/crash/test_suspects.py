"""Suspects run in child processes: one destination does not wait for another, and what never ends is ended (G-18)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

import redrive
from redrive.ports import ClaimRequest
from redrive.prove.environment import Environment
from redrive.relay import process as relay_process
from redrive.relay.crash import child_process
from redrive.relay.process import RelayProcess, run_relay
from redrive.settings import RelayLimits
from redrive.store.runtime.postgres import PostgresStore
from redrive.transports.functions import ABANDONED_MAX
from tests.crash.apps import hanging
from tests.crash.lives import enqueue, gate, open_gate, rows, said, stop, wait_at_gate, wait_count, wait_quiet
from tests.relay.harness import Seen
from tests.support import messages as m

pytestmark = [pytest.mark.req("G-18"), pytest.mark.req("G-31")]

APP = "tests.crash.apps:hanging"
PYTHON_PATH = [str(Path(redrive.__file__).parents[1]), str(Path(__file__).parents[2])]


@pytest.mark.full
def test_after_a_kill_the_suspects_of_a_fast_destination_do_not_wait_for_those_of_a_hanging_one(
    environment: Environment,
) -> None:
    count = 12
    dying = environment.relay("dying", app=APP, environment=gate(environment))
    enqueue(environment, "hanging", "hanging", count=count)
    enqueue(environment, "fast", "fast", count=count)
    wait_at_gate(environment, "hanging", count)
    wait_at_gate(environment, "fast", count)
    dying.signal(signal.SIGKILL)
    dying.wait(10)
    open_gate(environment, "fast")
    relay = environment.relay("next", app=APP, environment=gate(environment))
    wait_count(environment, "closed", count)
    ended = rows(environment, "SELECT count(*) FROM redrive.attempt WHERE destination = 'hanging' AND verb = 'settle'")
    assert ended[0][0] < count / 2, "the fast ones have waited for hanging ones"
    assert stop(relay, seconds=40) == 0, said(environment)


@pytest.mark.full
async def test_a_child_whose_event_loop_is_blocked_is_killed_and_its_message_parked(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresStore(environment.dsn, connections=3) as store:
        await blocked(store, environment.dsn, monkeypatch)


async def blocked(store: PostgresStore, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long before the child would end itself, which it does where its relay has died.
    monkeypatch.setattr(relay_process, "turn_seconds", lambda destinations, _: dict.fromkeys(destinations, 8.0))
    monkeypatch.setattr(child_process, "CHILD_END_SECONDS", 0.1)
    await make_suspect(store)
    seen = Seen()
    limits = RelayLimits(lease_seconds=60, stop_seconds=0, heartbeat_seconds=1)
    process = RelayProcess(app=hanging, dsn=dsn, app_spec=APP, only=["blocking"], limits=limits)
    relay = asyncio.create_task(run_relay(process, events=seen.events, signals=False))
    async with asyncio.timeout(180):
        while not seen.of("message.parked"):  # noqa: ASYNC110 - told by a child
            await asyncio.sleep(0.1)
    relay.cancel()
    await asyncio.wait([relay])
    ((reason, code, crashes),) = await store.rows("SELECT reason, error_class, crashes FROM redrive.parked", [])
    assert (reason, code, crashes) == ("dead", "CRASHED", 3)
    assert len(seen.of("suspects.ended", code=-9)) >= 3


class EndedUnseen:
    """A child that has ended, which its event loop has not noticed yet."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None
        self._waited = False

    async def wait(self) -> int:
        if not self._waited:
            self._waited = True
            await asyncio.get_running_loop().create_future()
        return 0


async def test_a_child_that_ends_at_the_moment_at_which_it_is_killed_does_not_end_the_relay() -> None:
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await ended.wait()
    await child_process.end_child(EndedUnseen(ended.pid), seconds=0.01)


async def test_a_child_that_outlives_its_relay_ends_itself_whatever_blocks_it(environment: Environment) -> None:
    """The relay was killed, so that it cannot end the child that never ends by itself."""
    async with PostgresStore(environment.dsn, connections=3) as store:
        await make_suspect(store)
        heard, told = os.pipe()
        settings = {
            "app": APP,
            "only": ["blocking"],
            "limits": RelayLimits(lease_seconds=60, stop_seconds=0).limits(),
            "worker": str(m.WORKER),
            "seconds": 3.0,
            "tell": told,
        }
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "redrive.relay.crash.suspect_child"),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "REDRIVE_DSN": environment.dsn, "PYTHONPATH": os.pathsep.join(PYTHON_PATH)},
            pass_fds=[told],
        )
        os.close(told)
        try:
            async with asyncio.timeout(20):
                _, words = await child.communicate(json.dumps(settings).encode())
        finally:
            os.close(heard)
            if child.returncode is None:
                child.kill()
                await child.wait()
        assert child.returncode == 1
        assert b"block_the_event_loop" in words  # where it hung
        assert len(await store.leases_of(m.WORKER)) == 1


async def make_suspect(store: PostgresStore) -> None:
    await store.rows("SELECT redrive.enqueue_1('blocking', '{}')", [])
    await store.claim(m.OTHER_WORKER, [ClaimRequest("blocking", 1, 1)], lease_seconds=60)
    await store.reap(limit=10, worker=m.OTHER_WORKER)


@pytest.mark.full
def test_more_handlers_that_never_return_than_there_are_threads_park_and_healthy_ones_are_delivered(
    environment: Environment,
) -> None:
    stuck, healthy = ABANDONED_MAX + 13, 20
    relay = environment.relay(app=APP, only=["threads"], environment=gate(environment))
    enqueue(environment, "stuck", "threads", count=stuck, hangs=True)
    enqueue(environment, "healthy", "threads", count=healthy, hangs=False)
    most = 0

    def is_over() -> bool:
        nonlocal most
        most = max(most, threads_of(relay.pid))
        return environment.is_quiet()

    assert environment.wait(is_over, seconds=240.0), environment.counts()
    wait_quiet(environment)
    assert environment.counts()["closed"] == healthy
    parked = rows(environment, "SELECT reason, error_class, spent, count(*) FROM redrive.parked GROUP BY 1, 2, 3")
    assert parked == [("dead", "TIMEOUT", 2, stuck)]
    assert most <= ABANDONED_MAX + 3 + 10  # and a few of its own
    assert relay.code is None
    assert stop(relay) == 0, said(environment)


def threads_of(pid: int) -> int:
    found = re.search(r"^Threads:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])
