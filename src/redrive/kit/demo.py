"""What the demos of systems share: the command and its options, a database, and a relay beside the story.

A demo is a story that a person watches: `redrive NAME demo`. It starts PostgreSQL by itself unless a database is named,
goes on until Ctrl-C unless `--once` is given, and ends with 1 where the story ended otherwise than it must.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from redrive.events import Events
from redrive.operate.cli import output
from redrive.operate.cli.context import example
from redrive.operate.cli.local_server import command_line, demo_home

if TYPE_CHECKING:
    from redrive.app import App

__all__ = ["Demo", "StoryRelay", "demo_command", "exit_code", "relay_beside", "simulated", "what_next", "with_database"]

LIMITS: Final = {"lease_seconds": 10, "reap_every_seconds": 2, "heartbeat_seconds": 1}  # a story waits for no lease


@dataclass(frozen=True, kw_only=True)
class Demo:
    """home: where data, ledgers and `redrive.toml` live. once: end when the story is told. dsn: None = a server of its
    own."""

    home: Path
    once: bool = False
    dsn: str | None = None


@dataclass
class StoryRelay:
    """The relay of a story. ended: Ctrl-C came."""

    task: asyncio.Task[None]
    console: Console
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def pause(self, seconds: float) -> None:
        """Between two looks, or until Ctrl-C. A relay that has failed ends the story with its error."""
        if self.task.done():
            self.task.result()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), seconds)

    async def go_on(self, demo: Demo) -> None:
        """After the story: until Ctrl-C, unless it is told once."""
        if demo.once or self.ended.is_set():
            return
        self.console.print("The relay goes on until Ctrl-C.", style="dim")
        await asyncio.wait([self.task, asyncio.create_task(self.ended.wait())], return_when=asyncio.FIRST_COMPLETED)


def demo_command(system: str, *, once: str) -> Callable[[Callable[[Demo, Console], int]], click.Command]:
    """The command `demo` of a system: the function plays it, its docstring is the help. once: the help of `--once`."""

    def decorate(play: Callable[[Demo, Console], int]) -> click.Command:
        @click.command(
            "demo", help=play.__doc__, epilog=example(f"redrive {system} demo", f"redrive {system} demo --once")
        )
        @click.option("--once", is_flag=True, help=once)
        @click.option(
            "--home",
            type=click.Path(path_type=Path, file_okay=False),
            help="Where its data live. Default: beside those of `redrive demo`.",
        )
        @click.option("--dsn", metavar="DSN", help="Use this database instead of an embedded server.")
        def command(once: bool, home: Path | None, dsn: str | None) -> None:
            place = home or demo_home().with_name(demo_home().name.replace("demo", f"{system}-demo", 1))
            raise click.exceptions.Exit(play(Demo(home=place.absolute(), once=once, dsn=dsn), output.stdout()))

        return command

    return decorate


def with_database(demo: Demo, console: Console, play: Callable[[str], int]) -> int:
    """Play on the named database, or on a server of the demo's own; its schema is upgraded."""
    from redrive.operate import embedded  # what a demo needs is loaded when it is played, not for `--help`
    from redrive.operate.installed import upgrade_installed

    demo.home.mkdir(parents=True, exist_ok=True)
    if demo.dsn is not None:
        upgrade_installed(demo.dsn)
        return play(demo.dsn)
    console.print(f"Starting PostgreSQL; its data are in {demo.home.absolute()} …", style="dim", soft_wrap=True)
    with embedded.start(demo.home / "postgres") as server:
        upgrade_installed(server.dsn)
        return play(server.dsn)


@contextmanager
def simulated(module: str, settings: Mapping[str, Any]) -> Iterator[str]:
    """The other side, in a process of its own: it reads its settings from stdin and prints its address as a line."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # Ctrl-C is for the demo, which ends it
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(settings).encode())
            process.stdin.close()
            yield process.stdout.readline().decode().strip()
        finally:
            process.kill()


@asynccontextmanager
async def relay_beside(
    console: Console, app: App, *, spec: str, dsn: str, name: str, events: Events | None = None, **limits: Any
) -> AsyncIterator[StoryRelay]:
    """A relay while the story is told. Ctrl-C sets `ended`, and does not end the process. limits: as RelayLimits."""
    from redrive.relay.process import RelayProcess, run_relay
    from redrive.settings import RelayLimits

    process = RelayProcess(app=app, app_spec=spec, dsn=dsn, limits=RelayLimits(**LIMITS, **limits), name=name)
    relay = StoryRelay(asyncio.create_task(run_relay(process, events=events or Events(), signals=False)), console)
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, relay.ended.set)
    try:
        yield relay
    finally:
        relay.task.cancel()
        with suppress(asyncio.CancelledError):
            await relay.task


def what_next(home: Path, console: Console, said: str, *commands: Sequence[str]) -> None:
    """Commands for another terminal, in the directory whose `redrive.toml` knows the database."""
    console.print(said, style="dim")
    for words in commands:
        line = f"cd {shlex.quote(str(home))} && {command_line(*words)}"
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def exit_code(demo: Demo, console: Console, wrong: list[str]) -> int:
    """Say what ended otherwise than it must; the exit code."""
    for sentence in wrong:
        console.print(sentence, style="bold red")
    return 1 if wrong and demo.once else 0
