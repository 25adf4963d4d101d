"""A message as an HTTP request: what every reply means, and what it means that there was none."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web

from redrive.answers import Absent, Answer, CannotTell, Delivered, Found, Retryable, Terminal, Unknown
from redrive.errors import InvalidValue
from redrive.ports import NotBegun
from redrive.transports.http import CloudEvents, HttpTransport
from redrive.transports.http.client import RECEIVED_BYTES_MAX, REPLY_BYTES_MAX
from tests.support import messages as m
from tests.transports.servers import HERE, Destination, hang_up, never, serving, status


@pytest.fixture
async def destination() -> AsyncIterator[Destination]:
    async with serving() as destination:
        yield destination


async def sent(url: str, **options: Any) -> Answer:
    transport = HttpTransport(url, egress=HERE, **options)
    try:
        return await transport.send(m.attempt())
    finally:
        await transport.aclose()


async def test_the_body_goes_out_as_it_was_enqueued_with_the_token_of_the_message(destination: Destination) -> None:
    attempt = m.attempt(
        headers={"X-Trace": "t1", "Host": "elsewhere", "content-length": "9"}, content_type="text/plain"
    )
    transport = HttpTransport(f"{destination.url}/in", egress=HERE, headers={"Authorization": "Bearer x"}, method="PUT")
    assert await transport.send(attempt) == Delivered()
    await transport.aclose()
    (asked,) = destination.asked
    assert (asked.method, asked.path, asked.body) == ("PUT", "/in", b'{"order":1}')
    assert asked.headers["Idempotency-Key"] == f'"{attempt.token}"'
    assert asked.headers["Content-Type"] == "text/plain"
    assert asked.headers["Authorization"] == "Bearer x"
    assert asked.headers["X-Trace"] == "t1"
    assert asked.headers["Host"] == destination.url.removeprefix("http://")
    assert asked.headers["Content-Length"] == "11"


async def test_a_cloud_event_goes_out_in_headers_or_in_the_body(destination: Destination) -> None:
    await sent(destination.url, cloudevents=CloudEvents("/shop"))
    await sent(destination.url, cloudevents=CloudEvents("/shop", mode="structured"))
    binary, structured = destination.asked
    assert (binary.headers["ce-source"], binary.headers["Content-Type"]) == ("/shop", "application/json")
    assert binary.body == b'{"order":1}'
    assert "ce-source" not in structured.headers
    assert structured.headers["Content-Type"] == "application/cloudevents+json"
    assert b'"source":"/shop"' in structured.body


@pytest.mark.req("G-10", "G-11")
@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (200, Delivered()),
        (201, Delivered()),
        (204, Delivered()),
        (299, Delivered()),
        (301, Terminal("HTTP_301")),
        (304, Terminal("HTTP_304")),
        (400, Terminal("HTTP_400")),
        (401, Terminal("HTTP_401")),
        (404, Terminal("HTTP_404")),
        (408, Unknown("HTTP_408")),
        (409, Terminal("HTTP_409")),
        (410, Terminal("GONE", "410: nothing is to be sent there any more.")),
        (422, Terminal("HTTP_422")),
        (425, Retryable("HTTP_425")),
        (429, Retryable("HTTP_429")),
        (500, Retryable("HTTP_500")),
        (502, Unknown("HTTP_502")),
        (503, Retryable("HTTP_503")),
        (504, Unknown("HTTP_504")),
    ],
)
async def test_every_status_has_its_meaning(destination: Destination, number: int, answer: Answer) -> None:
    destination.answer = status(number)
    assert await sent(destination.url) == answer


@pytest.mark.req("G-11")
async def test_retry_after_is_handed_on_as_it_was_said(destination: Destination) -> None:
    destination.answer = status(429, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT")
    assert await sent(destination.url) == Retryable("HTTP_429", retry_after="Wed, 21 Oct 2026 07:28:00 GMT")


async def test_the_reference_is_what_the_destination_calls_it(destination: Destination) -> None:
    destination.answer = status(201, X_Request_Id="r-7")
    assert await sent(destination.url, reference_header="x-request-id") == Delivered("r-7")


@pytest.mark.req("G-10")
@pytest.mark.parametrize(
    ("url", "changes"),
    [
        (lambda attempt: attempt.payload["nowhere"], {}),
        (lambda _: None, {}),
        (lambda _: "https://example.com/", {"headers": {"X-A": "a\r\nX-B: b"}}),
    ],
)
async def test_a_request_that_cannot_be_made_is_our_bug_and_never_a_doubt(url: Any, changes: dict[str, Any]) -> None:
    transport = HttpTransport(url)
    answer = await transport.send(m.attempt(**changes))
    await transport.aclose()
    assert isinstance(answer, Terminal)
    assert (answer.code, answer.bug) == ("UNCLASSIFIED", True)


# ---- phases


@pytest.mark.req("G-13")
async def test_a_refused_connection_is_retryable_and_nothing_went_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert await sent(f"http://127.0.0.1:{port}/") == Retryable("CONNECTION_REFUSED", destination_down=True)


@pytest.mark.req("G-13")
async def test_a_name_that_does_not_resolve_is_retryable() -> None:
    assert await sent("http://nowhere.invalid/") == Retryable("NAME_NOT_RESOLVED", destination_down=True)


@pytest.mark.req("G-13")
async def test_a_connection_that_is_not_accepted_in_time_is_retryable() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_connection(full.getsockname()):
        with socket.socket() as also:
            also.setblocking(False)
            also.connect_ex(full.getsockname())
            answer = await sent(f"http://127.0.0.1:{full.getsockname()[1]}/", connect_seconds=0.2)
    assert answer == Retryable("CONNECT_TIMEOUT", destination_down=True)


@pytest.mark.req("G-13")
async def test_a_failed_handshake_is_retryable(destination: Destination) -> None:
    from redrive.transports.http import Egress

    tls = Egress(allow=["127.0.0.0/8"])
    transport = HttpTransport(f"https://127.0.0.1:{destination.port}/", egress=tls)
    answer = await transport.send(m.attempt())
    await transport.aclose()
    assert answer == Retryable("TLS_REFUSED", destination_down=True)
    assert destination.asked == []


@pytest.mark.req("G-13")
async def test_a_lost_reply_is_unknown(destination: Destination) -> None:
    destination.answer = hang_up
    assert await sent(destination.url) == Unknown("CONNECTION_LOST")
    assert len(destination.asked) == 1, "a POST is never repeated by the client"


@pytest.mark.req("G-13")
async def test_a_reply_that_is_no_http_is_unknown() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        answer = await sent(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert isinstance(answer, Unknown)


@pytest.mark.req("G-13")
async def test_cut_off_while_it_waits_for_the_reply_it_may_have_happened(destination: Destination) -> None:
    destination.answer = never
    transport = HttpTransport(destination.url, egress=HERE)
    sending = asyncio.create_task(transport.send(m.attempt()))
    await destination.was_asked.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await transport.aclose()


@pytest.mark.req("G-13")
async def test_cut_off_before_it_had_a_connection_nothing_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def getaddrinfo(*_: Any, **__: Any) -> Any:
        asked.set()
        await asyncio.sleep(1000)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    transport = HttpTransport("http://slow.example/", egress=HERE)
    sending = asyncio.create_task(transport.send(m.attempt()))
    await asked.wait()
    sending.cancel()
    with pytest.raises(NotBegun):
        await sending
    await transport.aclose()


async def test_a_connection_is_used_again(destination: Destination) -> None:
    peers = set()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(text="ok")

    destination.answer = answer
    transport = HttpTransport(destination.url, egress=HERE)
    for _ in range(5):
        await transport.send(m.attempt())
    await transport.aclose()
    assert len(peers) == 1


async def test_a_closed_transport_opens_again(destination: Destination) -> None:
    transport = HttpTransport(destination.url, egress=HERE)
    for _ in range(2):
        assert await transport.send(m.attempt()) == Delivered()
        await transport.aclose()


# ---- replies that never end, or are larger than anybody wants


@pytest.mark.parametrize("number", [200, 500])
async def test_of_an_endless_reply_no_more_is_read_than_the_cap(destination: Destination, number: int) -> None:
    written = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse(status=number)
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)
            written += 65536

    destination.answer = answer
    assert isinstance(await sent(destination.url), Delivered if number == 200 else Retryable)
    assert written < 100 * REPLY_BYTES_MAX, "what the buffers of two sockets hold"


async def test_nothing_is_decompressed(destination: Destination) -> None:
    bomb = gzip.compress(bytes(50_000_000))

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    destination.answer = answer
    assert await sent(destination.url) == Delivered()


async def test_a_reply_that_breaks_off_after_its_status_has_been_received(destination: Destination) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"x")
        return await hang_up(request)

    destination.answer = answer
    assert await sent(destination.url) == Delivered()


# ---- lookup


@pytest.mark.req("G-13")
@pytest.mark.parametrize(
    ("number", "found"),
    [(200, Found()), (404, Absent()), (500, CannotTell("HTTP_500")), (403, CannotTell("HTTP_403"))],
)
async def test_a_lookup_asks_the_url_of_the_token(destination: Destination, number: int, found: Any) -> None:
    destination.answer = status(number)
    transport = HttpTransport(destination.url, egress=HERE, lookup_url=f"{destination.url}/by/{{token}}?k={{key}}")
    attempt = m.attempt(key="a/../b&c=d")
    assert transport.lookup is not None
    assert await transport.lookup(attempt) == found
    await transport.aclose()
    assert [(asked.method, asked.path) for asked in destination.asked] == [
        ("GET", f"/by/{attempt.token}?k=a%2F..%2Fb%26c%3Dd")
    ]


async def test_a_lookup_that_fails_cannot_tell(destination: Destination) -> None:
    destination.answer = hang_up
    transport = HttpTransport(destination.url, egress=HERE, lookup_url=f"{destination.url}/by/{{token}}")
    assert transport.lookup is not None
    assert isinstance(await transport.lookup(m.attempt()), CannotTell)
    await transport.aclose()


def test_without_a_url_to_ask_there_is_no_lookup() -> None:
    assert HttpTransport("https://example.com/").lookup is None


@pytest.mark.parametrize(
    "options",
    [
        {"method": "GET"},
        {"headers": {"Content-Type": "x"}},
        {"headers": {"X-A": "a\r\nX-B: b"}},
        {"lookup_url": "https://example.com/{what}"},
        {"lookup_url": "https://example.com/{"},
    ],
)
def test_what_cannot_work_is_refused_when_it_is_declared(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        HttpTransport("https://example.com/", **options)


# Before the answer that counts; a peer that is read to its end answers 200.
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
LONG_HINTS = (
    b"HTTP/1.1 103 Early Hints\r\n" + b"".join(b"Link%d: %s\r\n" % (n, b"x" * 1000) for n in range(100)) + b"\r\n"
)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"


async def answer_to(said: bytes) -> Answer:
    """What a send makes of a peer that says this, and then closes its half."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            writer.write(said)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        return await sent(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")


