"""Where the how-to pages are run: a database, an app, and the command line, as a reader would have them.

Blocks see `conn`, `app` and `dsn`; what a page hides may also use the helpers of `Desk` by name. The command line runs
in this process; `$NAME` in a command is a variable of the page.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import re
import secrets
import shlex
import shutil
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any
from uuid import UUID

import psycopg
from click.testing import CliRunner
from psycopg import sql

import redrive
from redrive.events import Events
from redrive.operate.cli.main import cli
from redrive.relay.process import RelayProcess, run_relay
from redrive.settings import RelayLimits
from redrive.testing.draining import HAS_WORK
from tests.docs.pages import Step, fits

DEADLINE_SECONDS = 20.0
_FILE = re.compile(r"[\w/]+\.(py|sql)")

_STATE = "SELECT redrive.state_of(%s), (SELECT reason FROM redrive.parked WHERE id = %s)"


@dataclass
class Desk:
    """One page's desk. said: what the last command printed. rows: what the last SQL block returned."""

    dsn: str
    conn: psycopg.Connection[Any]
    app: redrive.App = field(default_factory=redrive.App)
    said: str = ""
    rows: list[Any] = field(default_factory=list)
    roles: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        own = ("send", "deliver", "start_relay", "state", "make_due", "role", "login", "query")
        self.names |= {name: getattr(self, name) for name in own}
        self.names |= {"conn": self.conn, "dsn": self.dsn, "app": self.app, "redrive": redrive, "desk": self}

    def run(self, step: Step) -> None:
        """One step of the page."""
        runs: dict[str, Callable[[Step], None]] = {
            "python": self._run_python,
            "do": self._run_python,
            "check": self._check,
            "sql": self._run_sql,
            "shell": self._run_shell,
            "output": self._compare,
            "text": lambda _: None,
            "toml": lambda step: self.names.update(toml=step.text),
        }
        run = self._write if _FILE.fullmatch(step.words) else runs[step.kind]
        run(step._replace(text=self._renamed(step.text)))

    def close(self) -> None:
        """The roles that the page made belong to the whole server, its modules to the whole process."""
        self.conn.close()
        for folder in self.folders:
            sys.path.remove(str(folder))
            for module in [one for one in sys.modules if (folder / one.partition(".")[0]).exists()]:
                del sys.modules[module]
            shutil.rmtree(folder)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for name in map(sql.Identifier, self.roles.values()):
                with suppress(psycopg.errors.UndefinedObject):
                    connection.execute(sql.SQL("DROP OWNED BY {}").format(name))
                    connection.execute(sql.SQL("DROP ROLE {}").format(name))

    # what pages may use

    def send(self, destination: str, payload: Any = None, **options: Any) -> UUID:
        """Enqueue and commit."""
        receipt = redrive.enqueue(self.conn, destination, {} if payload is None else payload, **options)
        self.conn.commit()
        return receipt.id

    def deliver(self, dsn: str | None = None, **limits: Any) -> None:
        """Run a relay until nothing is left that is due and may go."""
        self.conn.commit()
        asyncio.run(_drain(self.names["app"], dsn or self.dsn, self.dsn, limits))

    def start_relay(self) -> Beside:
        """One that runs beside the page, until `stop`."""
        self.conn.commit()
        return Beside(self.names["app"], self.dsn)

    def state(self, id: UUID) -> str:
        """Where a message is: `pending`, `parked·dead`, `delivered` …"""
        state, reason = self.query(_STATE, id, id)[0]
        return f"{state}·{reason}" if reason else str(state)

    def make_due(self) -> None:
        """As if the time until the next attempt had passed."""
        self.query("UPDATE redrive.pending SET due_at = clock_timestamp() RETURNING id")
        self.query("UPDATE redrive.lane_wake SET due_at = clock_timestamp() RETURNING lane")
        rest_is_over = "UPDATE redrive.destination SET paused_until = now(), breaker_until = now()"
        self.query(f"{rest_is_over} WHERE paused_until > now() RETURNING name")

    def role(self, name: str) -> str:
        """From now on this role of the page stands for one that no other test has."""
        self.roles[name] = f"{name}_{secrets.token_hex(4)}"
        return self.roles[name]

    def login(self, name: str) -> str:
        """The database, as that role."""
        return psycopg.conninfo.make_conninfo(self.dsn, user=self.roles.get(name, name))

    def query(self, statement: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def install(self, name: str, toml: str) -> None:
        """Let Python find the files that the page has written, as an installed package with these entry points."""
        points = tomllib.loads(toml)["project"]["entry-points"]
        lines = [
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in of.items()) for group, of in points.items()
        ]
        there = self._folder() / f"{name}-1.dist-info"
        there.mkdir()
        (there / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (there / "entry_points.txt").write_text("\n".join(lines))
        sys.path.append(str(self._folder()))
        importlib.invalidate_caches()

    # the kinds of steps

    def _folder(self) -> Path:
        if not self.folders:
            self.folders.append(Path(tempfile.mkdtemp(prefix="redrive-docs-")))
        return self.folders[0]

    def _write(self, step: Step) -> None:
        """A block with the name of a file."""
        file = self._folder() / step.words
        file.parent.mkdir(parents=True, exist_ok=True)
        if step.kind == "python":
            (file.parent / "__init__.py").touch()
        file.write_text(step.text)

    def _run_python(self, step: Step) -> None:
        code = compile(step.text.strip(), step.place, "exec", dont_inherit=True)
        exec(code, self.names)
        self.conn.commit()

    def _check(self, step: Step) -> None:
        assert eval(step.text.strip(), self.names), f"{step.place}: {step.text.strip()}"

    def _run_sql(self, step: Step) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(step.text.encode())
            while cursor.nextset():
                pass
            self.rows = cursor.fetchall() if cursor.description else []
        self.names["rows"] = self.rows

    def _run_shell(self, step: Step) -> None:
        for line in step.text.replace("\\\n", " ").splitlines():
            words = shlex.split(Template(line).safe_substitute(self.names), comments=True)
            if words[:2] == ["python", "manage.py"]:
                self._manage(words[2:])
            elif words:
                assert words[0] == "redrive", f"{step.place}: only `redrive` is run here; tag the block no-run."
                self._command(words[1:], step)

    def _manage(self, words: list[str]) -> None:
        """In the project that the page has set up."""
        from django.core.management import call_command

        printed = io.StringIO()
        call_command(*words, stdout=printed, stderr=printed)
        self.said = self.names["said"] = printed.getvalue()

    def _command(self, words: list[str], step: Step) -> None:
        result = CliRunner().invoke(cli, ["--dsn", self.dsn, *words])
        self.said = result.stdout + result.stderr
        self.names["said"] = self.said
        assert result.exit_code == step.exit_code, f"{step.place}: {words} ended with {result.exit_code}: {self.said}"

    def _compare(self, step: Step) -> None:
        assert fits(step.text, self.said), f"{step.place}: the page shows\n{step.text}\nand it printed\n{self.said}"

    def _renamed(self, text: str) -> str:
        for name, own in self.roles.items():
            text = text.replace(name, own)
        return text


class Beside:
    """A relay in a thread of its own."""

    def __init__(self, app: redrive.App, dsn: str) -> None:
        self._app, self._dsn = app, dsn
        self._started, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=[self._run()])
        self._thread.start()
        assert self._started.wait(DEADLINE_SECONDS), "The relay did not start."

    def stop(self) -> None:
        self._over.set()
        self._thread.join(DEADLINE_SECONDS)

    async def _run(self) -> None:
        process = RelayProcess(app=self._app, dsn=self._dsn, limits=RelayLimits(poll_seconds=0.05), name="docs")
        events = Events()
        events.subscribe(lambda *_: self._started.set(), "relay.started")
        relay = asyncio.create_task(run_relay(process, events=events, signals=False))
        await asyncio.to_thread(self._over.wait, DEADLINE_SECONDS)
        relay.cancel()
        await asyncio.gather(relay, return_exceptions=True)


