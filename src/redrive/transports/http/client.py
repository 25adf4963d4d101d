"""One HTTP request, and whether it ended before anything went out, or after something may have.

No redirect is followed, no cookie kept, no proxy of the environment used, nothing decompressed, and only a bounded
part of a reply is read.
"""

import asyncio
import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from redrive.transports.http.egress import Egress, EgressRefused, resolve

REPLY_BYTES_MAX: Final = 64 * 1024
REPLY_SECONDS_MAX: Final = 5.0
# Of one reply, all in all: headers, however often a peer says 103, and body. What comes after it is not even parsed.
RECEIVED_BYTES_MAX: Final = 256 * 1024
# Replies before the one that counts (100, 103): more than any server sends. Each costs the event loop of all messages.
INTERIM_MAX: Final = 16
_INTERIM: Final = re.compile(rb"HTTP/1\.\d 1")
_HEAD_END: Final = b"\r\n\r\n"
KEEPALIVE_SECONDS: Final = (
    3.0  # shorter than most servers': a connection that they close at our request would be a doubt
)


@dataclass(slots=True)
class Request:
    """has_begun: a byte of it may have gone out."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    has_begun: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """body: at most 64 kB; whole only where is_whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool

    def document(self) -> Mapping[str, Any]:
        """The JSON object that the body is; empty where it is no whole one."""
        try:
            read = json.loads(self.body) if self.is_whole else {}
        except (ValueError, RecursionError):
            return {}
        return read if isinstance(read, dict) else {}


class Client:
    """At most so many connections to each host that `egress` allows. One session for each event loop in turn."""

    def __init__(self, egress: Egress, *, connections: int, connect_seconds: float) -> None:
        self._egress = egress
        self._connections = connections
        self._connect_seconds = connect_seconds
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def ask(self, request: Request) -> Reply:
        """Raises what aiohttp raises, or EgressRefused; `request.has_begun` tells what that means."""
        session = self._opened()
        try:
            async with session.request(
                request.method,
                URL(request.url, encoded=True),  # as it was judged, to the letter
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
                trace_request_ctx=request,
            ) as response:
                body, is_whole = await _body(response)
                return Reply(response.status, response.headers, body, is_whole)
        except aiohttp.InvalidURL as error:
            raise EgressRefused("The URL cannot be read.", is_fixed=True) from error
        except aiohttp.ClientConnectorError as error:
            # aiohttp wraps what its resolver raises.
            refused = _refusal(error)
            if refused is not None:
                raise refused from None
            raise

    async def aclose(self) -> None:
        """Requests that run are cut off. It can be used again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._session, self._loop = self._make_session(), loop
        return self._session

    def _make_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,
            limit_per_host=self._connections,
            resolver=_Resolver(self._egress),
            use_dns_cache=False,
            keepalive_timeout=KEEPALIVE_SECONDS,
            socket_factory=self._socket,
        )
        connector._factory = partial(_Bounded, loop=asyncio.get_running_loop())  # type: ignore[assignment]
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_seconds),
            auto_decompress=False,
            trust_env=False,
            trace_configs=[_phases()],
        )

    def _socket(self, address: Any) -> socket.socket:
        """The last guard: no socket is opened to an address that is not allowed."""
        family, kind, protocol, _, sockaddr = address
        self._egress.check_address(sockaddr[0])
        return socket.socket(family, kind, protocol)


class _Bounded(ResponseHandler):
    """Closes a connection whose reply takes more bytes than any could need, or never comes to its status.

    Bytes over the bound are noticed with the next ones, so that a status which has come is heard. Interim replies
    are counted before they are parsed: one read may bring thousands.
    """

    _left = RECEIVED_BYTES_MAX
    _interim_left = INTERIM_MAX

    def set_response_params(self, **options: Any) -> None:
        self._left = RECEIVED_BYTES_MAX
        self._interim_left = INTERIM_MAX
        super().set_response_params(**options)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """A whole head has come; from the one that counts on, what looks like another is content."""
        if data[0].code >= 200:
            self._interim_left = RECEIVED_BYTES_MAX
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        if self._interim_left <= INTERIM_MAX:
            self._interim_left -= _interim_replies(data)
        if self._left < 0 or self._interim_left < 0:
            self.set_exception(aiohttp.ClientPayloadError("The reply has too many bytes, or does not begin."))
            self.close()
            return
        self._left -= len(data)
        super().data_received(data)


def _interim_replies(data: bytes) -> int:
    """Heads of interim replies in these bytes, one behind the other, from the first head on."""
    place, count = 0, 0
    if not data.startswith(b"HTTP/"):
        place = data.find(_HEAD_END) + len(_HEAD_END)
    while count <= INTERIM_MAX and _INTERIM.match(data, place):
        count += 1
        end = data.find(_HEAD_END, place)
        if end < 0:
            break
        place = end + len(_HEAD_END)
    return count


class _Resolver(AbstractResolver):
    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            found = await resolve(self._egress, host, port)
        except EgressRefused as refused:
            raise OSError(None, str(refused)) from refused
        wanted = [(kind, address) for kind, address in found if family in (socket.AF_UNSPEC, kind)]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST)
            for kind, address in wanted
        ]

    async def close(self) -> None:
        pass


def _phases() -> aiohttp.TraceConfig:
    """A request has begun once it has a connection: from there on bytes may go out."""

    async def begun(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
        context.trace_request_ctx.has_begun = True

    phases = aiohttp.TraceConfig()
    phases.on_connection_create_end.append(begun)
    phases.on_connection_reuseconn.append(begun)
    return phases


async def _body(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """The status has been received, so whatever goes wrong here changes nothing."""
    body = b""
    try:
        async with asyncio.timeout(REPLY_SECONDS_MAX):
            while len(body) <= REPLY_BYTES_MAX:
                chunk = await response.content.read(REPLY_BYTES_MAX + 1 - len(body))
                if not chunk:
                    return body, True
                body += chunk
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        pass
    response.close()  # what is left of it would be the beginning of the next reply
    return body[:REPLY_BYTES_MAX], False


def _refusal(error: BaseException) -> EgressRefused | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, EgressRefused):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None
