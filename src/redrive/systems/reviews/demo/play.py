"""Runs the demo: a repository, two simulated providers, a relay here, and the mail as the server received it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email import message_from_string, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Final

import psycopg
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from redrive.kit.cli import command_line
from redrive.kit.database import upgrade_installed
from redrive.kit.proof import journal
from redrive.kit.relay import Events, RelayLimits, RelayProcess, embedded, run_relay
from redrive.systems import reviews
from redrive.systems.reviews.demo import app as demo_app
from redrive.systems.reviews.demo.repository import Repository, make_repository

PROVIDER: Final = "redrive.systems.reviews.simulators.provider"
MAIL_SERVER: Final = "redrive.systems.reviews.simulators.mail_server"
LIMITS: Final = RelayLimits(lease_seconds=10, reap_every_seconds=2, heartbeat_seconds=1)
LOOK_SECONDS: Final = 0.2
SECONDS_MAX: Final = 90.0
PANEL_COLUMNS: Final = 100
ADA, GRACE = "ada@example.org", "grace@example.org"
_STATE: Final = (
    "SELECT redrive_reviews.state_of_job(j) FROM redrive_reviews.job j WHERE changelist_id = %s "
    "ORDER BY review_version DESC"
)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """home: where the data, the repository, the logs and `redrive.toml` live. once: end when the mail has arrived."""

    home: Path
    once: bool = False
    dsn: str | None = None


def run(demo: Demo, console: Console) -> int:
    """Exit code: 0, or 1 where a recipient was not notified exactly once."""
    demo.home.mkdir(parents=True, exist_ok=True)
    if demo.dsn is not None:
        return _with_database(demo, demo.dsn, console)
    console.print("Starting PostgreSQL …", style="dim")
    with embedded.start(demo.home / "postgres") as server:
        return _with_database(demo, server.dsn, console)


def _with_database(demo: Demo, dsn: str, console: Console) -> int:
    upgrade_installed(dsn)
    repository = make_repository(demo.home / "repository")
    with (
        _server(PROVIDER, demo.home / "hooks.log", script={"first": ["accepted_lost"]}) as url,
        _server(MAIL_SERVER, demo.home / "mail.log", first={"RCPT": "451 4.3.0 try again later"}) as port,
    ):
        where = {"repository": str(repository.path), "url": url, "port": int(port)}
        os.environ[demo_app.VARIABLE] = json.dumps(where)
        _write_settings(demo.home, dsn, where)
        return asyncio.run(_play(demo, dsn, repository, console))


async def _play(demo: Demo, dsn: str, repository: Repository, console: Console) -> int:
    ended = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    changelist = f"shop-{secrets.token_hex(2)}"
    await asyncio.to_thread(_submit, dsn, changelist, repository)
    console.print(f"{changelist} is submitted: {repository.base[:12]}..{repository.head[:12]}", style="dim")
    console.print("The mail server says 451 to its first mail; the provider loses its first reply.", style="dim")
    process = RelayProcess(app=demo_app.made(), app_spec=demo_app.SPEC, dsn=dsn, limits=LIMITS, name="reviews demo")
    relay = asyncio.create_task(run_relay(process, events=Events(), signals=False))
    try:
        state = await _over(dsn, changelist, ended=ended, relay=relay)
        _told(console, demo.home, changelist, state)
        if not demo.once and not ended.is_set():
            console.print("The relay goes on until Ctrl-C.", style="dim")
            await asyncio.wait([relay, asyncio.create_task(ended.wait())], return_when=asyncio.FIRST_COMPLETED)
    finally:
        relay.cancel()
        with suppress(asyncio.CancelledError):
            await relay
    wrong = violations(demo.home, changelist, state)
    for sentence in wrong:
        console.print(sentence, style="bold red")
    return 1 if wrong and demo.once else 0


async def _over(dsn: str, changelist: str, *, ended: asyncio.Event, relay: asyncio.Task[None]) -> str:
    deadline = asyncio.get_running_loop().time() + SECONDS_MAX
    while True:
        state = await asyncio.to_thread(_state, dsn, changelist)
        if state != "in_progress" or ended.is_set() or asyncio.get_running_loop().time() > deadline:
            return state
        if relay.done():
            relay.result()
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), LOOK_SECONDS)


def _told(console: Console, home: Path, changelist: str, state: str) -> None:
    for mail in mails(home, changelist):
        body = mail.get_body(("plain",))
        text = body.get_content() if body is not None else ""
        title = Text(f"To: {mail['To']} · {mail['Subject']}")
        console.print(Panel(Text(text.rstrip()), title=title, title_align="left", width=PANEL_COLUMNS))
        html = mail.get_body(("html",))
        if html is not None:
            page = home / "mail.html"
            page.write_text(html.get_content(), encoding="utf-8")
            console.print(f"As HTML: {page}", style="dim", markup=False, soft_wrap=True)
    console.print(f"The review has {state}.", style="bold")
    for words in (("reviews", "show", changelist), ("reviews", "list"), ("reviews", "reconcile")):
        console.print(
            f"cd {home} && {command_line(*words)}", style="dim", markup=False, highlight=False, soft_wrap=True
        )


def mails(home: Path, changelist: str) -> list[EmailMessage]:
    """Those about a changelist, as the server received them."""
    found = [line["body"] for line in journal.read(home / "mail.log")]
    read: list[EmailMessage] = [message_from_string(one, policy=policy.default) for one in found]
    return [one for one in read if changelist in str(one["Subject"])]


def violations(home: Path, changelist: str, state: str) -> list[str]:
    found = [] if state == "succeeded" else [f"{changelist} is {state}; it should have succeeded."]
    sent = [
        line for line in journal.read(home / "hooks.log") if line["log"] == "sent" and changelist in line["subject"]
    ]
    for name, count in ((GRACE, len(sent)), (ADA, len(mails(home, changelist)))):
        if count != 1:
            found.append(f"{name} was notified {count} times; it should be once.")
    return found


def _submit(dsn: str, changelist: str, repository: Repository) -> None:
    with psycopg.connect(dsn) as conn:
        reviews.submit(
            conn,
            reviews.ReviewRequest(
                changelist_id=changelist,
                idempotency_key=changelist,
                repository="shop",
                base_commit=repository.base,
                head_commit=repository.head,
                recipients=[reviews.Recipient(ADA), reviews.Recipient(GRACE, "hooks")],
            ),
        )


def _state(dsn: str, changelist: str) -> str:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(_STATE, [changelist]).fetchone()
    assert row is not None
    return str(row[0])


@contextmanager
def _server(module: str, log: Path, **settings: Any) -> Iterator[str]:
    """In a process of its own; the first line that it prints."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # Ctrl-C is for us; we end it
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"log": str(log), **settings}).encode())
            process.stdin.close()
            yield process.stdout.readline().decode().strip()
        finally:
            process.kill()


def _write_settings(home: Path, dsn: str, where: Mapping[str, Any]) -> None:
    """So that commands in another terminal find database, repository and providers."""
    lines = [
        f"dsn = {json.dumps(dsn)}",
        "[reviews.repositories]",
        f"shop = {json.dumps(where['repository'])}",
        "[reviews.providers.email]",
        'kind = "smtp"',
        'host = "127.0.0.1"',
        f"port = {where['port']}",
        'sender = "reviews@example.org"',
        'tls = "none"',
        "[reviews.providers.hooks]",
        'kind = "http"',
        f"url = {json.dumps(where['url'])}",
        'egress = { allow = ["127.0.0.0/8"], schemes = ["http"] }',
    ]
    (home / "redrive.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
