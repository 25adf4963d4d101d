"""The bytes of an e-mail: the same at each attempt of a message, on every machine.

`Message-ID` is made of the token and `Date` of the message's creation, whatever the function that made the mail has put
there; boundaries of MIME parts are numbered. Everything is sent as 7 bit, so that the bytes do not depend on what a
server can do. Line breaks in headers and characters that would end an address are refused (header injection).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from datetime import UTC
from email import policy
from email.errors import MessageError, NonASCIILocalPartDefect
from email.generator import BytesGenerator
from email.headerregistry import AddressHeader
from email.message import EmailMessage
from io import BytesIO
from typing import Any, Final, NamedTuple

from redrive.answers import UNCLASSIFIED, Terminal
from redrive.message import Attempt

HEADER_INVALID: Final = "SMTP_HEADER_INVALID"  # a line break in a header: an attempt to add another one
ADDRESS_INVALID: Final = "SMTP_ADDRESS_INVALID"
RECIPIENTS: Final = "SMTP_RECIPIENTS"  # none, or more than one where one is allowed
PAYLOAD_INVALID: Final = "PAYLOAD_INVALID"

MakeMail = Callable[[Attempt], EmailMessage]

_SEVEN_BIT: Final = policy.SMTP.clone(cte_type="7bit")
_SEVEN_BIT_UTF8: Final = policy.SMTPUTF8.clone(cte_type="7bit")
_ADDRESS: Final = re.compile(r"""[^\s@<>"'(),:;\\\x00-\x1f\x7f]+@[^\s@<>"'(),:;\\\x00-\x1f\x7f]+\Z""")
_HEADER_NAME: Final = re.compile(r"[!-9;-~]+\Z")
_LINE_BREAK: Final = re.compile(r"[\r\n\x00]")
_RECIPIENT_HEADERS: Final = ("To", "Cc", "Bcc")


class Mail(NamedTuple):
    """As it goes to the server. needs_utf8: an address has other characters than ASCII (SMTPUTF8, RFC 6531)."""

    sender: str
    recipients: tuple[str, ...]
    body: bytes
    needs_utf8: bool
    message_id: str


def is_address(text: str) -> bool:
    return _ADDRESS.match(text) is not None


def from_fields(attempt: Attempt, *, many: bool) -> EmailMessage:
    """Of the payload's `to`, `subject`, `text` and `html`; one of the last two may be missing."""
    payload = attempt.payload
    if not isinstance(payload, dict):
        raise Terminal(PAYLOAD_INVALID, "The payload is no object with to, subject, and text or html.")
    message = EmailMessage(policy=_SEVEN_BIT)
    with _refusing_headers():
        message["To"] = _to(payload.get("to"), many=many)
        message["Subject"] = _text(payload, "subject")
    plain, html = payload.get("text"), payload.get("html")
    if plain is None and html is None:
        raise Terminal(PAYLOAD_INVALID, "The payload has neither text nor html.")
    if plain is not None:
        message.set_content(_text(payload, "text"))
    if html is not None:
        add = message.set_content if plain is None else message.add_alternative
        add(_text(payload, "html"), subtype="html")
    return message


def composed(attempt: Attempt, made: Any, *, sender: str, many: bool) -> Mail:
    """The mail with the headers that make its bytes the same each time. Raises Terminal where it cannot be sent."""
    if not isinstance(made, EmailMessage):
        raise Terminal(UNCLASSIFIED, f"The function returned a {type(made).__name__}, no EmailMessage.", bug=True)
    message = deepcopy(made)
    _refuse_injection(message)
    recipients = _recipients(message, many=many)
    with _refusing_headers():
        del message["Bcc"], message["Message-ID"], message["Date"]
        if "From" not in message:
            message["From"] = sender
        message["Date"] = attempt.created_at.astimezone(UTC)
        message["Message-ID"] = f"<{attempt.token}@{_ascii(sender.partition('@')[2])}>"
        _number_boundaries(message, attempt.token)
        needs_utf8 = not all(address.isascii() for address in [sender, *recipients, *_addresses(message, "From")])
        return Mail(sender, recipients, _flat(message, utf8=needs_utf8), needs_utf8, message["Message-ID"])


class _refusing_headers:  # noqa: N801 - read as a statement
    """What the library refuses in a header is Terminal: nothing has gone out, and it will never be sent."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, ValueError | MessageError | IndexError):
            raise Terminal(HEADER_INVALID, f"A header cannot be sent: {type(error).__name__}.") from error


def _text(payload: dict[str, Any], name: str) -> str:
    value = payload.get(name)
    if not isinstance(value, str):
        raise Terminal(PAYLOAD_INVALID, f"{name} of the payload is no text.")
    return value


def _to(value: Any, *, many: bool) -> str:
    if many and isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return _text({"to": value}, "to")


def _refuse_injection(message: EmailMessage) -> None:
    for part in message.walk():
        for name, value in part.items():
            if _LINE_BREAK.search(str(value)) or not _HEADER_NAME.match(name):
                raise Terminal(HEADER_INVALID, "A header has a line break, or a name that no header can have.")


def _recipients(message: EmailMessage, *, many: bool) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(one for name in _RECIPIENT_HEADERS for one in _addresses(message, name)))
    if not found or (len(found) > 1 and not many):
        raise Terminal(RECIPIENTS, f"The mail has {len(found)} recipients; it must have one.")
    for address in found:
        if not is_address(address):
            raise Terminal(ADDRESS_INVALID, "A recipient is no address.")
    return found


def _addresses(message: EmailMessage, name: str) -> Iterator[str]:
    for header in message.get_all(name, []):
        if not isinstance(header, AddressHeader):
            raise Terminal(HEADER_INVALID, f"{name} is made with an old policy, which keeps what it is given.")
        if not all(isinstance(one, NonASCIILocalPartDefect) for one in _defects(header)):
            # Such as text behind the address, which the parser would leave out.
            raise Terminal(ADDRESS_INVALID, f"{name} is no list of addresses.")
        yield from (address.addr_spec for address in header.addresses)


def _defects(header: Any) -> Sequence[object]:
    """Every header of a modern policy has them; the types of the library do not say so."""
    return header.defects  # type: ignore[no-any-return]


def _ascii(domain: str) -> str:
    try:
        return domain.encode("idna").decode("ascii")
    except UnicodeError:
        return "redrive.invalid"


def _number_boundaries(message: EmailMessage, token: str) -> None:
    """A boundary must not occur in a part: the token is not in what a payload says before it was enqueued."""
    multiparts = (part for part in message.walk() if part.get_content_maintype() == "multipart")
    for number, part in enumerate(multiparts):
        part.set_boundary(f"=_{token}_{number}")


def _flat(message: EmailMessage, *, utf8: bool) -> bytes:
    out = BytesIO()
    BytesGenerator(out, policy=_SEVEN_BIT_UTF8 if utf8 else _SEVEN_BIT).flatten(message)
    return out.getvalue()
