"""Messages as HTTP requests: to one URL, or to the URL that a message names.

    app.transport("crm", HttpTransport("https://crm.example/hooks", signer=Signer([secret])))

What went wrong before the first byte is Retryable, what went wrong after it is Unknown: a reply that was lost is no
failure (G-13). Every request carries the token of its message in `Idempotency-Key`. `egress` says where it may go,
`client` sends it, `signing` signs it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args
from urllib.parse import quote, urlsplit

import aiohttp

from redrive import redact
from redrive.answers import (
    UNCLASSIFIED,
    Absent,
    Answer,
    CannotTell,
    Delivered,
    Found,
    LookupAnswer,
    Retryable,
    Terminal,
    Unknown,
)
from redrive.errors import InvalidValue
from redrive.message import Attempt
from redrive.policy import address_of
from redrive.ports import NotBegun
from redrive.transports.cloudevents import CloudEvents
from redrive.transports.http.client import Client, Reply, Request
from redrive.transports.http.egress import PORTS, Egress, EgressRefused
from redrive.transports.http.signing import Signer, public_key
from redrive.transports.network_errors import classify, from_status

__all__ = ["CloudEvents", "Egress", "EgressRefused", "HttpTransport", "Signer", "public_key"]

LimitBy = Literal["default", "host", "tenant"]
METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
CONNECT_SECONDS: Final = 5.0
CONNECTIONS: Final = 100
GONE: Final = 410
_OWN_HEADERS: Final = ("idempotency-key", "content-length", "content-type", "host", "transfer-encoding", "connection")


class HttpTransport:
    """Sends a message's body to a URL.

    url: fixed, or a function of the attempt, checked for every message, because a customer may have chosen it.
    headers: sent with every request, after those of the message. lookup_url: where a message can be asked for, with
    `{token}`, `{id}`, `{key}` or `{tenant}` in it; 2xx means that it is there, 404 that it is not.
    reference_header: of the reply, kept as the destination's own name for the effect.
    limit_by: what breaker, rests, rate and the bug breaker apply to: "host" (with its port), "tenant", a function of
    the attempt, or None for the whole destination; left out, it is the host where `url` is a function.

    A destination with a protocol of its own is a subclass that says what is sent (`content`), what a reply means
    (`answer`), and what a reply to a lookup means (`found`).
    """

    def __init__(
        self,
        url: str | Callable[[Attempt], str],
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        signer: Signer | None = None,
        cloudevents: CloudEvents | None = None,
        lookup_url: str | None = None,
        reference_header: str | None = None,
        egress: Egress | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        connections: int = CONNECTIONS,
        limit_by: LimitBy | Callable[[Attempt], str | None] | None = "default",
    ) -> None:
        if not callable(limit_by) and limit_by not in (*get_args(LimitBy), None):
            raise InvalidValue(f'limit_by is {limit_by!r}; it must be "host", "tenant", a function, or None.')
        if method not in METHODS:
            raise InvalidValue(f"method is {method!r}; it must be one of {', '.join(sorted(METHODS))}.")
        self._egress = egress or Egress()
        self._url, self._method, self._headers = url, method, _checked_headers(headers or {})
        self._signer, self._cloudevents = signer, cloudevents
        self._lookup_url, self._reference_header = lookup_url, reference_header
        self._ports = self._own_ports()
        for fixed in (url, lookup_url and _filled(lookup_url, dict.fromkeys(_FIELDS, "x"))):
            if isinstance(fixed, str):
                self._check_own(fixed)
        self._client = Client(self._egress, connections=connections, connect_seconds=connect_seconds)
        # Where messages go, as `Rules.address`; None where each message names its own URL.
        self.address = address_of(url, lookup_url) if isinstance(url, str) else None
        self.lookup = self._look_up if lookup_url is not None else None
        self.limit_key = self._limit_key(limit_by)

    async def send(self, attempt: Attempt) -> Answer:
        try:
            request = self._request(attempt)
        except EgressRefused as refused:
            return Terminal("EGRESS_REFUSED", str(refused))
        except Exception as error:  # of the function that gives the URL, say: nothing has gone out
            return Terminal(UNCLASSIFIED, redact.error_type(error), bug=True)
        try:
            reply = await self._client.ask(request)
        except EgressRefused as refused:
            return _refused(refused)
        except asyncio.CancelledError:
            if request.has_begun:
                raise
            raise NotBegun from None
        except (aiohttp.ClientError, OSError) as error:
            return _failed(error, has_begun=request.has_begun)
        return self.answer(reply)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _look_up(self, attempt: Attempt) -> LookupAnswer:
        assert self._lookup_url is not None
        url = _filled(self._lookup_url, _fields(attempt))
        try:
            self._egress.check_url(url, ports=self._ports)
            reply = await self._client.ask(Request("GET", url, headers=self._headers))
        except EgressRefused as refused:
            return CannotTell("EGRESS_REFUSED", str(refused))
        except (aiohttp.ClientError, OSError) as error:
            found = _failed(error, has_begun=False)
            return CannotTell(getattr(found, "code", "LOOKUP_FAILED"))
        return self.found(reply, attempt)

    def _limit_key(
        self, by: LimitBy | Callable[[Attempt], str | None] | None
    ) -> Callable[[Attempt], str | None] | None:
        if callable(by):
            return by
        if by == "tenant":
            return lambda attempt: attempt.tenant
        by_host = by == "host" or (by == "default" and not isinstance(self._url, str))
        return (lambda attempt: _host_of(self._url_of(attempt))) if by_host else None

    def _url_of(self, attempt: Attempt) -> str:
        return self._url if isinstance(self._url, str) else self._url(attempt)

    def _request(self, attempt: Attempt) -> Request:
        fixed = isinstance(self._url, str)
        url = self._url_of(attempt)
        self._egress.check_url(url, ports=self._ports if fixed else ())
        own, body = self.content(attempt)
        headers = {
            **_checked_headers(_sendable(attempt.headers)),
            **self._headers,
            **own,
            "Idempotency-Key": f'"{attempt.token}"',
        }
        if self._signer is not None:
            headers |= self._signer.headers(id=str(attempt.id), timestamp=int(time.time()), body=body)
        return Request(self._method, url, headers=headers, body=body)

    def content(self, attempt: Attempt) -> tuple[Mapping[str, str], bytes]:
        """The body, and the headers that go with it; the same for every attempt of a version."""
        if self._cloudevents is not None:
            event = self._cloudevents.wrap(attempt)
            return {**event.attributes, "Content-Type": event.content_type}, event.body
        return {"Content-Type": attempt.content_type}, attempt.body

    def answer(self, reply: Reply) -> Answer:
        """What a reply to a send means."""
        if 200 <= reply.status < 300:
            return Delivered(self._reference(reply))
        if reply.status == GONE:
            return Terminal("GONE", "410: nothing is to be sent there any more.")
        return from_status(reply.status, reply.headers)

    def found(self, reply: Reply, attempt: Attempt) -> LookupAnswer:  # noqa: ARG002 - for a subclass
        """What a reply to a lookup means."""
        if 200 <= reply.status < 300:
            return Found(self._reference(reply))
        return Absent() if reply.status == 404 else CannotTell(f"HTTP_{reply.status}")

    def _reference(self, reply: Reply) -> str | None:
        return reply.headers.get(self._reference_header) if self._reference_header else None

    def _own_ports(self) -> frozenset[int]:
        """Of the URLs that the program names itself; others must keep to the list."""
        fixed = [url for url in (self._url, self._lookup_url) if isinstance(url, str)]
        try:
            return frozenset(urlsplit(url).port or PORTS.get(urlsplit(url).scheme, 0) for url in fixed)
        except ValueError:
            return frozenset()

    def _check_own(self, url: str) -> None:
        try:
            self._egress.check_url(url, ports=self._ports)
        except EgressRefused as refused:
            raise InvalidValue(
                f"The URL of an HTTP destination is refused: {refused} Where you mean it, say so:"
                " egress=Egress(allow=[network], schemes={scheme}, ports={port})."
            ) from refused


def _host_of(url: str) -> str | None:
    """Host and port, without the path or what a URL may carry before the host. None of one that has no host."""
    parts = urlsplit(url)
    host = parts.hostname
    return None if not host else f"{host.rstrip('.')}:{parts.port or PORTS.get(parts.scheme, 0)}"


_FIELDS: Final = ("token", "id", "key", "tenant")


def _fields(attempt: Attempt) -> dict[str, str]:
    return {"token": attempt.token, "id": str(attempt.id), "key": attempt.key or "", "tenant": attempt.tenant}


def _filled(template: str, values: Mapping[str, str]) -> str:
    """Each value percent-encoded whole: none can lead to another path or host."""
    try:
        return template.format_map({name: quote(value, safe="") for name, value in values.items()})
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise InvalidValue(
            f"lookup_url is {template!r}; it may hold {', '.join(f'{{{name}}}' for name in _FIELDS)}, no other braces."
        ) from error


def _refused(refused: EgressRefused) -> Answer:
    """A URL stays what it is; what a name resolves to may be put right tomorrow."""
    return Terminal("EGRESS_REFUSED", str(refused)) if refused.is_fixed else Retryable("EGRESS_REFUSED", str(refused))


def _failed(error: Exception, *, has_begun: bool) -> Answer:
    known = classify(error)
    code = getattr(known, "code", None) or "REQUEST_FAILED"
    if has_begun:
        return Unknown(code if isinstance(known, Unknown) else "CONNECTION_LOST")
    return Retryable(code, destination_down=True)


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Of the message's own, without what belongs to the request."""
    return {name: value for name, value in headers.items() if name.lower() not in _OWN_HEADERS}


def _checked_headers(headers: Mapping[str, Any]) -> dict[str, str]:
    for name, value in headers.items():
        if name.lower() in _OWN_HEADERS:
            raise InvalidValue(f"headers has {name!r}, which the transport sets itself.")
        if not isinstance(value, str) or any(ord(character) < 32 or ord(character) == 127 for character in value):
            raise InvalidValue(f"headers[{name!r}] must be text without control characters.")
    return dict(headers)