async def _drain(app: redrive.App, dsn: str, watch_dsn: str, limits: dict[str, Any]) -> None:
    events = Events()
    idle = asyncio.Event()
    events.subscribe(lambda *_: idle.set(), "relay.idle")
    process = RelayProcess(app=app, dsn=dsn, limits=RelayLimits(poll_seconds=0.05, **limits), name="docs")
    relay = asyncio.create_task(run_relay(process, events=events, signals=False))
    try:
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            await psycopg.AsyncConnection.connect(watch_dsn, autocommit=True) as watching,
        ):
            while await _is_open(watching, list(app.destinations)):
                idle.clear()
                waiting = asyncio.create_task(idle.wait())
                # A relay that is held back everywhere is not idle, and does not say so.
                await asyncio.wait([waiting, relay], timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if relay.done():
                    relay.result()
    finally:
        relay.cancel()
        await asyncio.gather(relay, return_exceptions=True)


async def _is_open(connection: psycopg.AsyncConnection[Any], destinations: list[str]) -> bool:
    async with connection.transaction():
        # One snapshot, older than `now`: what it shows as pending was due by then, or is to wait.
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        now = (await (await connection.execute("SELECT clock_timestamp()")).fetchall())[0][0]
        cursor = await connection.execute(HAS_WORK, {"destinations": destinations, "now": now})
        return bool((await cursor.fetchall())[0][0])
