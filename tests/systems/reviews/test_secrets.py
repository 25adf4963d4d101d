"""Thirty planted secrets, prompts and addresses: none is in a parked record, a log line, a metric, a trace, an answer
of the API, a page, or anything else that a viewer may read (R-04, G-15).
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from aiohttp import web
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redrive.events import Events
from redrive.kit.proof.smtp_server import Fault, SmtpServer
from redrive.kit.proof.smtp_server import serving as smtp_serving
from redrive.message import WorkerId
from redrive.operate import logs
from redrive.operate.observe import traces
from redrive.operate.observe.metrics import RelayMetrics, exposition
from redrive.operate.observe.reader import Reader
from redrive.operate.web.app import create_app
from redrive.operate.web.auth_config import AuthConfig
from redrive.operate.web.principal import Role
from redrive.store.runtime.postgres import PostgresStore
from redrive.systems import reviews
from redrive.systems.reviews import ChatCritic, HttpProvider, Recipient, SmtpProvider
from redrive.systems.reviews.changelist import Changelist
from redrive.systems.reviews.findings import Finding
from redrive.systems.reviews.metrics import METRICS
from redrive.systems.reviews.providers import Provider
from redrive.systems.reviews.simulators.script import Script
from tests.api.conftest import ORIGIN, House, asking, bearer
from tests.systems.reviews.conftest import QUICK, Repository, commit, desk, git, request, submit
from tests.transports.servers import HERE, serving

PLANTED = [f"planted-secret-{number:02}-x7Qz" for number in range(30)]
KEY, ADDRESSES, IN_DIFF, IN_REPLY, IN_ERROR, IN_LOCALS = (
    PLANTED[0],
    [f"{one}@example.org" for one in PLANTED[1:6]],
    PLANTED[6:16],
    PLANTED[16:21],
    PLANTED[21:26],
    PLANTED[26:30],
)

READER = WorkerId(uuid4())  # one at a time reads the numbers of a database


class Leaking:
    """A critic with a bug: everything that it knows is in the exception, its cause and its local variables."""

    name = "leaking"

    async def review(self, changelist: Changelist) -> list[Finding]:
        prompt, token = changelist.diff, ";".join(IN_LOCALS)
        try:
            raise KeyError(f"{token} {IN_ERROR[0]}")
        except KeyError as error:
            raise RuntimeError(f"{prompt} {' '.join(IN_ERROR)} password={IN_ERROR[1]}") from error

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.fixture
def planted(tmp_path: Path) -> Repository:
    path = tmp_path / "planted"
    path.mkdir()
    git(path, "init", "--quiet", "--initial-branch=main")
    base = commit(path, {"a.py": "a = 1\n"})
    text = "".join(f'password_{n} = "{one}"\n' for n, one in enumerate(IN_DIFF))
    return Repository(path, base, commit(path, {"a.py": f"a = 1\n{text}"}))


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that is logged, at every level."""
    said = io.StringIO()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    logs.configure("json", "debug", stream=said)
    yield said
    root.handlers[:] = handlers
    root.setLevel(level)


async def _say_too_much(_: web.Request) -> web.StreamResponse:
    return web.json_response({"error": {"code": "invalid_api_key", "message": " ".join(IN_REPLY)}}, status=401)


async def _refuse_and_repeat(asked: web.Request) -> web.StreamResponse:
    """A provider that puts all it was told into its refusal, and knows of no notification when it is asked."""
    if asked.method == "GET":
        return web.json_response({"code": "not_found", "message": " ".join(IN_REPLY)}, status=404)
    said = f"{await asked.text()} {asked.headers['Authorization']} {' '.join(IN_REPLY)}"
    headers = {"X-Request": IN_REPLY[0]}
    return web.json_response({"code": "invalid_recipient", "message": said}, status=422, headers=headers)


@dataclass
class Case:
    """A way in which secrets could leak. seen: the provider or model was told what it could repeat."""

    critic: Any = None
    providers: Sequence[Provider] = ()
    stage: str = "llm"
    error_class: str = "UNCLASSIFIED"
    seen: Callable[[], bool] = lambda: True


