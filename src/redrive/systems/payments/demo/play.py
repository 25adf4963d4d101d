"""Runs the demo: rails in processes of their own, a relay here, and the story told while it goes on."""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row
from rich.console import Console
from rich.table import Table
from rich.text import Text

from redrive.kit.cli import output
from redrive.kit.demo import Demo, StoryRelay, exit_code, relay_beside, simulated, what_next, with_database
from redrive.systems import payments
from redrive.systems.payments.demo import app as demo_app
from redrive.systems.payments.demo import story
from redrive.systems.payments.demo.story import COMPANIES, PROFILES, SCENES, Scene
from redrive.systems.payments.rail.ledger import read_effects

SERVER: Final = "redrive.systems.payments.rail.server"
LOOK_SECONDS: Final = 0.2
STORY_SECONDS_MAX: Final = 120.0
_HOW_IT_STANDS: Final = """
SELECT i.instruction_id, redrive.state_of(i.outbox_id) AS state, k.reason, a.attempt, a.reference, a.actor
  FROM redrive_payments.intent i
  LEFT JOIN redrive.parked k ON k.id = i.outbox_id
  LEFT JOIN LATERAL (SELECT x.attempt, x.reference, x.actor FROM redrive.attempt x WHERE x.message_id = i.outbox_id
                      ORDER BY x.completed_at DESC LIMIT 1) a ON true
 WHERE i.instruction_id = ANY (%s)
"""


def run(demo: Demo, console: Console) -> int:
    """Exit code: 0, or 1 where the story ended otherwise than it must."""
    return with_database(demo, console, lambda dsn: _with_database(demo, dsn, console))


def _with_database(demo: Demo, dsn: str, console: Console) -> int:
    number = _next_run(dsn)
    with _rails(demo.home, number) as urls:
        os.environ[demo_app.VARIABLE] = json.dumps(urls)
        _write_settings(demo.home, dsn, urls)
        return asyncio.run(_play(demo, dsn, number, console))


async def _play(demo: Demo, dsn: str, number: int, console: Console) -> int:
    async with relay_beside(console, demo_app.made(), spec=demo_app.SPEC, dsn=dsn, name="payments demo") as relay:
        await asyncio.to_thread(_submit, dsn, number)
        console.print(f"{len(SCENES)} payments of {len(COMPANIES)} companies are submitted.", style="dim")
        stands = await _told(dsn, number, console, relay)
        _summary(console, demo.home, number, stands)
        await relay.go_on(demo)
    return exit_code(demo, console, violations(stands, demo.home, number))


async def _told(dsn: str, number: int, console: Console, relay: StoryRelay) -> Mapping[str, Mapping[str, Any]]:
    deadline = asyncio.get_running_loop().time() + STORY_SECONDS_MAX
    said: dict[str, str] = {}
    while True:
        stands = await asyncio.to_thread(_how_it_stands, dsn, number)
        for scene in SCENES:
            name = story.instruction_id(scene, number)
            state = stands[name]["shown"]
            if said.get(name, "pending") != state and state != "leased":
                _say(console, scene, state, stands[name])
            said[name] = state if state != "leased" else said.get(name, "pending")
        over = all(stands[story.instruction_id(scene, number)]["shown"] == scene.ends for scene in SCENES)
        if over or relay.ended.is_set() or asyncio.get_running_loop().time() > deadline:
            return stands
        await relay.pause(LOOK_SECONDS)


def _say(console: Console, scene: Scene, state: str, stands: Mapping[str, Any]) -> None:
    line = Text(f"{scene.company.shown:<18} {scene.name:<13}")
    line.append(f"{scene.amount:>8} {scene.company.currency}  ")
    line.append(f"{state:<10}", style=output.STATE_STYLES.get(state, ""))
    line.append(scene.told if state == scene.ends else "only a person, or the rail's statement, can say more")
    if stands["actor"] == "reconciliation" and state == "delivered":
        line.append("  (by reconciliation)", style="dim")
    console.print(line, soft_wrap=True)


