"""The checks that every author of a transport can run, run on ours; and that each of them can fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from email import message_from_bytes
from typing import Any
from unittest import SkipTest

import pytest
from aiohttp import web

import redrive
from redrive.kit.proof.smtp_server import Act, Fault, SmtpServer, serving
from redrive.testing import TRANSPORT_CHECKS, Condition, TransportSubject, make_attempt
from redrive.testing.transports import Check
from redrive.transports.functions import FunctionTransport
from redrive.transports.http import HttpTransport
from redrive.transports.smtp import SmtpTransport
from tests.transports import servers

Handler = Callable[[redrive.Attempt], Awaitable[Any]]


class HttpSubject:
    """A real server, and one more port at which nobody listens."""

    def __init__(self, destination: servers.Destination, free_port: int) -> None:
        self._destination = destination
        self._away = f"http://127.0.0.1:{free_port}"
        self._url = destination.url
        self._done: list[str] = []
        self.reached = destination.was_asked
        egress = replace(servers.HERE, ports=frozenset({destination.port, free_port}))
        self.transport = HttpTransport(lambda _: self._url, egress=egress, lookup_url=f"{destination.url}/{{token}}")

    def effects(self) -> list[str]:
        return self._done

    async def become(self, condition: Condition) -> None:
        self._url = self._away if condition is Condition.AWAY else self._destination.url
        self._destination.answer = {
            Condition.AWAY: servers.hang_up,
            Condition.BUSY: servers.status(503),
            Condition.REFUSING: servers.status(422),
            Condition.SILENT: servers.never,
            Condition.LOSING_REPLIES: self._lose_reply,
        }.get(condition, self._answer)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.Response(status=200 if request.path.rpartition("/")[2] in self._done else 404)
        self._done.append(request.headers["Idempotency-Key"].strip('"'))
        return web.Response(status=201)

    async def _lose_reply(self, request: web.Request) -> web.StreamResponse:
        await self._answer(request)
        return await servers.hang_up(request)


class SmtpSubject:
    """A real mail server; the token is what it finds in `Message-ID`."""

    payload: Any = {"to": "ada@example.com", "subject": "Welcome", "text": "Hello"}  # noqa: RUF012 - never changed

    def __init__(self, server: SmtpServer) -> None:
        self._server = server
        self.reached = server.reached
        self.transport = SmtpTransport("127.0.0.1", port=server.port, tls="none", sender="shop@example.com")

    def effects(self) -> list[str]:
        ids = [str(message_from_bytes(mail.body)["Message-ID"]) for mail in self._server.mails]
        return [found.strip("<>").partition("@")[0] for found in ids]

    async def become(self, condition: Condition) -> None:
        faults = {
            Condition.AWAY: {"GREETING": Fault(Act.HANG_UP)},
            Condition.BUSY: {"RCPT": Fault("451 4.7.1 greylisted")},
            Condition.REFUSING: {"RCPT": Fault("550 5.1.1 unknown")},
            Condition.LOSING_REPLIES: {"END": Fault(Act.LOSE_REPLY)},
            Condition.SILENT: {"END": Fault(Act.SILENT)},
        }
        self._server.faults = faults.get(condition, {})


class FunctionSubject:
    """A handler, and a destination that is a list."""

    def __init__(self, handler: Callable[[FunctionSubject], Handler] | None = None) -> None:
        self.done: list[str] = []
        self.reached = asyncio.Event()
        self.condition = Condition.WELL
        self.transport: Any = FunctionTransport(
            handler(self) if handler else self._send, lookup=self._look_up, threads=1
        )

    def effects(self) -> list[str]:
        return self.done

    async def become(self, condition: Condition) -> None:
        self.condition = condition

    async def _send(self, attempt: redrive.Attempt) -> None:
        self.reached.set()
        match self.condition:
            case Condition.AWAY:
                raise ConnectionRefusedError
            case Condition.BUSY:
                raise redrive.Retryable("BUSY")
            case Condition.REFUSING:
                raise redrive.Terminal("REFUSED")
            case Condition.SILENT:
                await asyncio.Event().wait()
        self.done.append(attempt.token)
        if self.condition is Condition.LOSING_REPLIES:
            raise ConnectionResetError

    async def _look_up(self, attempt: redrive.Attempt) -> redrive.Found | redrive.Absent:
        if self.condition is Condition.AWAY:
            raise ConnectionRefusedError
        return redrive.Found() if attempt.token in self.done else redrive.Absent()


@asynccontextmanager
async def http() -> AsyncIterator[TransportSubject]:
    async with servers.listening() as (free_port, _):
        pass
    async with servers.serving() as destination:
        subject = HttpSubject(destination, free_port)
        yield subject
        await subject.transport.aclose()


@asynccontextmanager
async def function() -> AsyncIterator[TransportSubject]:
    yield FunctionSubject()


@asynccontextmanager
async def smtp() -> AsyncIterator[TransportSubject]:
    async with serving(SmtpServer()) as server:
        yield SmtpSubject(server)


# What they have not: no check of it is left out unseen.
ABSENT = {"http": {"validate"}, "function": {"validate", "aclose"}, "smtp": {"lookup"}}


@pytest.mark.parametrize("subject", [http, function, smtp], ids=lambda subject: subject.__name__)
@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.req("G-13")
async def test_the_transport_keeps_its_promises(check: Check, subject: Any) -> None:
    async with subject() as made:
        try:
            await check(made)
            lacks = set[str]()
        except SkipTest as left_out:
            lacks = {str(left_out).split("`")[1]}
    assert lacks <= ABSENT[subject.__name__]


def retries_everything(subject: FunctionSubject) -> Handler:
    async def send(attempt: redrive.Attempt) -> None:
        try:
            await subject._send(attempt)
        except (ConnectionError, redrive.Terminal) as error:
            raise redrive.Retryable("FAILED") from error

    return send


def knows_no_failure(subject: FunctionSubject) -> Handler:
    async def send(attempt: redrive.Attempt) -> None:
        try:
            await subject._send(attempt)
        except (ConnectionError, redrive.Retryable):
            subject.done.append(attempt.token)

    return send


def makes_tokens_of_its_own(subject: FunctionSubject) -> Handler:
    async def send(attempt: redrive.Attempt) -> None:
        subject.reached.set()
        subject.done.append(f"{attempt.token}-{attempt.number}")

    return send


def swallows_its_end(subject: FunctionSubject) -> Handler:
    async def send(attempt: redrive.Attempt) -> None:
        try:
            await subject._send(attempt)
        except asyncio.CancelledError:
            return

    return send


@pytest.mark.parametrize(
    ("wrong", "caught"),
    [
        (retries_everything, {"refusing_is_terminal", "a_lost_reply_is_unknown"}),
        (knows_no_failure, {"away_is_retryable", "busy_is_retryable", "a_lost_reply_is_unknown"}),
        (makes_tokens_of_its_own, {"delivers_once_with_the_token", "sends_the_same_token_with_every_attempt"}),
        (swallows_its_end, {"can_be_cut_off_and_used_again"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_transport_that_does_otherwise_is_caught(wrong: Any, caught: set[str]) -> None:
    failed = set()
    for check in TRANSPORT_CHECKS:
        try:
            await check(FunctionSubject(wrong))
        except AssertionError:
            failed.add(check.__name__)
        except (SkipTest, TimeoutError):
            pass
    assert caught <= failed


async def test_what_a_subject_cannot_arrange_is_skipped() -> None:
    class Poor(FunctionSubject):
        async def become(self, condition: Condition) -> None:
            if condition is not Condition.WELL:
                raise NotImplementedError

    skipped = 0
    for check in TRANSPORT_CHECKS:
        try:
            await check(Poor())
        except SkipTest:
            skipped += 1
    assert 0 < skipped < len(TRANSPORT_CHECKS)


def test_an_attempt_made_by_hand_is_what_a_handler_gets() -> None:
    attempt = make_attempt({"to": "ada"}, number=3, key="one")
    assert (attempt.payload, attempt.number, attempt.key, attempt.token) == ({"to": "ada"}, 3, "one", str(attempt.id))