@asynccontextmanager
async def leaking(how: str) -> AsyncIterator[Case]:
    async with AsyncExitStack() as stack:
        match how:
            case "a bug":
                yield Case(Leaking())
            case "a refused key":
                model = await stack.enter_async_context(serving(_say_too_much))
                critic = ChatCritic(url=model.url, model="m", api_key=KEY, egress=HERE)
                yield Case(critic, error_class="AUTH_DENIED", seen=lambda: _heard(model.asked[0], IN_DIFF))
            case "a refused recipient":
                server = await stack.enter_async_context(serving(_refuse_and_repeat))
                leaky = HttpProvider(
                    name="leaky", url=server.url, headers={"Authorization": KEY}, egress=HERE, policy=QUICK
                )
                told = lambda: _heard(server.asked[0], [])  # noqa: E731
                yield Case(None, [leaky], "notify", "RECIPIENT_INVALID", told)
            case _:
                mail = SmtpServer(logins={"reviews": KEY})
                refusal = f"550 5.1.1 <{'> <'.join(ADDRESSES)}> is unknown {KEY} {' '.join(IN_REPLY)}"
                mail.faults["RCPT"] = Fault(refusal)
                await stack.enter_async_context(smtp_serving(mail))
                account: dict[str, Any] = {"sender": "reviews@example.org", "username": "reviews", "password": KEY}
                leaky_mail = SmtpProvider(
                    name="leaky", host="127.0.0.1", port=mail.port, tls="none", policy=QUICK, **account
                )
                told = lambda: any(ADDRESSES[0] in one for one in mail.commands)  # noqa: E731
                yield Case(None, [leaky_mail], "notify", "SMTP_RECIPIENT_REFUSED", told)


def _heard(asked: Any, texts: Sequence[str]) -> bool:
    """The secrets were where they could leak from."""
    return KEY in asked.headers["Authorization"] and all(one in asked.body.decode() for one in texts)


async def _pages(dsn: str, changelist: str, message: object) -> str:
    """What a viewer gets to see, from the API and from the console."""
    house = House(dsn)
    app = create_app(dsn, AuthConfig(origin=ORIGIN), systems={"reviews": reviews.system})
    headers = {**bearer(await house.token(Role.VIEWER, "*"))}
    said = []
    async with asking(app, headers=headers) as client:
        for path, accept in (
            (f"/api/v1/reviews/jobs/{changelist}", "application/json"),
            ("/api/v1/reviews/jobs", "application/json"),
            (f"/api/v1/messages/{message}", "application/json"),
            ("/api/v1/messages", "application/json"),
            ("/api/v1/groups", "application/json"),
            (f"/systems/reviews/reviews?search={changelist}", "text/html"),
            (f"/systems/reviews/parts?search={changelist}", "text/html"),
            (f"/messages/{message}", "text/html"),
            ("/messages", "text/html"),
            ("/parked/dead", "text/html"),
        ):
            reply = await client.get(path, headers={"Accept": accept})
            assert reply.status_code == 200, (path, reply.text)
            said.append(reply.text)
    assert all(changelist in text for text in (said[0], said[1], said[5], said[6]))
    return "\n".join(said)


_MINE = """
SELECT j.message_id FROM redrive_reviews.job j WHERE j.changelist_id = %(of)s
 UNION SELECT d.message_id FROM redrive_reviews.delivery d WHERE d.changelist_id = %(of)s
"""
_LETTERS = f"SELECT to_json(k)::text FROM redrive_reviews.dead_letters k WHERE k.message_id IN ({_MINE})"
_RECORDS = f"""
SELECT to_json(k)::text FROM redrive.parked k WHERE k.id IN ({_MINE})
UNION ALL SELECT concat_ws(' ', a.code, a.text, a.reference) FROM redrive.attempt a WHERE a.message_id IN ({_MINE})
"""
_READABLE = """
SELECT format('%I.%I', c.relnamespace::regnamespace, c.relname), string_agg(quote_ident(a.attname), ', ')
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace IN ('redrive'::regnamespace, 'redrive_reviews'::regnamespace) AND c.relkind IN ('r', 'p', 'v')
   AND a.attnum > 0 AND NOT a.attisdropped AND has_column_privilege('redrive_viewer', c.oid, a.attnum, 'SELECT')
 GROUP BY 1
"""


