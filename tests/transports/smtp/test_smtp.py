"""The SMTP transport against a real server: what each failure means, and that a mail has the same bytes each time."""

from __future__ import annotations

import asyncio
from email import message_from_bytes, policy
from email.message import EmailMessage, Message
from email.utils import make_msgid
from typing import Any

import pytest

import redrive
from redrive.answers import Answer
from redrive.kit.proof.smtp_server import Act, Fault, SmtpServer, serving
from redrive.ports import NotBegun
from redrive.testing import make_attempt
from redrive.transports.smtp import SmtpTransport
from tests.support.messages import SOME_ID, START

pytestmark = pytest.mark.req("G-13")

PAYLOAD = {"to": "ada@example.com", "subject": "Welcome", "text": "Hello Ada.\n.\n..two dots\nBye"}


def transport(server: SmtpServer, **options: Any) -> SmtpTransport:
    given = {"port": server.port, "sender": "shop@example.com", "tls": "none", **options}
    return SmtpTransport("127.0.0.1", **given)


def attempt(payload: Any = PAYLOAD, **changes: Any) -> redrive.Attempt:
    return make_attempt(payload, id=SOME_ID, created_at=START, **changes)


async def answer(server: SmtpServer, payload: Any = PAYLOAD, **options: Any) -> Answer:
    try:
        return await transport(server, **options).send(attempt(payload))
    except Answer as raised:
        return raised


def parsed(server: SmtpServer) -> Any:
    return message_from_bytes(server.mails[-1].body, policy=policy.default)


def content(part: Any) -> str:
    """Without the line ends of the wire."""
    return str(part.get_content()).replace("\r\n", "\n")


async def test_a_mail_arrives_as_it_was_meant_and_the_reply_is_the_reference(server: SmtpServer) -> None:
    id = f"<{SOME_ID}@example.com>"
    assert await answer(server) == redrive.Delivered("250 2.0.0 Ok: queued as 00001", {"message_id": id})
    (mail,) = server.mails
    assert (mail.sender, mail.recipients, mail.encrypted) == ("shop@example.com", ("ada@example.com",), False)
    message = parsed(server)
    assert (message["To"], message["From"], message["Subject"]) == ("ada@example.com", "shop@example.com", "Welcome")
    assert content(message) == PAYLOAD["text"] + "\n"
    assert message["Message-ID"] == id
    assert message["Date"].datetime == START


# Each row: where the server fails, how, and what the message is then. `kept`: mails that the server has taken.
ROWS = {
    "greeting 421": ("GREETING", "421 4.3.2 shutting down", redrive.Retryable, "SMTP_421", 0),
    "greeting 554": ("GREETING", "554 5.7.1 not from you", redrive.Retryable, "SMTP_554", 0),
    "greeting is none": ("GREETING", "hello", redrive.Retryable, "SMTP_SERVER_DOWN", 0),
    "hangs up instead of a greeting": ("GREETING", Act.HANG_UP, redrive.Retryable, "SMTP_SERVER_DOWN", 0),
    "hangs up at EHLO": ("EHLO", Act.HANG_UP, redrive.Retryable, "SMTP_SERVER_DOWN", 0),
    "MAIL 421": ("MAIL", "421 4.3.2 too busy", redrive.Retryable, "SMTP_421", 0),
    "MAIL 451": ("MAIL", "451 4.3.0 try again", redrive.Retryable, "SMTP_451", 0),
    "MAIL 550": ("MAIL", "550 5.7.1 not your address", redrive.Terminal, "SMTP_SENDER_REFUSED", 0),
    "MAIL 552": ("MAIL", "552 5.3.4 too big", redrive.Terminal, "SMTP_TOO_LARGE", 0),
    "MAIL hangs up": ("MAIL", Act.HANG_UP, redrive.Retryable, "SMTP_CONNECTION_LOST", 0),
    "greylisted": ("RCPT", "451 4.7.1 greylisted", redrive.Retryable, "SMTP_451", 0),
    "mailbox busy": ("RCPT", "450 4.2.1 busy", redrive.Retryable, "SMTP_450", 0),
    "recipient unknown": ("RCPT", "550 5.1.1 unknown", redrive.Terminal, "SMTP_RECIPIENT_REFUSED", 0),
    "mailbox full": ("RCPT", "552 5.2.2 full", redrive.Terminal, "SMTP_552", 0),
    "RCPT hangs up": ("RCPT", Act.HANG_UP, redrive.Retryable, "SMTP_CONNECTION_LOST", 0),
    "RCPT says nonsense": ("RCPT", "what?", redrive.Retryable, "SMTP_REPLY_INVALID", 0),
    "DATA 554": ("DATA", "554 5.5.1 no valid recipients", redrive.Terminal, "SMTP_554", 0),
    "DATA hangs up": ("DATA", Act.HANG_UP, redrive.Retryable, "SMTP_CONNECTION_LOST", 0),
    "end 451": ("END", "451 4.3.0 no space", redrive.Retryable, "SMTP_451", 0),
    "end 552": ("END", "552 5.3.4 too big", redrive.Terminal, "SMTP_TOO_LARGE", 0),
    "end 550": ("END", "550 5.7.1 spam", redrive.Terminal, "SMTP_550", 0),
    "end hangs up": ("END", Act.HANG_UP, redrive.Unknown, "SMTP_REPLY_LOST", 0),
    "taken and the reply lost": ("END", Act.LOSE_REPLY, redrive.Unknown, "SMTP_REPLY_LOST", 1),
    "end says nonsense": ("END", "what?", redrive.Unknown, "SMTP_REPLY_INVALID", 0),
    "end says 354": ("END", "354 more", redrive.Unknown, "SMTP_REPLY_INVALID", 0),
}


