"""What a reply of a mail server means: 4xx is Retryable, 5xx is Terminal, by the command that it answers (RFC 5321).

A reply is the server's own word that it has not taken the mail. `SMTP_` and the number is the code, but for those that
have a name here.
"""

import re
from typing import Final

from redrive import redact
from redrive.answers import Answer, Delivered, Retryable, Terminal, Unknown

LOGIN_REFUSED: Final = "SMTP_LOGIN_REFUSED"  # 535 and other 5xx: the credentials are wrong
SENDER_REFUSED: Final = "SMTP_SENDER_REFUSED"  # this login may not send as this sender
RECIPIENT_REFUSED: Final = "SMTP_RECIPIENT_REFUSED"  # 550, 551, 553: there is no such mailbox, or not for us
TOO_LARGE: Final = "SMTP_TOO_LARGE"  # 552, or larger than the server has announced
UTF8_UNSUPPORTED: Final = "SMTP_UTF8_UNSUPPORTED"  # an address is not ASCII, and the server takes only those
STARTTLS_MISSING: Final = "SMTP_STARTTLS_MISSING"  # the server does not offer what the destination asks for
TLS_REFUSED: Final = "TLS_REFUSED"
SERVER_DOWN: Final = "SMTP_SERVER_DOWN"  # no connection, or a greeting that is none
CONNECTION_LOST: Final = "SMTP_CONNECTION_LOST"  # before the end of the mail was sent: the server has not taken it
REPLY_TIMEOUT: Final = "SMTP_REPLY_TIMEOUT"  # likewise
REPLY_LOST: Final = "SMTP_REPLY_LOST"  # the end of the mail was sent, and its reply did not come
REPLY_INVALID: Final = "SMTP_REPLY_INVALID"  # it came, and is no reply

REFERENCE_MAX: Final = 500
_ADDRESS: Final = re.compile(r"[^\s<>]*@[^\s<>]*")  # personal data: a reference is shown to viewers
_NAMED: Final = {
    ("AUTH", 530): LOGIN_REFUSED,
    ("AUTH", 534): LOGIN_REFUSED,
    ("AUTH", 535): LOGIN_REFUSED,
    ("AUTH", 538): LOGIN_REFUSED,
    ("MAIL", 530): LOGIN_REFUSED,
    ("MAIL", 550): SENDER_REFUSED,
    ("MAIL", 553): SENDER_REFUSED,
    ("MAIL", 552): TOO_LARGE,
    ("RCPT", 550): RECIPIENT_REFUSED,
    ("RCPT", 551): RECIPIENT_REFUSED,
    ("RCPT", 553): RECIPIENT_REFUSED,
    ("DATA", 552): TOO_LARGE,
}


def refused(command: str, code: int, text: str) -> Answer:
    """Of a reply that is no success. GREETING: before anything was sent."""
    said = f"{command}: {code} {text}"
    if 400 <= code <= 499:
        return Retryable(f"SMTP_{code}", said, destination_down=command == "GREETING")
    if 500 <= code <= 599:
        if command == "GREETING":  # 554: no mail from us now; no message is at fault
            return Retryable(f"SMTP_{code}", said, destination_down=True)
        return Terminal(_NAMED.get((command, code), f"SMTP_{code}"), said)
    return Retryable(REPLY_INVALID, said)


def ended(code: int, text: str) -> Answer:
    """The reply to the end of the mail. What is neither success nor refusal says nothing about the mail."""
    if 200 <= code <= 299:
        said = redact.storable(f"{code} {text}", limit=REFERENCE_MAX)
        return Delivered(reference=_ADDRESS.sub(redact.HIDDEN, said))
    if 400 <= code <= 599:
        return refused("DATA", code, text)
    return Unknown(REPLY_INVALID, f"DATA: {code}")


def down(why: str, code: str = SERVER_DOWN) -> Retryable:
    """Nothing of the mail went out."""
    return Retryable(code, why, destination_down=True)
