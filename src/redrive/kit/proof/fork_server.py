"""A process that starts others by fork, each in milliseconds: it has imported everything and runs nothing itself.

It takes orders as JSON lines. A process that ended stays known until `end`, so that its id is never another's.
"""

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from redrive.kit.proof.loop_thread import LoopThread

END_SECONDS = 10.0

Settings = Mapping[str, Any]


class ForkServer:
    """module: calls `serve` when it is run. said: where the processes print."""

    def __init__(self, module: str, said: Path) -> None:
        self._module = module
        self._said = said
        self._asking = asyncio.Lock()

    async def __aenter__(self) -> Self:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", self._module, str(self._said)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), END_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def start(self, kind: str, **settings: Any) -> int:
        return int(await self._ask(do="start", kind=kind, settings=settings))

    async def signal(self, pid: int, number: signal.Signals) -> None:
        await self._ask(do="signal", pid=pid, number=int(number))

    async def end(self, pid: int) -> None:
        """Killed, with its process group."""
        await self._ask(do="end", pid=pid)

    async def lives(self, pid: int) -> bool:
        return await self.code(pid) is None

    async def code(self, pid: int) -> int | None:
        """None while it runs, minus the signal where one ended it."""
        code: int | None = await self._ask(do="code", pid=pid)
        return code

    async def _ask(self, **order: Any) -> Any:
        """The answer is read even if the caller is cancelled: the next caller would take it for its own."""
        return await asyncio.shield(asyncio.ensure_future(self._answered(order)))

    async def _answered(self, order: Mapping[str, Any]) -> Any:
        async with self._asking:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            await self._process.stdin.drain()
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The process that starts relays has ended; see {self._said}.")
        return json.loads(line)


@dataclass(frozen=True)
class Child:
    """A process of a fork server whose loop runs in a thread, for a proof without a loop of its own."""

    pid: int
    forks: ForkServer
    loop: LoopThread

    @property
    def code(self) -> int | None:
        """None while it runs, minus the signal where one ended it."""
        return self.loop.run(self.forks.code(self.pid))

    def end(self) -> None:
        self.loop.run(self.forks.end(self.pid))


def serve(said: Path, kinds: Mapping[str, Callable[[Settings], None]]) -> None:
    """Until standard input ends."""
    children: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        answer: Any = True
        match order["do"]:
            case "start":
                answer = os.fork()
                if answer == 0:
                    _child(said, kinds[order["kind"]], order["settings"])
                os.setpgid(answer, answer)
                children.add(answer)
            case "signal" if order["pid"] in children:
                os.kill(order["pid"], order["number"])
            case "end" if order["pid"] in children:
                _end(order["pid"])
                children.discard(order["pid"])
            case "code":
                answer = _code(order["pid"]) if order["pid"] in children else 0
        print(json.dumps(answer), flush=True)
    for pid in children:
        _end(pid)


def _end(pid: int) -> None:
    """The process stays known until it is waited for, so its group is still its own."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _code(pid: int) -> int | None:
    """Without taking its id away from it."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _child(said: Path, run: Callable[[Settings], None], settings: Settings) -> NoReturn:
    with suppress(PermissionError):
        os.setpgid(0, 0)
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
