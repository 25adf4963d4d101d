"""Which exception of which client library means what (G-10): the whole table, by types made here, no library needed."""

from __future__ import annotations

import asyncio
import errno
import http.client
import smtplib
import socket
import ssl
import urllib.error
from collections.abc import Mapping
from email.message import Message
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from redrive.answers import Answer, Retryable, Terminal, Unknown
from redrive.transports import network_errors
from redrive.transports.network_errors import classify

pytestmark = [pytest.mark.req("G-10"), pytest.mark.req("G-13")]

# No byte went out: Retryable, destination down. Everything else in the table: Unknown.
CONNECT = {
    "builtins.ConnectionRefusedError": "CONNECTION_REFUSED",
    "socket.gaierror": "NAME_NOT_RESOLVED",
    "ssl.SSLCertVerificationError": "TLS_REFUSED",
    "httpx.ConnectError": "CONNECTION_REFUSED",
    "httpx.ConnectTimeout": "CONNECT_TIMEOUT",
    "httpx.PoolTimeout": "POOL_TIMEOUT",
    "aiohttp.client_exceptions.ClientConnectorError": "CONNECTION_REFUSED",
    "aiohttp.client_exceptions.ClientConnectorDNSError": "NAME_NOT_RESOLVED",
    "aiohttp.client_exceptions.ClientConnectorCertificateError": "TLS_REFUSED",
    "aiohttp.client_exceptions.ClientConnectorSSLError": "TLS_REFUSED",
    "aiohttp.client_exceptions.ConnectionTimeoutError": "CONNECT_TIMEOUT",
    "requests.exceptions.ConnectTimeout": "CONNECT_TIMEOUT",
    "urllib3.exceptions.NewConnectionError": "CONNECTION_REFUSED",
    "urllib3.exceptions.ConnectTimeoutError": "CONNECT_TIMEOUT",
    "urllib3.exceptions.NameResolutionError": "NAME_NOT_RESOLVED",
    "botocore.exceptions.EndpointConnectionError": "CONNECTION_REFUSED",
    "botocore.exceptions.ConnectTimeoutError": "CONNECT_TIMEOUT",
    "smtplib.SMTPConnectError": "CONNECTION_REFUSED",
}
READ = {
    "builtins.ConnectionResetError": "CONNECTION_LOST",
    "builtins.ConnectionAbortedError": "CONNECTION_LOST",
    "builtins.BrokenPipeError": "CONNECTION_LOST",
    "builtins.TimeoutError": "TIMEOUT",
    "http.client.RemoteDisconnected": "CONNECTION_LOST",
    "http.client.IncompleteRead": "CONNECTION_LOST",
    "asyncio.exceptions.IncompleteReadError": "CONNECTION_LOST",
    "httpx.ReadTimeout": "TIMEOUT",
    "httpx.ReadError": "CONNECTION_LOST",
    "httpx.WriteTimeout": "TIMEOUT",
    "httpx.WriteError": "CONNECTION_LOST",
    "httpx.RemoteProtocolError": "CONNECTION_LOST",
    "aiohttp.client_exceptions.ServerDisconnectedError": "CONNECTION_LOST",
    "aiohttp.client_exceptions.ServerTimeoutError": "TIMEOUT",
    "aiohttp.client_exceptions.ClientOSError": "CONNECTION_LOST",
    "aiohttp.client_exceptions.ClientPayloadError": "CONNECTION_LOST",
    "requests.exceptions.SSLError": "TLS_FAILED",
    "requests.exceptions.ReadTimeout": "TIMEOUT",
    "requests.exceptions.ChunkedEncodingError": "CONNECTION_LOST",
    "requests.exceptions.ConnectionError": "CONNECTION_LOST",
    "urllib3.exceptions.ReadTimeoutError": "TIMEOUT",
    "urllib3.exceptions.ProtocolError": "CONNECTION_LOST",
    "botocore.exceptions.ReadTimeoutError": "TIMEOUT",
    "botocore.exceptions.ConnectionClosedError": "CONNECTION_LOST",
    "redis.exceptions.TimeoutError": "TIMEOUT",
    "redis.exceptions.ConnectionError": "CONNECTION_LOST",
    "psycopg.OperationalError": "DATABASE_UNREACHABLE",
    "psycopg2.OperationalError": "DATABASE_UNREACHABLE",
    "smtplib.SMTPServerDisconnected": "CONNECTION_LOST",
}


