"""A process that starts the relays and rails of histories by fork, so that each takes milliseconds instead of a second.

It has imported everything and runs nothing itself. One JSON object a line on standard input, one line for each on
standard output: `relay` and `rail` start a process and give its id, `signal` sends one a signal, `end` kills one and
waits for its end. A process that ended by itself stays known until `end`, so that an id is never that of another one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from redrive.app import App
from redrive.policy import Backoff, Policy
from redrive.relay.limits import RelayLimits
from redrive.relay.run import RelayProcess, run_relay, run_to_exit
from redrive.systems.payments.rail import server
from redrive.systems.payments.rails import Rail, with_rails
from redrive.transports.http import Egress

MODULE = "redrive.systems.payments.prove.nursery"
_QUICK = Backoff(initial_seconds=0.02, multiplier=2, max_seconds=0.2, jitter="full")


def rail_of(values: Mapping[str, Any]) -> Rail:
    """A rail as a history declares it to its relays."""
    policy = Policy(attempts=4, backoff=_QUICK, lookups=3, lookup_backoff=_QUICK, crashes=3)
    return Rail(
        policy=policy,
        breaker=None,
        egress=Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"})),
        **values,
    )


class Nursery:
    """The process, as the histories use it. said: where the processes that it starts print."""

    def __init__(self, said: Path) -> None:
        self._said = said
        self._asking = asyncio.Lock()

    async def __aenter__(self) -> Self:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", MODULE, str(self._said)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def relay(self, **settings: Any) -> int:
        return int(await self._ask(do="relay", settings=settings))

    async def rail(self, **settings: Any) -> int:
        return int(await self._ask(do="rail", settings=settings))

    async def signal(self, pid: int, number: signal.Signals) -> None:
        await self._ask(do="signal", pid=pid, number=int(number))

    async def end(self, pid: int) -> None:
        await self._ask(do="end", pid=pid)

    async def lives(self, pid: int) -> bool:
        return bool(await self._ask(do="lives", pid=pid))

    async def _ask(self, **order: Any) -> Any:
        async with self._asking:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            await self._process.stdin.drain()
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The process that starts relays has ended; see {self._said}.")
        return json.loads(line)


def _relay(settings: Mapping[str, Any]) -> NoReturn:
    app = App()
    app.include(
        with_rails(
            [rail_of(settings["rail"])],
            reconcile_every_seconds=settings["reconcile_every_seconds"],
            lag_seconds=settings["lag_seconds"],
        )
    )
    process = RelayProcess(
        app=app,
        dsn=settings["dsn"],
        limits=RelayLimits(**settings["limits"]),
        name=settings["name"],
        state_directory=Path(settings["state"]),
    )
    run_to_exit(run_relay(process))


def _rail(settings: Mapping[str, Any]) -> None:
    with Path(settings["address"]).open("w", encoding="utf-8") as sys.stdout:
        asyncio.run(server.serve(server.settings_of(settings)))


def main(said: Path) -> None:
    children: set[int] = set()
    kinds: Mapping[str, Callable[[Mapping[str, Any]], None]] = {"relay": _relay, "rail": _rail}
    for line in sys.stdin:
        order = json.loads(line)
        answer: Any = True
        match order["do"]:
            case "relay" | "rail" as kind:
                answer = os.fork()
                if answer == 0:
                    _child(said, kinds[kind], order["settings"])
                children.add(answer)
            case "signal" if order["pid"] in children:
                os.kill(order["pid"], order["number"])
            case "end" if order["pid"] in children:
                os.kill(order["pid"], signal.SIGKILL)
                os.waitpid(order["pid"], 0)
                children.discard(order["pid"])
            case "lives":
                answer = order["pid"] in children and _lives(order["pid"])
        print(json.dumps(answer), flush=True)


def _lives(pid: int) -> bool:
    """Without taking its id away from it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _child(said: Path, run: Callable[[Mapping[str, Any]], None], settings: Mapping[str, Any]) -> NoReturn:
    nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        run(settings)
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