@pytest.mark.req("G-11", "G-31")
@pytest.mark.parametrize("said", [HINTS * 200, CONTINUE * 5000, CONTINUE.replace(b"1.1", b"1.0") * 200])
async def test_a_peer_that_never_comes_to_its_answer_is_cut_off(said: bytes) -> None:
    """Parsing thousands of replies costs the event loop of the whole relay, and so its neighbours."""
    assert isinstance(await answer_to(said + OK % (0, b"")), Unknown)


@pytest.mark.req("G-11", "G-31")
async def test_a_peer_that_says_too_much_before_its_answer_is_cut_off_by_its_bytes() -> None:
    assert len(LONG_HINTS) * 12 > RECEIVED_BYTES_MAX
    assert isinstance(await answer_to(LONG_HINTS * 12 + OK % (0, b"")), Unknown)


@pytest.mark.parametrize("said", [HINTS * 10 + OK % (0, b""), OK % (len(HINTS * 100), HINTS * 100)])
async def test_a_few_hints_and_content_that_looks_like_them_are_no_harm(said: bytes) -> None:
    assert isinstance(await answer_to(said), Delivered)


@pytest.mark.req("G-31")
@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "hooks.example:8443"),
        ({"limit_by": "host"}, "hooks.example:8443"),
        ({"limit_by": "tenant"}, "acme"),
        ({"limit_by": lambda _: "mine"}, "mine"),
    ],
)
def test_a_limit_key_is_the_host_or_what_was_chosen_and_never_a_secret(options: dict[str, Any], key: str) -> None:
    url = "https://ada:secret@Hooks.Example.:8443/secret?token=secret"
    transport = HttpTransport(lambda _: url, **options)
    assert transport.limit_key is not None
    assert transport.limit_key(m.attempt(tenant="acme")) == key


@pytest.mark.req("G-31")
def test_one_url_is_limited_as_a_whole_unless_something_else_is_said() -> None:
    assert HttpTransport("https://crm.example/").limit_key is None
    assert HttpTransport(lambda _: "https://crm.example/", limit_by=None).limit_key is None
    assert HttpTransport("https://crm.example/", limit_by="tenant").limit_key is not None
    with pytest.raises(InvalidValue, match="limit_by"):
        HttpTransport("https://crm.example/", limit_by="path")  # type: ignore[arg-type]