def _summary(console: Console, home: Path, number: int, stands: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table("payment", "company", "rail", "amount", "state", "attempts", "reference", title="How it stands")
    for scene in SCENES:
        name = story.instruction_id(scene, number)
        row = stands[name]
        state = Text(row["shown"], style=output.STATE_STYLES.get(row["shown"], ""))
        amount = f"{scene.amount} {scene.company.currency}"
        told = (name, scene.company.shown, scene.company.rail, amount, state)
        table.add_row(*told, str(row["attempt"] or 0), row["reference"] or "–")
    console.print(table)
    held = next(story.instruction_id(scene, number) for scene in SCENES if scene.ends == "held")
    commands = (("payments", "audit", held), ("payments", "reconcile"), ("held", "list"))
    what_next(home, console, "Every attempt, in another terminal:", *commands)


def violations(stands: Mapping[str, Mapping[str, Any]], home: Path, number: int) -> list[str]:
    found = []
    paid = [effect.instruction_id for rail in PROFILES for effect in read_effects(_ledger(home, rail))]
    for scene in SCENES:
        name = story.instruction_id(scene, number)
        if stands[name]["shown"] != scene.ends:
            found.append(f"{name} is {stands[name]['shown']}; it should be {scene.ends}.")
        if paid.count(name) != scene.paid:
            found.append(f"{name} was paid {paid.count(name)} times; it should be {int(scene.paid)}.")
    return found


# the database


def _next_run(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute(
            "SELECT count(*) FROM redrive_payments.participant WHERE participant_id LIKE 'bakery-%'"
        ).fetchone()
    assert row is not None
    return int(row[0]) + 1


def _submit(dsn: str, number: int) -> None:
    with psycopg.connect(dsn) as conn:
        for name, company in COMPANIES.items():
            payments.add_participant(conn, story.participant_id(name, number), name=company.shown)
        for scene in SCENES:
            payments.submit(conn, story.instruction(scene, number))


def _how_it_stands(dsn: str, number: int) -> dict[str, dict[str, Any]]:
    """shown: the state, or why it is parked."""
    names = [story.instruction_id(scene, number) for scene in SCENES]
    with psycopg.connect(dsn, row_factory=dict_row) as conn:
        rows = conn.execute(_HOW_IT_STANDS, [names]).fetchall()
    return {row["instruction_id"]: {**row, "shown": row["reason"] or row["state"]} for row in rows}


# the rails


@contextmanager
def _rails(home: Path, number: int) -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        urls = {}
        for rail_type, profile in PROFILES.items():
            plans = {story.instruction_id(one, number): one.meets for one in SCENES if one.company.rail == rail_type}
            script = {"plans": plans, "late_seconds": [story.LATE_SECONDS, story.LATE_SECONDS]}
            settings = {"ledger": str(_ledger(home, rail_type)), "profile": profile.value, "script": script}
            urls[rail_type] = stack.enter_context(simulated(SERVER, settings))
        yield urls


def _ledger(home: Path, rail_type: str) -> Path:
    return home / f"{rail_type}.ledger"


def _write_settings(home: Path, dsn: str, urls: Mapping[str, str]) -> None:
    """So that commands in another terminal find database and rails."""
    lines = [f"dsn = {json.dumps(dsn)}"]
    for rail in story.rails(urls):
        lines += ["", f"[payments.rails.{rail.rail_type}]", f"url = {json.dumps(rail.url)}"]
        lines += [f"can_look_up = {_toml(rail.can_look_up)}", f"has_statement = {_toml(rail.has_statement)}"]
        if rail.token_ttl_seconds is not None:
            lines.append(f"token_ttl_seconds = {rail.token_ttl_seconds}")
        lines.append('egress = { allow = ["127.0.0.0/8"], schemes = ["http"] }')
    (home / "redrive.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _toml(value: bool) -> str:
    return "true" if value else "false"