@pytest.mark.req("G-10")
@pytest.mark.parametrize(("step", "fault", "kind", "code", "kept"), ROWS.values(), ids=ROWS.keys())
async def test_each_failure_has_its_answer(
    server: SmtpServer, step: str, fault: str | Act, kind: type[Answer], code: str, kept: int
) -> None:
    server.faults[step] = Fault(fault)
    found: Any = await answer(server)
    assert (type(found), found.code) == (kind, code)
    assert len(server.mails) == kept
    if isinstance(found, redrive.Retryable):
        assert found.destination_down is (step in ("GREETING", "EHLO"))


async def test_nobody_listening_is_down() -> None:
    async with serving(SmtpServer()) as gone:
        pass
    found = await answer(gone)
    assert isinstance(found, redrive.Retryable)
    assert (found.code, found.destination_down) == ("SMTP_SERVER_DOWN", True)
    assert "127.0.0.1" not in found.text


@pytest.mark.parametrize(
    ("step", "kind", "code"),
    [
        ("GREETING", redrive.Retryable, "SMTP_SERVER_DOWN"),
        ("MAIL", redrive.Retryable, "SMTP_REPLY_TIMEOUT"),
        ("RCPT", redrive.Retryable, "SMTP_REPLY_TIMEOUT"),
        ("DATA", redrive.Retryable, "SMTP_REPLY_TIMEOUT"),
    ],
)
async def test_a_server_that_is_silent_before_the_end_is_given_up_without_doubt(
    server: SmtpServer, step: str, kind: type[Answer], code: str
) -> None:
    server.faults[step] = Fault(Act.SILENT)
    found: Any = await answer(server, connect_seconds=0.2, reply_seconds=0.2)
    assert (type(found), found.code) == (kind, code)


async def test_a_connection_that_ends_while_a_large_mail_goes_out_is_retryable(server: SmtpServer) -> None:
    """The server cannot have taken it: the end had not been written."""
    server.faults["CONTENT"] = Fault(Act.HANG_UP)

    def large(_: redrive.Attempt) -> EmailMessage:
        made = EmailMessage()
        made["To"] = "ada@example.com"
        made.set_content("line\n" * 4_000_000)
        return made

    found: Any = await answer(server, mail=large)
    assert (type(found), found.code) == (redrive.Retryable, "SMTP_CONNECTION_LOST")


async def test_a_greylisted_mail_is_taken_the_next_time_with_the_same_bytes(server: SmtpServer) -> None:
    server.faults["RCPT"] = Fault("451 4.7.1 greylisted", times=1)
    assert isinstance(await answer(server), redrive.Retryable)
    assert isinstance(await answer(server), redrive.Delivered)
    assert len(server.mails) == 1


async def test_cut_off_while_it_connects_it_has_not_begun(server: SmtpServer) -> None:
    server.faults["EHLO"] = Fault(Act.SILENT)
    sending = asyncio.create_task(transport(server).send(attempt()))
    await asyncio.wait_for(server.reached.wait(), 10)
    sending.cancel()
    with pytest.raises(NotBegun):
        await sending


# The bytes.