def fake(qualified: str, *bases: type[BaseException], **attributes: Any) -> type[BaseException]:
    """A class that calls itself so, without the library."""
    module, _, name = qualified.rpartition(".")
    return type(name, bases or (Exception,), {"__module__": module, **attributes})


def raised(qualified: str, *arguments: object, bases: tuple[type[BaseException], ...] = ()) -> BaseException:
    return fake(qualified, *bases)(*arguments)


def down(code: str) -> Retryable:
    return Retryable(code, destination_down=True)


def test_every_entry_of_the_table_is_judged_here() -> None:
    assert set(network_errors._BY_TYPE) == set(CONNECT) | set(READ)


@pytest.mark.parametrize("qualified", CONNECT)
def test_an_error_while_connecting_is_retryable_and_says_that_the_destination_is_down(qualified: str) -> None:
    assert classify(raised(qualified)) == down(CONNECT[qualified])


@pytest.mark.parametrize("qualified", READ)
def test_an_error_after_the_first_byte_is_unknown(qualified: str) -> None:
    assert classify(raised(qualified)) == Unknown(READ[qualified])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(), down("CONNECTION_REFUSED")),
        (ConnectionResetError(), Unknown("CONNECTION_LOST")),
        (BrokenPipeError(), Unknown("CONNECTION_LOST")),
        (TimeoutError(), Unknown("TIMEOUT")),
        (socket.gaierror(socket.EAI_NONAME, "no"), down("NAME_NOT_RESOLVED")),
        (ssl.SSLCertVerificationError(), down("TLS_REFUSED")),
        (http.client.RemoteDisconnected(""), Unknown("CONNECTION_LOST")),
        (http.client.IncompleteRead(b""), Unknown("CONNECTION_LOST")),
        (asyncio.IncompleteReadError(b"", 1), Unknown("CONNECTION_LOST")),
        (smtplib.SMTPConnectError(421, "no"), down("CONNECTION_REFUSED")),
        (smtplib.SMTPServerDisconnected(), Unknown("CONNECTION_LOST")),
        (psycopg.OperationalError(), Unknown("DATABASE_UNREACHABLE")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_the_real_classes_that_are_at_hand_bear_the_names_of_the_table(error: BaseException, expected: Answer) -> None:
    assert classify(error) == expected


def test_the_nearest_ancestor_in_the_table_decides() -> None:
    timeout = fake("aiohttp.client_exceptions.ServerTimeoutError", TimeoutError)
    connecting = fake("aiohttp.client_exceptions.ConnectionTimeoutError", timeout)
    users_own = fake("shop.errors.GatewayTooSlow", connecting)
    assert classify(timeout()) == Unknown("TIMEOUT")
    assert classify(connecting()) == down("CONNECT_TIMEOUT")
    assert classify(users_own()) == down("CONNECT_TIMEOUT")


def test_an_error_of_the_same_name_in_another_module_is_not_in_the_table() -> None:
    assert classify(raised("shop.errors.ConnectError")) is None
    assert classify(raised("httpx.errors.ConnectError")) is None


@pytest.mark.parametrize(
    "number",
    [
        errno.ECONNREFUSED,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.EHOSTDOWN,
        errno.EADDRNOTAVAIL,
    ],
)
def test_an_operating_system_error_while_connecting(number: int) -> None:
    assert classify(OSError(number, "x")) == down("CONNECTION_REFUSED")


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT])
def test_an_operating_system_error_on_an_open_connection(number: int) -> None:
    own = fake("shop.errors.Broken", OSError)(number, "x")
    assert classify(own) == Unknown("CONNECTION_LOST")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "x"),
        OSError("no number"),
        FileNotFoundError(2, "x"),
        PermissionError(13, "x"),
        KeyError("x"),
        ValueError("connection refused"),
        RuntimeError("timeout"),
        AssertionError(),
        SystemExit(1),
        raised("httpx.InvalidURL"),
        raised("psycopg.errors.UniqueViolation"),
    ],
    ids=repr,
)
def test_what_is_not_in_the_table_is_not_classified(error: BaseException) -> None:
    """By type and number, never by text."""
    assert classify(error) is None


# wrappers: the error inside says in which phase it happened


def requests_error(name: str, *arguments: object) -> BaseException:
    return raised(f"requests.exceptions.{name}", *arguments, bases=(fake("requests.exceptions.ConnectionError"),))


def max_retries(reason: object) -> BaseException:
    error = raised("urllib3.exceptions.MaxRetryError")
    error.reason = reason  # type: ignore[attr-defined]  # as urllib3 has it
    return error


