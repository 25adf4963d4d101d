"""A database in which every text that anybody can choose is an attempt to run something, and what a page made of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, Final
from uuid import UUID

import psycopg

from redrive.message import MessageId
from redrive.store.runtime.postgres import PostgresStore
from tests.desk.failing import dead

PAYLOADS: Final = (
    "<script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"><img src=x onerror=alert(1)>",
    "'><svg onload=alert(1)>",
    "\" onmouseover=\"alert(1)",
    "' onfocus='alert(1)' autofocus='",
    "javascript:alert(1)",
    "<a href=javascript:alert(1)>x</a>",
    "<iframe src=javascript:alert(1)>",
    "</textarea><script>alert(1)</script>",
    "</pre><script>alert(1)</script>",
    "<style>*{display:none}</style>",
    "<base href=//evil.example>",
    "<form action=//evil.example><button>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "{{ 7*7 }}{% for x in y %}",
    "${alert(1)}#{alert(1)}",
    "<object data=javascript:alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<input onfocus=alert(1) autofocus>",
    "\u202e<script>alert(1)</script>\u2066",
    "<!--<script>alert(1)//--></script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd",
)  # fmt: skip


@dataclass
class Seen:
    """What a browser would build of a page."""

    tags: set[str] = field(default_factory=set)
    scripts: list[str | None] = field(default_factory=list)
    handlers: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    styles: int = 0


class Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.seen = Seen()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.tags.add(tag)
        given = dict(attrs)
        if tag == "script":
            self.seen.scripts.append(given.get("src"))
        self.seen.handlers += [name for name in given if name.startswith("on")]
        self.seen.styles += "style" in given
        self.seen.links += [
            str(given[name]) for name in ("href", "src", "action", "formaction", "hx-get", "hx-post") if given.get(name)
        ]


def parsed(html: str) -> Seen:
    parser = Parser()
    parser.feed(html)
    parser.close()
    return parser.seen


def faults_of(html: str) -> list[str]:
    """What could run, load or send anything that is not ours."""
    seen = parsed(html)
    found = [
        f"<{tag}>"
        for tag in seen.tags & {"img", "iframe", "object", "embed", "base", "style", "frame", "applet", "video"}
    ]
    found += [f"script {source}" for source in seen.scripts if not source or not source.startswith("/assets/")]
    found += [f"attribute {name}" for name in seen.handlers]
    found += [f"link {link}" for link in seen.links if not link.startswith(("/", "#", "?"))]
    found += [f"link {link}" for link in seen.links if link.startswith("//")]
    return found + (["style attribute"] if seen.styles else [])


@dataclass
class World:
    """ids: a message for each payload. groups, replay: where they ended up."""

    ids: list[MessageId]
    groups: list[str]
    replay: UUID


async def fill(store: PostgresStore, dsn: str) -> World:
    """One dead letter for each payload, with the payload in every text of it; the same in groups, acts, replays …"""
    ids: list[MessageId] = []
    for text in PAYLOADS:
        body = json.dumps({text: text, "nested": {text: [text, None]}}).encode()
        given: dict[str, Any] = {"kind": text, "key": text, "order_by": text, "headers": {"x-hostile": text}}
        ids += await dead(store, destination=text, body=body, text=text, **given)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")  # past what would refuse or clean it
        rows = conn.execute("SELECT id, destination FROM redrive.parked ORDER BY id").fetchall()
        for id_, text in rows:
            conn.execute(
                "UPDATE redrive.parked SET error_class = %(t)s, last_text = %(t)s, last_stack = %(t)s, owner = %(t)s,"
                " note = %(t)s, ticket = %(t)s, evidence = %(t)s, stage = %(t)s WHERE id = %(id)s",
                {"t": text, "id": id_},
            )
            conn.execute(
                "UPDATE redrive.attempt SET code = %(t)s, text = %(t)s, reference = %(t)s, actor = %(t)s,"
                " reason = %(t)s, stage = %(t)s WHERE message_id = %(id)s",
                {"t": text, "id": id_},
            )
            conn.execute(
                "INSERT INTO redrive.late_answer (message_id, attempt, worker, at, settlement, answer, code, reference)"
                " VALUES (%(id)s, 1, gen_random_uuid(), now(), 'close', %(t)s, %(t)s, %(t)s)",
                {"t": text, "id": id_},
            )
        replay = _others(conn, ids)
        groups = conn.execute("SELECT encode(fingerprint, 'hex') FROM redrive.failure_group").fetchall()
    return World(ids, [row[0] for row in groups], replay)


def _others(conn: psycopg.Connection[Any], ids: list[MessageId]) -> UUID:
    """What is not of one message."""
    replay = UUID(int=7)
    for number, text in enumerate(PAYLOADS):
        values = {
            "t": text,
            "n": number,
            "f": number.to_bytes(16, "big"),
            "id": ids[number],
            "r": UUID(int=100 + number),
        }
        for statement in _ROWS:
            conn.execute(statement.encode(), values)
    conn.execute(_REPLAY.encode(), {"id": replay, "t": PAYLOADS[2], "f": json.dumps({"group": PAYLOADS[0]})})
    for number, id_ in enumerate(ids):
        conn.execute(
            "INSERT INTO redrive.replay_item (replay_id, position, message_id, error_class, row_version, outcome,"
            " detail, verified_by) VALUES (%s, %s, %s, %s, 1, 'dead', %s, %s)",
            [replay, number + 1, id_, PAYLOADS[number], PAYLOADS[number], PAYLOADS[number] if number % 2 else None],
        )
    conn.execute("DELETE FROM redrive.failure_tally")
    return replay


_ROWS: Final = (
    """INSERT INTO redrive.failure_group (fingerprint, destination, kind, error_class, sample_text, seen, first_seen_at,
                                          last_seen_at, owner, note)
       VALUES (%(f)s, %(t)s, %(t)s, %(t)s, %(t)s, 1, now(), now(), %(t)s, %(t)s)""",
    "UPDATE redrive.parked SET failure_group = %(f)s WHERE id = %(id)s",
    """INSERT INTO redrive.operator_action (id, at, actor, act, subject, reason, before, after, previous_hash, hash)
       VALUES (%(n)s + 1000, now(), %(t)s, %(t)s, %(t)s, %(t)s, to_json(%(t)s::text),
               json_build_object(%(t)s::text, %(t)s::text), '', '')""",
    """INSERT INTO redrive.destination (name, paused_at, paused_by, pause_reason, breaker_code, breaker, breaker_until,
                                        breaker_probe)
       VALUES (%(t)s, now(), %(t)s, %(t)s, %(t)s, 'open', now() + interval '1 hour', %(id)s)
       ON CONFLICT (name) DO UPDATE SET paused_at = now(), paused_by = %(t)s, pause_reason = %(t)s,
                                        breaker_code = %(t)s""",
    """INSERT INTO redrive.relay (worker, name, host, pid, version, destinations, policies, suspects_only, started_at,
                                  seen_at, listener)
       VALUES (%(r)s, %(t)s, %(t)s, 1, %(t)s, ARRAY[%(t)s], '{}', false, now(), now(), %(t)s)""",
    """SELECT redrive.heartbeat_worker_1(%(r)s, %(t)s, %(t)s, 1, %(t)s, json_build_array(json_build_object(
           'name', %(t)s::text, 'is_connected', false, 'in_hand', 1, 'oldest_seconds', 1, 'received', 1, 'processed', 0,
           'deferred', 0, 'seen', 0, 'given_back', 0)))""",
    "INSERT INTO redrive.consumer (name, seen_at) VALUES (%(t)s || '?', now() - interval '1 hour')",
    "INSERT INTO redrive.duty (name, every_seconds, finished_at, result) VALUES (%(t)s, 60, now(), %(t)s)",
)
_REPLAY: Final = """
INSERT INTO redrive.replay (id, name, filter, status, stop_reason, out_of_order, override, rate_per_second, canary,
                            failure_ratio_max, created_at, created_by, reason, approved_by, resumed_at)
VALUES (%(id)s, %(t)s, %(f)s, 'stopped', %(t)s, false, false, 50, 5, 0.1, now(), %(t)s, %(t)s, %(t)s, now())
"""
