"""Messages as e-mails, handed to a mail server over SMTP.

    app.transport("welcome-mail", SmtpTransport("smtp.example", sender="shop@example.com", username="shop", password=…))

A mail server cannot be asked whether it has a mail. What fails before the end of the mail is sent is Retryable or
Terminal; a lost reply to the end of the mail is Unknown (G-13), and `in_doubt` of the destination decides: hold, or
send the same bytes again. `mail` makes the bytes, `session` talks to the server, `replies` says what a reply means.
"""

import ssl
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, get_args

from redrive import redact
from redrive.answers import UNCLASSIFIED, Answer, Delivered, Terminal
from redrive.errors import InvalidValue
from redrive.message import Attempt
from redrive.policy import address_of
from redrive.ports.broker_risks import BrokerRisk
from redrive.transports.smtp import mail, session
from redrive.transports.smtp.mail import Mail, MakeMail
from redrive.transports.smtp.session import Server

__all__ = ["MakeMail", "SmtpTransport", "Tls"]

Tls = Literal["starttls", "implicit", "none"]

PORTS: Final[dict[str, int]] = {"starttls": 587, "implicit": 465, "none": 25}
CONNECT_SECONDS: Final = 10.0
REPLY_SECONDS: Final = 10.0


class SmtpTransport:
    """One connection for each mail; one mail has one recipient, unless `many_recipients`.

    host, port: the server; port None = 587, 465 or 25, by `tls`. sender: the address in `MAIL FROM`, and in `From`
    where the mail has none. tls: "starttls" (refused where the server does not offer it), "implicit" (from the first
    byte), or "none". mail: a function that makes an `EmailMessage` of an attempt; None = from the payload's `to`,
    `subject`, `text` and `html`. many_recipients: all of To, Cc and Bcc in one mail; if one is refused, none gets it.
    ca_file: certificates that sign the server's; None = those of the system. hello: our name in `EHLO`.
    connect_seconds: until the login has been accepted, 0 to 600. reply_seconds: for each reply before the end of the
    mail; for the last reply the destination's `timeout_seconds` counts.
    """

    broker_is_well: Final = "it answers, and takes mail from us"

    def __init__(
        self,
        host: str,
        *,
        sender: str,
        port: int | None = None,
        tls: Tls = "starttls",
        username: str | None = None,
        password: str | None = None,
        mail: MakeMail | None = None,
        many_recipients: bool = False,
        ca_file: str | None = None,
        hello: str | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        reply_seconds: float = REPLY_SECONDS,
    ) -> None:
        _check(tls, username, password, connect_seconds=connect_seconds, reply_seconds=reply_seconds)
        self._sender = _sender(sender)
        self._make, self._many = mail, many_recipients
        self._server = Server(
            host=host,
            port=PORTS[tls] if port is None else port,
            tls=tls,
            username=username,
            password=password,
            context=None if tls == "none" else ssl.create_default_context(cafile=ca_file),
            hello=hello,
            connect_seconds=connect_seconds,
            reply_seconds=reply_seconds,
        )
        self.address = address_of(host, str(self._server.port), username)

    async def send(self, attempt: Attempt) -> Answer:
        made = self._mail(attempt)
        answer = await session.deliver(self._server, made)
        if isinstance(answer, Delivered):
            return replace(answer, result={"message_id": made.message_id})
        return answer

    async def validate(self, attempt: Attempt) -> None:
        """Whether a mail can be made of it. Raises Terminal; nothing is sent."""
        self._mail(attempt)

    async def aclose(self) -> None:
        """Nothing is kept open."""

    async def broker_risks(self, *, inbox_seconds: float | None) -> Sequence[BrokerRisk]:  # noqa: ARG002
        """Connects and logs in, as a send does. Raises what keeps it from that."""
        connected = await session.connected(self._server)
        session.leave(connected)
        if self._server.tls == "none" and self._server.username is not None:
            return [BrokerRisk("the password is sent in clear text", 'tls = "starttls" or "implicit"')]
        return []

    def _mail(self, attempt: Attempt) -> Mail:
        if self._make is None:
            made = mail.from_fields(attempt, many=self._many)
        else:
            try:
                made = self._make(attempt)
            except Answer:
                raise
            except Exception as error:  # nothing has gone out
                raise Terminal(UNCLASSIFIED, redact.error_type(error), bug=True) from error
        return mail.composed(attempt, made, sender=self._sender, many=self._many)


def _check(tls: str, username: str | None, password: str | None, **seconds: float) -> None:
    if tls not in get_args(Tls):
        raise InvalidValue(f"tls is {tls!r}; it must be one of {', '.join(get_args(Tls))}.")
    if (username is None) != (password is None):
        raise InvalidValue("username and password belong together; only one of them is given.")
    for name, value in seconds.items():
        if not 0 < value <= 600:
            raise InvalidValue(f"{name} is {value}; it must be above 0 and at most 600.")


def _sender(sender: str) -> str:
    if not mail.is_address(sender):
        raise InvalidValue("sender must be one address such as shop@example.com, without a name.")
    return sender