def test_requests_is_judged_by_what_it_wraps() -> None:
    refused = raised("urllib3.exceptions.NewConnectionError")
    lost = raised("urllib3.exceptions.ProtocolError", "aborted", http.client.RemoteDisconnected(""))
    assert classify(requests_error("ConnectionError", max_retries(refused))) == down("CONNECTION_REFUSED")
    assert classify(requests_error("ConnectionError", lost)) == Unknown("CONNECTION_LOST")


@pytest.mark.parametrize("inner", [ValueError("x"), raised("urllib3.exceptions.ProxyError"), "text", None])
def test_a_wrapper_around_something_unknown_is_judged_by_itself(inner: object) -> None:
    assert classify(requests_error("ConnectionError", inner)) == Unknown("CONNECTION_LOST")
    assert classify(requests_error("ConnectionError", max_retries(inner))) == Unknown("CONNECTION_LOST")


def test_a_refused_certificate_is_seen_through_all_wrappers() -> None:
    inner = raised("urllib3.exceptions.SSLError", ssl.SSLCertVerificationError())
    assert classify(requests_error("SSLError", max_retries(inner))) == down("TLS_REFUSED")
    assert classify(requests_error("SSLError", max_retries(raised("urllib3.exceptions.SSLError")))) == Unknown(
        "TLS_FAILED"
    )


def test_urllib_is_judged_by_its_reason() -> None:
    assert classify(urllib.error.URLError(ConnectionRefusedError())) == down("CONNECTION_REFUSED")
    assert classify(urllib.error.URLError(TimeoutError())) == Unknown("TIMEOUT")
    assert classify(urllib.error.URLError("unknown url type")) is None


def test_a_cause_counts_where_a_wrapper_has_no_other_reason() -> None:
    error = max_retries(None)
    error.__cause__ = ConnectionRefusedError()
    assert classify(error) == down("CONNECTION_REFUSED")


# answers that were received


def http_errors(status: int, headers: Mapping[str, str] | None) -> list[BaseException]:
    """One of each library that raises for a status."""
    response = SimpleNamespace(status_code=status, headers=headers)
    message = Message()
    for name, value in (headers or {}).items():
        message[name] = value
    aiohttp_error = raised("aiohttp.client_exceptions.ClientResponseError")
    aiohttp_error.status, aiohttp_error.headers = status, headers  # type: ignore[attr-defined]  # as aiohttp has it
    errors = [raised(name) for name in ("httpx.HTTPStatusError", "requests.exceptions.HTTPError")]
    for error in errors:
        error.response = response  # type: ignore[attr-defined]  # as both have it
    return [*errors, aiohttp_error, urllib.error.HTTPError("http://x.invalid", status, "no", message, None)]


def close(errors: list[BaseException]) -> None:
    """The one of the standard library holds a temporary file."""
    for error in errors:
        if isinstance(error, urllib.error.HTTPError):
            error.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, Retryable) for status in (425, 429, 500, 501, 503, 505, 507, 599)),
        *((status, Unknown) for status in (408, 502, 504)),
        *((status, Terminal) for status in (300, 302, 400, 401, 403, 404, 409, 410, 413, 415, 422, 451, 499)),
    ],
)
def test_a_status_is_an_answer_and_that_of_a_gateway_is_none(status: int, kind: type[Answer]) -> None:
    errors = http_errors(status, {})
    answers = [classify(error) for error in errors]
    close(errors)
    assert all(type(answer) is kind for answer in answers)
    assert all(getattr(answer, "code", None) == f"HTTP_{status}" for answer in answers)
    assert not any(getattr(answer, "destination_down", False) for answer in answers)


@pytest.mark.req("G-11")
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("asked", ["120", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_retry_after_is_handed_on_as_it_was_said(status: int, asked: str) -> None:
    errors = http_errors(status, {"Retry-After": asked})
    answers = [classify(error) for error in errors]
    close(errors)
    assert answers == [Retryable(f"HTTP_{status}", retry_after=asked)] * 4


def test_a_status_without_headers_asks_for_nothing() -> None:
    errors = http_errors(429, None)
    answers = [classify(error) for error in errors]
    close(errors)
    assert answers == [Retryable("HTTP_429")] * 4


@pytest.mark.parametrize("name", ["httpx.HTTPStatusError", "requests.exceptions.HTTPError"])
def test_a_status_error_without_a_response_is_not_classified(name: str) -> None:
    error = raised(name)
    error.response = None  # type: ignore[attr-defined]  # as requests allows
    assert classify(error) is None
