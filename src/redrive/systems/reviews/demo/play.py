"""Runs the demo: a repository, two simulated providers, a relay here, and the mail as the server received it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Mapping
from email import message_from_string, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Final

import psycopg
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from redrive.kit.cli import command_line
from redrive.kit.demo import Demo, StoryRelay, exit_code, relay_beside, simulated, with_database
from redrive.kit.proof import journal
from redrive.systems import reviews
from redrive.systems.reviews.demo import app as demo_app
from redrive.systems.reviews.demo.repository import Repository, make_repository

PROVIDER: Final = "redrive.systems.reviews.simulators.provider"
MAIL_SERVER: Final = "redrive.systems.reviews.simulators.mail_server"
LOOK_SECONDS: Final = 0.2
SECONDS_MAX: Final = 90.0
PANEL_COLUMNS: Final = 100
ADA, GRACE = "ada@example.org", "grace@example.org"
_STATE: Final = (
    "SELECT redrive_reviews.state_of_job(j) FROM redrive_reviews.job j WHERE changelist_id = %s "
    "ORDER BY review_version DESC"
)


def run(demo: Demo, console: Console) -> int:
    """Exit code: 0, or 1 where a recipient was not notified exactly once."""
    return with_database(demo, console, lambda dsn: _with_database(demo, dsn, console))


def _with_database(demo: Demo, dsn: str, console: Console) -> int:
    repository = make_repository(demo.home / "repository")
    hooks = {"log": str(demo.home / "hooks.log"), "script": {"first": ["accepted_lost"]}}
    mail = {"log": str(demo.home / "mail.log"), "first": {"RCPT": "451 4.3.0 try again later"}}
    with simulated(PROVIDER, hooks) as url, simulated(MAIL_SERVER, mail) as port:
        where = {"repository": str(repository.path), "url": url, "port": int(port)}
        os.environ[demo_app.VARIABLE] = json.dumps(where)
        _write_settings(demo.home, dsn, where)
        return asyncio.run(_play(demo, dsn, repository, console))


async def _play(demo: Demo, dsn: str, repository: Repository, console: Console) -> int:
    changelist = f"shop-{secrets.token_hex(2)}"
    await asyncio.to_thread(_submit, dsn, changelist, repository)
    console.print(f"{changelist} is submitted: {repository.base[:12]}..{repository.head[:12]}", style="dim")
    console.print("The mail server says 451 to its first mail; the provider loses its first reply.", style="dim")
    async with relay_beside(console, demo_app.made(), spec=demo_app.SPEC, dsn=dsn, name="reviews demo") as relay:
        state = await _over(dsn, changelist, relay)
        _told(console, demo.home, changelist, state)
        await relay.go_on(demo)
    return exit_code(demo, console, violations(demo.home, changelist, state))


async def _over(dsn: str, changelist: str, relay: StoryRelay) -> str:
    deadline = asyncio.get_running_loop().time() + SECONDS_MAX
    while True:
        state = await asyncio.to_thread(_state, dsn, changelist)
        if state != "in_progress" or relay.ended.is_set() or asyncio.get_running_loop().time() > deadline:
            return state
        await relay.pause(LOOK_SECONDS)


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
    for line in sent_by_hooks(home, changelist):
        said = f"To: {line['to']} · {line['subject']}, by the provider {demo_app.HOOKS} as {line['id']}"
        console.print(said, style="dim", markup=False, highlight=False, soft_wrap=True)
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


def sent_by_hooks(home: Path, changelist: str) -> list[journal.Line]:
    """What the provider has sent about a changelist, by its own log."""
    lines = journal.read(home / "hooks.log")
    return [line for line in lines if line["log"] == "sent" and changelist in line["subject"]]


def violations(home: Path, changelist: str, state: str) -> list[str]:
    found = [] if state == "succeeded" else [f"{changelist} is {state}; it should have succeeded."]
    for name, count in ((GRACE, len(sent_by_hooks(home, changelist))), (ADA, len(mails(home, changelist)))):
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
                recipients=[reviews.Recipient(ADA), reviews.Recipient(GRACE, demo_app.HOOKS)],
            ),
        )


def _state(dsn: str, changelist: str) -> str:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(_STATE, [changelist]).fetchone()
    assert row is not None
    return str(row[0])


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
