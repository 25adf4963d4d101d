"""A small HTTP server for machines: /metrics, /livez, /readyz, /health. No authentication, no log of requests.

It runs on the relay's own event loop, so that a probe finds a loop that is stuck.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.parser import HeaderParser
from http import HTTPStatus
from typing import Final, NamedTuple

from redrive.errors import SettingsError
from redrive.operate.observe.health import Check, Health, Verdict
from redrive.settings import Address

REQUEST_BYTES_MAX: Final = 8192
REQUEST_SECONDS: Final = 5.0
_TEXT: Final = "text/plain; charset=utf-8"

Expose = Callable[[str], tuple[bytes, str]]


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = _TEXT


async def serve(address: Address, *, expose: Expose, health: Health) -> asyncio.Server:
    """A started server that the caller closes. SettingsError if the address is taken or not ours."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_encoded(answer_to(request, expose=expose, health=health)))
                await writer.drain()
        writer.close()

    try:
        return await asyncio.start_server(answer, address.host, address.port, limit=REQUEST_BYTES_MAX)
    except OSError as error:
        raise SettingsError(
            f"Nothing can listen on {address.host}:{address.port}: {error.strerror or type(error).__name__}.",
            next="give metrics_listen another port",
        ) from error


def answer_to(request: bytes, *, expose: Expose, health: Health) -> Answer:
    """`?verbose` lists every check."""
    head, _, headers = request.decode("latin-1").partition("\r\n")
    method, _, rest = head.partition(" ")
    path, _, query = rest.rpartition(" ")[0].partition("?")
    if method not in ("GET", "HEAD"):
        return Answer(405, b"GET only\n")
    match path:
        case "/metrics":
            return Answer(200, *expose(HeaderParser().parsestr(headers).get("accept", "")))
        case "/livez" | "/healthz":
            return _probe(health.is_live(), [c for c in health.checks() if c.name == "loop"], query)
        case "/readyz":
            return _probe(health.is_ready(), health.checks(), query)
        case "/health":
            return _report(health)
        case _:
            return Answer(404, b"/metrics /livez /readyz /health\n")


def _probe(is_well: bool, checks: list[Check], query: str) -> Answer:
    failed = [check for check in checks if check.verdict is Verdict.UNHEALTHY]
    listed = checks if "verbose" in query else failed
    lines = [_line(check) for check in listed] or ["ok"]
    return Answer(200 if is_well else 503, ("\n".join(lines) + "\n").encode())


def _line(check: Check) -> str:
    if check.verdict is Verdict.UNHEALTHY:
        return f"[-]{check.name} failed: {check.reason}"
    return f"[+]{check.name} ok" + (f" ({check.reason})" if check.reason else "")


def _report(health: Health) -> Answer:
    checks = health.checks()
    status = health.verdict()
    said: Mapping[str, object] = {
        "status": status,
        "reasons": [check.reason for check in checks if check.reason],
        "checks": {check.name: check.verdict for check in checks},
    }
    code = 503 if status is Verdict.UNHEALTHY else 200
    return Answer(code, json.dumps(said).encode() + b"\n", "application/json")


def _encoded(answer: Answer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + answer.body
