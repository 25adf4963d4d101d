"""A database with the tables of reviews, a real git repository, and a desk: a relay with a provider beside it."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

import redrive
from redrive.events import Events
from redrive.kit.proof import journal
from redrive.policy import Backoff, Policy
from redrive.systems import reviews
from redrive.systems.reviews import HttpProvider, Recipient, ReviewRequest
from redrive.systems.reviews.critic import Critic, RuleCritic
from redrive.systems.reviews.providers import Provider
from redrive.systems.reviews.simulators.provider import Provider as SimulatedProvider
from redrive.systems.reviews.simulators.script import Script
from tests.support.databases import fresh_database
from tests.transports.servers import HERE

ADA = "ada@example.org"
GRACE = "grace@example.org"
QUICK = Policy(
    attempts=5,
    backoff=Backoff(initial_seconds=0.01, multiplier=1, max_seconds=0.01, jitter="none"),
    lookup_backoff=Backoff(initial_seconds=0.01, multiplier=1, max_seconds=0.01, jitter="none"),
    lookups=5,
)
SECONDS = 40.0
FIRST = "def total(prices):\n    return sum(prices)\n"
SECOND = 'def total(prices, seen=[]):\n    breakpoint()\n    password = "hunter2-hunter2"\n    return sum(prices)\n'


@dataclass(frozen=True)
class Repository:
    """base, head: two commits of it with a difference that the rules complain about."""

    path: Path
    base: str
    head: str


def git(path: Path, *arguments: str) -> str:
    identity = {
        f"GIT_{who}_{what}": "nobody@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", "-C", str(path), *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
    )
    return done.stdout.strip()


def commit(path: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    git(path, "add", "--all")
    git(path, "commit", "--quiet", "--message", "a change")
    return git(path, "rev-parse", "HEAD")


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    path = tmp_path_factory.mktemp("repository")
    git(path, "init", "--quiet", "--initial-branch=main")
    base = commit(path, {"shop/total.py": FIRST})
    return Repository(path, base, commit(path, {"shop/total.py": SECOND}))


@pytest.fixture
def reviewing(server_dsn: str, template: str) -> Iterator[str]:
    """The DSN of the test's own database: a comparison with a provider looks at all deliveries that it made."""
    with fresh_database(server_dsn, template=template) as dsn:
        yield dsn


@pytest.fixture
def changelist() -> str:
    return f"cl-{secrets.token_hex(4)}"


def request(name: str, of: Repository | None = None, **other: Any) -> ReviewRequest:
    """A right one, but for what is given."""
    values: dict[str, Any] = {
        "changelist_id": name,
        "idempotency_key": f"key of {name}",
        "repository": "shop",
        "base_commit": of.base if of else "main",
        "head_commit": of.head if of else "topic",
        "recipients": [Recipient(ADA, "hooks")],
    }
    return ReviewRequest(**{**values, **other})


def rows(dsn: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(query.encode(), values).fetchall()


def submit(dsn: str, wanted: ReviewRequest) -> reviews.Submitted:
    with psycopg.connect(dsn) as conn:
        return reviews.submit(conn, wanted)


@dataclass
class Desk:
    """A relay in this process with what it talks to. log: of the provider."""

    dsn: str
    log: Path
    provider: HttpProvider
    events: Events
    _heard: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        for name in ("delivered", "retried", "parked", "advanced"):
            self.events.subscribe(lambda *_: self._heard.set(), f"message.{name}")
        self.events.subscribe(lambda *_: self._heard.set(), "duty.stop")

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Looks again whenever a message was settled, or a duty has run."""
        async with asyncio.timeout(SECONDS):
            while True:
                self._heard.clear()  # before it looks: what is settled meanwhile is looked at again
                if found := await asyncio.to_thread(condition):
                    return found
                await self._heard.wait()

    async def state(self, changelist_id: str, *wanted: str) -> str:
        """Waits until the latest job of a changelist is in one of these states."""
        return str(await self.until(lambda: (found := job_state(self.dsn, changelist_id)) in wanted and found))

    @property
    def sent(self) -> list[dict[str, Any]]:
        """What the provider has sent, by its own log."""
        return [line for line in journal.read(self.log) if line["log"] == "sent"]

    @property
    def calls(self) -> list[str]:
        return [line["log"] for line in journal.read(self.log)]


def job_state(dsn: str, changelist_id: str) -> str | None:
    found = rows(
        dsn,
        "SELECT redrive_reviews.state_of_job(j) FROM redrive_reviews.job j WHERE changelist_id = %s"
        " ORDER BY review_version DESC",
        changelist_id,
    )
    return found[0][0] if found else None


@asynccontextmanager
async def provider_at(
    log: Path, script: Script | None = None, *, knows_tokens: bool = True, **options: Any
) -> AsyncIterator[HttpProvider]:
    """A simulated provider in this process, as its settings name it."""
    from aiohttp import web

    runner = web.AppRunner(
        SimulatedProvider(log, script or Script(), knows_tokens=knows_tokens).app(), shutdown_timeout=0.1
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield HttpProvider(**{"name": "hooks", "url": url, "egress": HERE, "policy": QUICK, **options})
    finally:
        await runner.cleanup()


def app_of(
    repository: Repository, providers: Sequence[Provider], critic: Critic | None = None, **options: Any
) -> redrive.App:
    app = redrive.App()
    given = {"policy": QUICK, "reconcile_every_seconds": 3600.0, **options}
    app.include(
        reviews.with_reviews({"shop": repository.path}, providers=providers, critic=critic or RuleCritic(), **given)
    )
    return app


@asynccontextmanager
async def desk(
    dsn: str,
    repository: Repository,
    tmp_path: Path,
    script: Script | None = None,
    *,
    critic: Critic | None = None,
    more: Sequence[Provider] = (),
    provider: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Desk]:
    """more: providers beside the simulated one."""
    log = tmp_path / "provider.log"
    async with provider_at(log, script, **(provider or {})) as hooks:
        events = Events()
        opened = Desk(dsn, log, hooks, events)
        app = app_of(repository, [hooks, *more], critic, **options)
        async with app.running(dsn, events=events):
            yield opened
        if critic is not None:
            await critic.aclose()
