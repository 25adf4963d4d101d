"""Which exception of which client library means what: the table behind plain handlers (G-10).

By explicit type, never by text. `connect` errors mean that no byte went out: Retryable. Errors while reading or
writing mean that the request may have been carried out: Unknown. Libraries are named, not imported. An exception
that is not in the table is treated as a bug.
"""

import errno
from collections.abc import Callable
from typing import Any, Final

from redrive.answers import Answer, Retryable, Terminal, Unknown

CONNECT: Final = "connect"
READ: Final = "read"

# What it means -> qualified names of exceptions.
_TABLE: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    (CONNECT, "CONNECTION_REFUSED"): (
        "builtins.ConnectionRefusedError",
        "httpx.ConnectError",
        "aiohttp.client_exceptions.ClientConnectorError",
        "urllib3.exceptions.NewConnectionError",
        "botocore.exceptions.EndpointConnectionError",
        "smtplib.SMTPConnectError",
    ),
    (READ, "CONNECTION_LOST"): (
        "builtins.ConnectionResetError",
        "builtins.ConnectionAbortedError",
        "builtins.BrokenPipeError",
        "http.client.RemoteDisconnected",
        "http.client.IncompleteRead",
        "asyncio.exceptions.IncompleteReadError",
        "httpx.ReadError",
        "httpx.WriteError",
        "httpx.RemoteProtocolError",
        "aiohttp.client_exceptions.ServerDisconnectedError",
        "aiohttp.client_exceptions.ClientOSError",
        "aiohttp.client_exceptions.ClientPayloadError",
        "requests.exceptions.ChunkedEncodingError",
        "requests.exceptions.ConnectionError",
        "urllib3.exceptions.ProtocolError",
        "botocore.exceptions.ConnectionClosedError",
        "redis.exceptions.ConnectionError",
        "smtplib.SMTPServerDisconnected",
    ),
    (READ, "TIMEOUT"): (
        "builtins.TimeoutError",
        "httpx.ReadTimeout",
        "httpx.WriteTimeout",
        "aiohttp.client_exceptions.ServerTimeoutError",
        "requests.exceptions.ReadTimeout",
        "urllib3.exceptions.ReadTimeoutError",
        "botocore.exceptions.ReadTimeoutError",
        "redis.exceptions.TimeoutError",
    ),
    (CONNECT, "NAME_NOT_RESOLVED"): (
        "socket.gaierror",
        "aiohttp.client_exceptions.ClientConnectorDNSError",
        "urllib3.exceptions.NameResolutionError",
    ),
    (CONNECT, "TLS_REFUSED"): (
        "ssl.SSLCertVerificationError",
        "aiohttp.client_exceptions.ClientConnectorCertificateError",
        "aiohttp.client_exceptions.ClientConnectorSSLError",
    ),
    (CONNECT, "CONNECT_TIMEOUT"): (
        "httpx.ConnectTimeout",
        "aiohttp.client_exceptions.ConnectionTimeoutError",
        "requests.exceptions.ConnectTimeout",
        "urllib3.exceptions.ConnectTimeoutError",
        "botocore.exceptions.ConnectTimeoutError",
    ),
    (CONNECT, "POOL_TIMEOUT"): ("httpx.PoolTimeout",),
    # In the middle too; a refused certificate is inside it.
    (READ, "TLS_FAILED"): ("requests.exceptions.SSLError",),
    (READ, "DATABASE_UNREACHABLE"): (
        "psycopg.OperationalError",
        "psycopg2.OperationalError",
    ),
}
_BY_TYPE: Final = {name: meaning for meaning, names in _TABLE.items() for name in names}
_CONNECT_ERRNOS: Final = frozenset(
    {
        errno.ECONNREFUSED,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.EHOSTDOWN,
        errno.EADDRNOTAVAIL,
    }
)
_READ_ERRNOS: Final = frozenset({errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT})
# What is inside says in which phase it happened, if it is known; else the wrapper's own entry counts.
_WRAPPERS: Final = frozenset(
    {
        "requests.exceptions.ConnectionError",
        "urllib.error.URLError",
        "urllib3.exceptions.MaxRetryError",
        "urllib3.exceptions.SSLError",
    }
)
_STATUS: Final[dict[str, Callable[[Any], tuple[int, Any]]]] = {
    "httpx.HTTPStatusError": lambda e: (e.response.status_code, e.response.headers),
    "requests.exceptions.HTTPError": lambda e: (e.response.status_code, e.response.headers),
    "aiohttp.client_exceptions.ClientResponseError": lambda e: (e.status, e.headers),
    "urllib.error.HTTPError": lambda e: (e.code, e.headers),
}
_RETRYABLE_STATUS: Final = frozenset({425, 429})
# 408: the server gave up waiting for the rest. 502, 504: a gateway lost what was behind it.
_UNKNOWN_STATUS: Final = frozenset({408, 502, 504})


def classify(error: BaseException) -> Answer | None:
    """None for an exception that is not in the table."""
    names = [_qualified(kind) for kind in type(error).__mro__]
    status = next((_STATUS[name] for name in names if name in _STATUS), None)
    if status is not None:
        return _received(error, status)
    inner = _wrapped(error) if any(name in _WRAPPERS for name in names) else None
    found = classify(inner) if inner is not None else None
    return found or _by_itself(error, names)


def _by_itself(error: BaseException, names: list[str]) -> Answer | None:
    phase, code = next((_BY_TYPE[name] for name in names if name in _BY_TYPE), (None, ""))
    if phase is None and isinstance(error, OSError):
        phase, code = _from_errno(error.errno)
    return None if phase is None else _from_phase(phase, code)


def _from_phase(phase: str, code: str) -> Answer:
    return Retryable(code, destination_down=True) if phase == CONNECT else Unknown(code)


def _received(error: BaseException, status: Callable[[Any], tuple[int, Any]]) -> Answer | None:
    """One that was raised without a response says nothing."""
    try:
        return from_status(*status(error))
    except AttributeError:
        return None


def from_status(status: int, headers: Any) -> Answer:
    """408, 502 and 504 do not say whether the request was carried out."""
    code = f"HTTP_{status}"
    if status in _UNKNOWN_STATUS:
        return Unknown(code)
    if status in _RETRYABLE_STATUS or status >= 500:
        return Retryable(code, retry_after=headers.get("Retry-After") if headers else None, status=status)
    return Terminal(code)


def _from_errno(number: int | None) -> tuple[str | None, str]:
    if number in _CONNECT_ERRNOS:
        return CONNECT, "CONNECTION_REFUSED"
    if number in _READ_ERRNOS:
        return READ, "CONNECTION_LOST"
    return None, ""


def _wrapped(error: BaseException) -> BaseException | None:
    candidates = [getattr(error, "reason", None), *error.args, error.__cause__]
    return next((c for c in candidates if isinstance(c, BaseException) and c is not error), None)


def _qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
