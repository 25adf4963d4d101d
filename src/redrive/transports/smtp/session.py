"""One conversation with a mail server: connect, encrypt, log in, envelope, mail, and the reply that decides.

The end of a mail is a line with a dot. It is written by itself, after all else has left: until then a server has not
taken the mail, so whatever is lost is Retryable; from then on only its reply counts, and without one it is Unknown.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from aiosmtplib import (
    SMTP,
    SMTPConnectResponseError,
    SMTPException,
    SMTPResponseException,
    SMTPServerDisconnected,
    SMTPTimeoutError,
)

from redrive import redact
from redrive.answers import Answer, Retryable, Terminal, Unknown
from redrive.ports import NotBegun
from redrive.transports.smtp import replies
from redrive.transports.smtp.mail import Mail

CHUNK_BYTES: Final = 65_536
LOOK_SECONDS: Final = 0.005  # how often the room in the socket is looked at while a large mail goes out
INVALID: Final = -1  # the library's number for a reply that cannot be read
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_LEADING_DOT: Final = re.compile(rb"(?m)^\.")


@dataclass(frozen=True, kw_only=True)
class Server:
    """Where it is, and as whom it is used. `SmtpTransport` explains the fields."""

    host: str
    port: int
    tls: str
    username: str | None
    password: str | None = field(repr=False)
    context: ssl.SSLContext | None
    hello: str | None
    connect_seconds: float
    reply_seconds: float


async def deliver(server: Server, mail: Mail) -> Answer:
    """The answer of one attempt; answers before the end of the mail are raised."""
    client = await connected(server)
    try:
        async with _before_the_end():
            await _envelope(client, mail)
            wire = await _content(client, mail.body, server.reply_seconds)
            wire.write(b".\r\n")
        return await _ended(wire)
    finally:
        leave(client)


async def connected(server: Server) -> SMTP:
    """Ready for a mail. What is cut off meanwhile has not begun."""
    client = SMTP(
        hostname=server.host,
        port=server.port,
        use_tls=server.tls == "implicit",
        start_tls=False,
        tls_context=server.context,
        local_hostname=server.hello,
        timeout=None,
    )
    try:
        async with asyncio.timeout(server.connect_seconds), _connecting():
            await client.connect()
            await _introduced(client)
            if server.tls == "starttls":
                await _encrypted(client)
            await _logged_in(client, server)
    except TimeoutError:
        client.close()
        raise replies.down(f"No connection within {server.connect_seconds} s.") from None
    except asyncio.CancelledError:
        client.close()
        raise NotBegun from None
    except BaseException:
        client.close()
        raise
    client.timeout = server.reply_seconds
    return client


def leave(client: SMTP) -> None:
    """Without waiting for the reply to QUIT: what became of the mail is known."""
    with suppress(SMTPException, RuntimeError):
        if client.protocol is not None and client.is_connected:
            client.protocol.write(b"QUIT\r\n")
    client.close()


@asynccontextmanager
async def _connecting() -> AsyncIterator[None]:
    """Nothing of a mail has gone out, so the server is taken to be down; its own refusals say more."""
    try:
        yield
    except SMTPConnectResponseError as error:
        raise replies.refused("GREETING", error.code, error.message) from error
    except SMTPTimeoutError as error:
        raise replies.down("The server did not answer in time.") from error
    except SMTPResponseException as error:
        if error.code == INVALID:
            raise replies.down("What answers is no mail server.") from error
        raise replies.refused("EHLO", error.code, error.message) from error
    except (SMTPException, OSError) as error:
        cause: Any = error.__cause__ or error
        if isinstance(cause, ssl.SSLError):
            raise replies.down(f"TLS failed: {redact.error_type(cause)}.", replies.TLS_REFUSED) from error
        raise replies.down(f"Not connected: {redact.error_type(cause)}.") from error


async def _introduced(client: SMTP) -> None:
    """A server of old knows HELO only; it can neither encrypt nor log in."""
    try:
        await client.ehlo()
    except SMTPResponseException:
        await client.helo()


async def _encrypted(client: SMTP) -> None:
    if not client.supports_extension("starttls"):
        raise replies.down("The server does not offer STARTTLS.", replies.STARTTLS_MISSING)
    await client.starttls()
    await client.ehlo()


async def _logged_in(client: SMTP, server: Server) -> None:
    if server.username is None or server.password is None:
        return
    if not client.supported_auth_methods:
        raise Terminal(replies.LOGIN_REFUSED, "The server offers no way to log in that is known here.")
    try:
        await client.login(server.username, server.password)
    except SMTPResponseException as error:
        raise replies.refused("AUTH", error.code, "The server refuses the login.") from error


@asynccontextmanager
async def _before_the_end() -> AsyncIterator[None]:
    """Until the dot: a server that has not seen it has not taken the mail."""
    try:
        yield
    except (SMTPTimeoutError, TimeoutError) as error:
        raise Retryable(replies.REPLY_TIMEOUT, "No reply in time, before the end of the mail was sent.") from error
    except SMTPResponseException as error:  # of a reply that cannot be read
        raise Retryable(replies.REPLY_INVALID, "A reply that is none, before the end of the mail was sent.") from error
    except (SMTPServerDisconnected, OSError) as error:
        raise Retryable(replies.CONNECTION_LOST, "The connection ended before the end of the mail was sent.") from error


async def _envelope(client: SMTP, mail: Mail) -> None:
    """All recipients, or none: with one refused the mail is not begun."""
    options = _options(client, mail)
    encoding = "utf-8" if mail.needs_utf8 else "ascii"
    await _asked(client, "MAIL", b"FROM:<" + mail.sender.encode(encoding) + b">", *options)
    for recipient in mail.recipients:
        await _asked(client, "RCPT", b"TO:<" + recipient.encode(encoding) + b">")
    await _asked(client, "DATA")


def _options(client: SMTP, mail: Mail) -> list[bytes]:
    options = []
    if mail.needs_utf8:
        if not client.supports_extension("smtputf8"):
            raise Terminal(replies.UTF8_UNSUPPORTED, "An address is not ASCII, and the server takes only such.")
        options.append(b"SMTPUTF8")
    if client.supports_extension("size"):
        most = client.esmtp_extensions["size"].strip()
        if most.isdecimal() and 0 < int(most) < len(mail.body):
            raise Terminal(replies.TOO_LARGE, f"The mail has {len(mail.body):,} bytes; the server takes {int(most):,}.")
        options.append(b"SIZE=%d" % len(mail.body))
    return options


async def _asked(client: SMTP, command: str, *arguments: bytes) -> None:
    reply = await client.execute_command(command.encode(), *arguments)
    expected = 300 if command == "DATA" else 200
    if not expected <= reply.code < expected + 100:
        raise replies.refused(command, reply.code, reply.message)


async def _content(client: SMTP, body: bytes, seconds: float) -> Any:
    """All of the mail but its end, and it has left this process. Returns what the end is written to."""
    wire, transport = client.protocol, client.transport
    if wire is None or not isinstance(transport, asyncio.WriteTransport):
        raise SMTPServerDisconnected("Connection lost")
    lines = _LEADING_DOT.sub(b"..", _LINE_END.sub(b"\r\n", body))
    lines += b"" if lines.endswith(b"\r\n") else b"\r\n"
    for start in range(0, len(lines), CHUNK_BYTES):
        wire.write(lines[start : start + CHUNK_BYTES])
        try:
            async with asyncio.timeout(seconds):
                while transport.get_write_buffer_size():  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            transport.abort()
            raise
    return wire


async def _ended(wire: Any) -> Answer:
    try:
        reply = await wire.read_response(timeout=None)
    except (SMTPException, OSError) as error:
        if isinstance(error, SMTPResponseException) and error.code == INVALID:
            return Unknown(replies.REPLY_INVALID, "The reply to the end of the mail cannot be read.")
        return Unknown(replies.REPLY_LOST, "The mail was sent to its end, and its reply was lost.")
    return replies.ended(reply.code, reply.message)