def _readable(dsn: str, role: str) -> dict[str, str]:
    """Every column that a viewer may select, read as `role`."""
    found = {}
    with psycopg.connect(dsn) as conn:
        tables = conn.execute(_READABLE).fetchall()
        conn.execute("SELECT set_config('redrive.tenant', '*', false), set_config('role', %s, false)", [role])
        for table, columns in tables:
            read = conn.execute(f"SELECT to_jsonb(t)::text FROM (SELECT {columns} FROM {table}) t".encode())
            found[table] = "\n".join(one for (one,) in read.fetchall())
    return found


async def _metrics(dsn: str, moved: RelayMetrics) -> str:
    """What moved, and what is read from the database."""
    async with PostgresStore(dsn, connections=1) as store:
        reader = Reader(store, READER, events=Events(), more=[*METRICS.values()])
        assert await reader.read_once()
    shown = RelayMetrics(reader.reading, more=[*METRICS.values()])
    text = exposition(shown.registry)[0].decode() + exposition(moved.registry)[0].decode()
    assert "reviews_dead_letters{category=" in text
    return text


def _texts(dsn: str, query: str, changelist: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        return [str(one) for (one,) in conn.execute(query.encode(), {"of": changelist}).fetchall()]


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What the user's SDK would export."""
    provider, kept = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield kept
    provider.shutdown()


@pytest.mark.req("R-04", "G-15")
@pytest.mark.seed(
    "001",
    "`sanitized_context` MUST exclude secrets, access tokens, API keys, full prompts containing sensitive "
    "data, and raw PII.",
)
@pytest.mark.seed("001", "Stack traces MUST be redacted if they contain sensitive literals.")
@pytest.mark.seed("001", "Include `first_failure_at`, `last_failure_at`, and `stage` to support replay triage.")
@pytest.mark.parametrize("how", ["a bug", "a refused key", "a refused recipient", "a refused mailbox"])
@pytest.mark.seed("001", "When processing is dead-lettered, payload MUST include at minimum")
async def test_no_planted_secret_is_in_what_a_dead_letter_leaves(
    reviewing: str,
    planted: Repository,
    tmp_path: Path,
    changelist: str,
    logged: io.StringIO,
    exporter: InMemorySpanExporter,
    how: str,
) -> None:
    moved = RelayMetrics(more=[*METRICS.values()])
    letters_expected = len(ADDRESSES) if how in ("a refused recipient", "a refused mailbox") else 1
    async with leaking(how) as case:
        to = "leaky" if case.providers else "hooks"
        wanted = request(changelist, planted, recipients=[Recipient(one, to) for one in ADDRESSES])
        async with desk(reviewing, planted, tmp_path, Script(), critic=case.critic, more=case.providers) as opened:
            logs.subscribe(opened.events)
            traces.subscribe(opened.events)
            moved.subscribe(opened.events)
            with trace.get_tracer("shop").start_as_current_span("push"):
                submit(reviewing, wanted)
            await opened.until(lambda: len(_texts(reviewing, _LETTERS, changelist)) == letters_expected)
        assert case.seen(), "the secrets were not where they could leak from"
    letters = [json.loads(one) for one in _texts(reviewing, _LETTERS, changelist)]
    for letter in letters:
        assert (letter["stage"], letter["error_class"]) == (case.stage, case.error_class)
        assert letter["first_failure_at"] <= letter["last_failure_at"]
        assert {"message_id", "stage", "attempt", "body_sha256"} <= letter["sanitized_context"].keys()
        if how == "a bug":
            assert "RuntimeError" in letter["last_stack"]
            assert "KeyError" in letter["last_stack"]
    spans = [one.to_json() for one in exporter.get_finished_spans()]
    assert any(f'"send reviews.{case.stage}' in one for one in spans)
    everything = {
        "records": "\n".join(_texts(reviewing, _RECORDS, changelist)),
        "letters": json.dumps(letters),
        "logs": logged.getvalue(),
        "metrics": await _metrics(reviewing, moved),
        "traces": "\n".join(spans),
        "pages": await _pages(reviewing, changelist, letters[0]["message_id"]),
        **_readable(reviewing, "redrive_viewer"),
    }
    assert changelist in everything["redrive_reviews.deliveries"]
    assert "message.parked" in everything["logs"]
    leaks = {name: [one for one in PLANTED if one in text] for name, text in everything.items()}
    assert {name: found for name, found in leaks.items() if found} == {}