def a_mail_with_parts(message: redrive.Attempt) -> EmailMessage:
    made = EmailMessage()
    made["To"], made["Subject"] = "Ada Löveläce <ada@example.com>", "Grüße – und viele davon " * 8
    made["Message-ID"] = make_msgid()  # another one each time
    made["Date"] = "Mon, 01 Jan 2001 00:00:00 +0000"
    made.set_content("Grüß Gott\n")
    made.add_alternative("<p>Grüß Gott</p>", subtype="html")
    made.add_attachment(bytes(range(256)), maintype="application", subtype="octet-stream", filename="ö.bin")
    return made


async def test_every_attempt_sends_the_same_bytes(server: SmtpServer) -> None:
    sender = transport(server, mail=a_mail_with_parts)
    for number in (1, 2, 3):
        assert isinstance(await sender.send(attempt(number=number)), redrive.Delivered)
    assert len({mail.body for mail in server.mails}) == 1
    message = parsed(server)
    assert message["Message-ID"] == f"<{SOME_ID}@example.com>"
    assert message["Date"].datetime == START
    assert message["Subject"].split() == ("Grüße – und viele davon " * 8).split()
    assert message["To"].addresses[0].display_name == "Ada Löveläce"
    assert [part.get_content_type() for part in message.walk()] == [
        "multipart/mixed",
        "multipart/alternative",
        "text/plain",
        "text/html",
        "application/octet-stream",
    ]
    assert next(iter(message.iter_attachments())).get_content() == bytes(range(256))
    assert server.mails[0].body.isascii()


async def test_another_message_has_another_message_id(server: SmtpServer) -> None:
    await transport(server).send(make_attempt(PAYLOAD))
    await transport(server).send(make_attempt(PAYLOAD))
    assert len({message_from_bytes(mail.body)["Message-ID"] for mail in server.mails}) == 2


async def test_the_mail_that_a_function_made_is_left_as_it_was(server: SmtpServer) -> None:
    made = a_mail_with_parts(attempt())
    before = made["Message-ID"]
    assert isinstance(await answer(server, mail=lambda _: made), redrive.Delivered)
    assert made["Message-ID"] == before


async def test_text_and_html_are_alternatives_and_headers_take_any_language(server: SmtpServer) -> None:
    await answer(server, {"to": "ada@example.com", "subject": "日本語", "text": "よ", "html": "<p>よ</p>"})
    message = parsed(server)
    assert message["Subject"] == "日本語"
    assert content(message.get_body(("html",))) == "<p>よ</p>\n"
    assert content(message.get_body(("plain",))) == "よ\n"


async def test_an_address_that_is_not_ascii_goes_to_a_server_that_takes_it(server: SmtpServer) -> None:
    payload = {**PAYLOAD, "to": "jürgen@bücher.example"}
    assert isinstance(await answer(server, payload), redrive.Delivered)
    assert server.mails[0].recipients == ("jürgen@bücher.example",)
    assert "To: jürgen@bücher.example\r\n".encode() in server.mails[0].body
    assert [command for command in server.commands if "SMTPUTF8" in command]
    server.utf8 = False
    found: Any = await answer(server, payload)
    assert (type(found), found.code) == (redrive.Terminal, "SMTP_UTF8_UNSUPPORTED")


async def test_a_mail_that_is_larger_than_the_server_takes_is_not_sent(server: SmtpServer) -> None:
    server.size = 1000
    assert isinstance(await answer(server), redrive.Delivered)
    found: Any = await answer(server, {**PAYLOAD, "text": "x" * 1000})
    assert (type(found), found.code) == (redrive.Terminal, "SMTP_TOO_LARGE")
    assert len(server.mails) == 1


# Header injection, and recipients.


def with_header(name: str, value: str) -> Any:
    def make(_: redrive.Attempt) -> EmailMessage:
        """As careless code makes it: the old policy takes every text."""
        made = EmailMessage(policy=policy.compat32)
        made["To"] = "ada@example.com"
        made[name] = value
        return made

    return make


def with_added(name: str, value: str) -> Any:
    def make(_: redrive.Attempt) -> EmailMessage:
        made = EmailMessage()
        made["To"] = "ada@example.com"
        made[name] = value
        made.set_content("Hello")
        return made

    return make


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    "payload",
    [
        {**PAYLOAD, "subject": "Hello\r\nBcc: eve@example.com"},
        {**PAYLOAD, "subject": "Hello\nBcc: eve@example.com"},
        {**PAYLOAD, "subject": "Hello\rBcc: eve@example.com"},
        {**PAYLOAD, "to": "ada@example.com\r\nRCPT TO:<eve@example.com>"},
        {**PAYLOAD, "to": "Ada\r\nBcc: eve@example.com <ada@example.com>"},
    ],
)
async def test_a_line_break_in_a_header_is_refused(server: SmtpServer, payload: Any) -> None:
    found: Any = await answer(server, payload)
    assert (type(found), found.code) == (redrive.Terminal, "SMTP_HEADER_INVALID")
    assert server.commands == []


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    "make",
    [
        with_header("Subject", "Hello\r\nBcc: eve@example.com"),
        with_header("To", "eve@example.com"),
        with_added("X-Tag: 1\r\nBcc", "eve@example.com"),
        with_added("X Tag", "1"),
    ],
)
async def test_a_function_cannot_inject_a_header_either(server: SmtpServer, make: Any) -> None:
    found: Any = await answer(server, mail=make)
    assert (type(found), found.code) == (redrive.Terminal, "SMTP_HEADER_INVALID")
    assert server.commands == []


