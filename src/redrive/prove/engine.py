"""`redrive prove engine`: the engine's guarantees, run here and now, with real processes and real faults.

A server and a directory of its own (or, with a DSN, a database of its own on that server), relays, producers, an
observer; then faults until the plan is done, quiescence, and the checker's verdict. Everything that was made is taken
away again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
from psycopg import conninfo, sql

from redrive.operate import embedded
from redrive.prove import report
from redrive.prove.campaign import Campaign, Plan, Progress
from redrive.prove.directories import open_place
from redrive.prove.environment import Environment
from redrive.prove.histories import engine as random_histories
from redrive.prove.histories.drawing import History, read_script
from redrive.prove.histories.drawing import history as random_history
from redrive.prove.proxy import Proxy
from redrive.prove.report import Report
from redrive.store.migrations import migrate

# lease + reap + the time for which a killed reaper keeps its duty, then lookups and retries of what was in doubt.
DUTY_KEPT_SECONDS: Final = 10.0
RETRIES_SECONDS: Final = 40.0  # with a new process for every suspect


@dataclass(frozen=True)
class Database:
    """dsn: a migrated database of its own. restart: stops its server and starts it; None where it is not ours."""

    dsn: str
    server: str
    restart: Callable[[], None] | None


def prove(
    *,
    seed: int,
    scale: float,
    dsn: str | None,
    progress: Progress,
    histories: int | None = None,
    history: int | None = None,
    script: Path | None = None,
) -> Report:
    """Run it; the report says what was found.

    histories: how many random ones; they need a server of their own, so with a DSN none unless it is said. history:
    only the one of this seed. script: only the one that is written there.
    """
    began = time.monotonic()
    alone = _alone(history, script)
    if alone is not None:
        told = random_histories.run_histories([alone], progress=progress, say=print)
        return report.of_histories(told, seed=seed, scale=scale, seconds=time.monotonic() - began)
    ran = _campaign(seed=seed, scale=scale, dsn=dsn, progress=progress)
    if histories is None:
        histories = 0 if dsn else max(1, round(random_histories.HISTORIES * scale))
    if not histories:
        return ran
    told = random_histories.run_histories(random_histories.histories_of(seed, histories), progress=progress)
    return report.with_histories(ran, told, seconds=time.monotonic() - began)


def _alone(history: int | None, script: Path | None) -> History | None:
    if script is not None:
        return read_script(script.read_text("utf-8"))
    return None if history is None else random_history(history)


def _campaign(*, seed: int, scale: float, dsn: str | None, progress: Progress) -> Report:
    began = time.monotonic()
    with open_place() as place, open_database(place, dsn) as database, _wire(place, database.dsn, seed) as wire:
        with Environment(place, database.dsn, wire=wire.dsn) as stage:
            stage.prepare()
            plan = Plan.of(seed=seed, scale=scale, own_server=database.restart is not None)
            campaign = Campaign(stage, plan, cut=wire.lose_reply, restart=database.restart, progress=progress)
            campaign.run()
            return _judged(stage, campaign, database, seed=seed, scale=scale, began=began)


def _judged(
    stage: Environment, campaign: Campaign, database: Database, *, seed: int, scale: float, began: float
) -> Report:
    quiet_seconds_max = (
        stage.config.lease_seconds + stage.config.reap_every_seconds + DUTY_KEPT_SECONDS + RETRIES_SECONDS
    )
    quiet_seconds = campaign.finish(seconds=quiet_seconds_max)
    evidence = stage.evidence()
    verdict = stage.verdict()
    unmet = [f"[step boundaries] {name} was never met." for name, count in campaign.tally.points.items() if not count]
    ended = [f"[processes] {complaint}" for complaint in campaign.tally.complaints]
    return Report(
        seed=seed,
        scale=scale,
        commit=report.commit(),
        server=database.server,
        config=stage.config.printed(),
        seconds=time.monotonic() - began,
        quiet_seconds=quiet_seconds,
        quiet_seconds_max=quiet_seconds_max,
        counts=verdict.counts,
        faults=dict(campaign.tally.faults),
        destination_faults=dict(Counter(line["fault"] for line in evidence.lines("request") if line["fault"])),
        points=dict(campaign.tally.points),
        violations=[*verdict.sentences, *ended, *unmet],
    )


@contextmanager
def open_database(place: Path, dsn: str | None) -> Iterator[Database]:
    """A migrated database: on a server of its own, or with a DSN on that server. Taken away at the end."""
    if dsn is None:
        with _own_server(place / "data") as server:
            name = f"PostgreSQL {server.running.major}, embedded"
            yield _migrated(server.running.dsn, name, restart=server.restart)
    else:
        with _own_database(dsn) as made:
            yield _migrated(made, "PostgreSQL of --dsn, in a database of its own", restart=None)


def _migrated(dsn: str, server: str, *, restart: Callable[[], None] | None) -> Database:
    migrate.upgrade(dsn)
    return Database(dsn, server, restart)


class _OwnServer:
    """An embedded server that can be stopped as by a power cut."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.running = embedded.start(data_dir)

    def restart(self) -> None:
        """Nothing is written down at the end; the next start recovers."""
        os.kill(self.running.pid, signal.SIGQUIT)
        while self.running.running:
            time.sleep(0.02)
        self.running.close()
        self.running = embedded.start(self._data_dir)


@contextmanager
def _own_server(data_dir: Path) -> Iterator[_OwnServer]:
    server = _OwnServer(data_dir)
    try:
        yield server
    finally:
        server.running.stop()
        server.running.close()


@contextmanager
def _own_database(dsn: str) -> Iterator[str]:
    name = f"redrive_prove_{secrets.token_hex(6)}"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    try:
        yield conninfo.make_conninfo(dsn, dbname=name)
    finally:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


class _Wire:
    """The proxy in a thread of its own."""

    def __init__(self, proxy: Proxy, loop: asyncio.AbstractEventLoop) -> None:
        self._proxy = proxy
        self._loop = loop
        self.dsn = proxy.dsn

    def lose_reply(self) -> bool:
        async def lose() -> bool:
            return self._proxy.lose_reply()

        return asyncio.run_coroutine_threadsafe(lose(), self._loop).result()


@contextmanager
def _wire(place: Path, dsn: str, seed: int) -> Iterator[_Wire]:
    directory = place / "wire"
    directory.mkdir()
    proxy = Proxy(directory, dsn, seed=seed)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result()
    try:
        yield _Wire(proxy, loop)
    finally:
        asyncio.run_coroutine_threadsafe(proxy.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5.0)