@pytest.mark.req("G-19")
@pytest.mark.parametrize(
    ("to", "code"),
    [
        ("ada@example.com, eve@example.com", "SMTP_RECIPIENTS"),
        ("", "SMTP_RECIPIENTS"),
        ("undisclosed-recipients:;", "SMTP_RECIPIENTS"),
        ("ada", "SMTP_ADDRESS_INVALID"),
        ("<ada@example.com> SIZE=1", "SMTP_ADDRESS_INVALID"),
        ('"a b"@example.com', "SMTP_ADDRESS_INVALID"),
        ("ada@example.com>", "SMTP_ADDRESS_INVALID"),
        (7, "PAYLOAD_INVALID"),
        (["ada@example.com"], "PAYLOAD_INVALID"),
    ],
)
async def test_a_mail_without_exactly_one_good_address_is_not_sent(server: SmtpServer, to: Any, code: str) -> None:
    found: Any = await answer(server, {**PAYLOAD, "to": to})
    assert isinstance(found, redrive.Terminal)
    assert found.code == code or (code == "SMTP_ADDRESS_INVALID" and found.code.startswith("SMTP_"))
    assert server.commands == []


@pytest.mark.parametrize(
    "payload", [None, [], {"subject": "a"}, {"to": "a@b.example", "subject": "a"}, {**PAYLOAD, "html": 1}]
)
async def test_a_payload_that_makes_no_mail_is_refused_by_validate_and_by_send(
    server: SmtpServer, payload: Any
) -> None:
    with pytest.raises(redrive.Terminal) as refused:
        await transport(server).validate(attempt(payload))
    assert refused.value.code == "PAYLOAD_INVALID"
    assert await answer(server, payload) == refused.value


async def test_several_recipients_get_it_all_or_none(server: SmtpServer) -> None:
    payload = {**PAYLOAD, "to": ["ada@example.com", "Bo <bo@example.com>"]}
    server.faults["RCPT"] = Fault("550 5.1.1 unknown", times=1)
    found: Any = await answer(server, payload, many_recipients=True)
    assert (type(found), found.code, server.mails) == (redrive.Terminal, "SMTP_RECIPIENT_REFUSED", [])
    assert isinstance(await answer(server, payload, many_recipients=True), redrive.Delivered)
    assert server.mails[0].recipients == ("ada@example.com", "bo@example.com")


async def test_who_is_in_bcc_gets_it_and_is_not_named(server: SmtpServer) -> None:
    def make(_: redrive.Attempt) -> EmailMessage:
        made = EmailMessage()
        made["To"], made["Bcc"] = "ada@example.com", "bo@example.com"
        made.set_content("Hello")
        return made

    assert isinstance(await answer(server, mail=make, many_recipients=True), redrive.Delivered)
    assert server.mails[0].recipients == ("ada@example.com", "bo@example.com")
    assert b"bo@example.com" not in server.mails[0].body


async def test_a_function_that_fails_is_a_bug_and_nothing_was_sent(server: SmtpServer) -> None:
    def fail(_: redrive.Attempt) -> EmailMessage:
        raise KeyError("ada@example.com")

    found: Any = await answer(server, mail=fail)
    assert (type(found), found.code, found.bug, found.text) == (redrive.Terminal, "UNCLASSIFIED", True, "KeyError")
    found = await answer(server, mail=lambda _: Message())
    assert (type(found), found.bug) == (redrive.Terminal, True)
    assert server.commands == []


@pytest.mark.parametrize(
    "options",
    [
        {"sender": "Shop <shop@example.com>"},
        {"sender": "shop@example.com>\r\nRCPT"},
        {"tls": "maybe"},
        {"username": "shop"},
        {"reply_seconds": 0},
        {"connect_seconds": 601},
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(redrive.InvalidValue):
        SmtpTransport("mail.test", **{"sender": "shop@example.com", **options})
