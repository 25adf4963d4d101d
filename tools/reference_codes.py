"""What the codes mean that Redrive itself gives, for `docs/reference/answers.md`.

A test compares the names with the upper-case words in the sources: a new code without a sentence here fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[1] / "src" / "redrive"
# Where the engine decides on codes of its own; the network's are in a table of theirs.
PLACES: Final = (
    "answers.py",
    "policy.py",
    "consume/consumer.py",
    "consume/event.py",
    "consume/handling.py",
    "relay/dispatching/dispatch.py",
    "relay/dispatching/deadlines.py",
    "relay/dispatching/outcomes.py",
    "relay/dispatching/runner.py",
    "relay/settling/record.py",
    "relay/settling/settle.py",
    "relay/settling/unrecorded.py",
)
_CODE: Final = re.compile(r"[A-Z]+(?:_[A-Z]+)*\Z")
_SQL_CODE: Final = re.compile(r"'([A-Z]{4,}(?:_[A-Z]+)*)'")

CODES: Final = {
    "ABSENT_AFTER_DOUBT": "The lookup found nothing, but the destination is `money` and keeps no token: held.",
    "ABSENT_TOO_EARLY": "The lookup found nothing before `lookup_after_seconds` had passed: asked again then.",
    "ADOPTED_DEAD": "It came from another outbox, which had given it up: whether it had an effect is not known.",
    "BEHIND": "In the log of a worker only: deferred, as an earlier event of its ordering key waits in the engine.",
    "BUDGET_SPENT": "The policy was given fewer attempts than are spent already: parked before anything was sent.",
    "ADVANCE_UNDECLARED": "The handler answered `Advance`, its destination has a lookup and is not declared with"
    " `staged=True`: a lookup would close the message before its last stage. The destination is paused at once.",
    "CANCELLED_IN_DOUBT": "It was cancelled while in doubt, and moves money: held, because it may have been paid.",
    "CANCELLED": "The handler cancelled itself (it raised `CancelledError`): its effect is unknown.",
    "COMPLETE_ROLLED_BACK": "The handler called `complete` and its transaction did not commit: its effect is unknown.",
    "CONSUMER_CONNECTION_LOST": "The connection of a consumer broke while its handler ran: rolled back, tried again.",
    "CONSUMER_FAILED": "The handler of a consumer raised; the text names the exception. Rolled back, tried again.",
    "CONSUMER_TIMEOUT": "The handler of a consumer took longer than `timeout_seconds`: rolled back, tried again.",
    "CRASHED": "It took down its process while it ran alone, as often as `Policy.crashes` allows.",
    "CUT_OFF": "It still ran when a stop had waited for `stop_seconds`: cut off, its effect is unknown.",
    "EVENT_TOO_LARGE": "An event failed in a worker and is too large for the engine: the broker keeps it, and this"
    " message keeps its place in the order. Parked until a worker processes the event, or a person discards this.",
    "EXPIRED_IN_DOUBT": "It expired while in doubt, and moves money: held, because it may have been paid.",
    "FOUND": "Of a validation only: the lookup found it at the destination, so it must not be sent again.",
    "INTERRUPTED": "The relay itself failed around the send: its effect is unknown.",
    "IN_DOUBT": 'It is in doubt and its destination has `in_doubt="hold"`: held before anything was sent.',
    "DESTINATION_OWNED": "It would have advanced into a destination that belongs to a system: parked instead.",
    "DISPATCHING": "In the view `history` only: the claim that is under way.",
    "RETURN_INVALID": "The handler returned neither an answer nor JSON. Its effect has probably happened, so the"
    " destination is paused at once.",
    "FOUND_WITHOUT_OUTCOME": "The lookup found it and did not say how its stage ended: held, as another may follow.",
    "KEPT_ANSWER_INVALID": "The answer that was kept for `record` cannot be read: unrecorded again.",
    "LATE_SUCCESS": "Something says that it was delivered after all: a late answer, or a system's statement. Held.",
    "LEASE_RAN_OUT": "The relay did not renew the lease: it died. Pending again, in doubt, a suspect.",
    "LOOKUP_ANSWER_INVALID": "The lookup returned something that is none of its three answers: asked again.",
    "LOOKUP_CANNOT_TELL": "The lookup said `CannotTell` without a code of its own: asked again.",
    "LOOKUP_FAILED": "The lookup raised: asked again.",
    "LOOKUP_TIMEOUT": "The lookup took longer than `timeout_seconds`: asked again.",
    "MALFORMED_EVENT": "A message of a broker is no CloudEvent; the text names the attribute. Parked, replayable.",
    "MESSAGE_GONE": "The row of the message is gone: a partition of `redrive.message` was dropped by hand. Parked.",
    "ORDER_FAILED": "In the log of a worker only: deferred, because the function `order` of the consumer raised.",
    "PAYLOAD_INVALID": "The payload does not fit the destination's `schema`; the text names the field and the rule.",
    "RECORD_FAILED": "The destination answered and `record` raised: unrecorded, the answer is kept.",
    "RECORD_WAITS": "`record` waited for a lock when its relay stopped: another relay records it, and nothing is sent.",
    "RECORD_TIMEOUT": "The destination answered and `record` took longer than `record_timeout_seconds`: unrecorded.",
    "TIMEOUT": "The send took longer than `timeout_seconds`: cut off, its effect is unknown.",
    "TOKEN_FORGOTTEN": "It is in doubt, and 80 % of `token_ttl_seconds` have passed since the token was first used: too"
    " late to send again, held.",
    "UNCLASSIFIED": "An unclassified exception, or a return value that is no answer: a bug. Parked.",
    "UNDECODABLE": "The row of the message has values that Python cannot read, such as a number of 8,000 digits in its"
    " headers. It was not sent.",
    "UNKNOWN_TYPE": "The consumer does not declare this type of event. Parked, replayable.",
    "VALIDATE_TIMEOUT": "`validate` took longer than `timeout_seconds`: tried again, nothing was sent.",
    "WORKER_DIED": "It took down the child process that ran it alone. Pending again, in doubt, counted as a crash.",
}

# Of the SMTP transport, with the answer that carries them.
SMTP_CODES: Final = {
    "PAYLOAD_INVALID": ("Terminal", "The payload has not the fields of a mail; nothing was sent."),
    "SMTP_ADDRESS_INVALID": ("Terminal", "A recipient is no address; nothing was sent."),
    "SMTP_CONNECTION_LOST": ("Retryable", "The connection ended before the end of the mail was sent."),
    "SMTP_HEADER_INVALID": ("Terminal", "A header has a line break or a bad name (injection); nothing was sent."),
    "SMTP_LOGIN_REFUSED": ("Terminal", "The server refuses the login, wants one, or offers none that is known."),
    "SMTP_RECIPIENTS": ("Terminal", "The mail has no recipient, or several where one is allowed; nothing was sent."),
    "SMTP_RECIPIENT_REFUSED": ("Terminal", "550, 551 or 553: no such mailbox, or not for us."),
    "SMTP_REPLY_INVALID": ("Retryable; Unknown after the end of the mail", "What the server says is no reply."),
    "SMTP_REPLY_LOST": ("Unknown", "The end of the mail was sent, and its reply did not come."),
    "SMTP_REPLY_TIMEOUT": ("Retryable", "No reply in time, before the end of the mail was sent."),
    "SMTP_SENDER_REFUSED": ("Terminal", "550 or 553: this login may not send as this sender."),
    "SMTP_SERVER_DOWN": ("Retryable, destination down", "No connection, or what answers is no mail server."),
    "SMTP_STARTTLS_MISSING": ("Retryable, destination down", "The server does not offer STARTTLS."),
    "SMTP_TOO_LARGE": ("Terminal", "552, or larger than the server announces."),
    "SMTP_UTF8_UNSUPPORTED": ("Terminal", "An address is not ASCII, and the server takes only such."),
    "TLS_REFUSED": ("Retryable, destination down", "TLS failed, such as by a certificate that is not trusted."),
}
SMTP_PLACES: Final = ("transports/smtp/mail.py", "transports/smtp/replies.py")


def smtp_codes_in_sources() -> set[str]:
    """Commands and ASCII words of the protocol are no codes: those have an underscore or begin with `SMTP_`."""
    return {word for place in SMTP_PLACES for word in _words(SOURCE / place) if "_" in word} | _smtp_with_digits()


def _smtp_with_digits() -> set[str]:
    found = [re.findall(r'"(SMTP_[A-Z0-9]+_[A-Z0-9_]+)"', (SOURCE / place).read_text("utf-8")) for place in SMTP_PLACES]
    return {code for codes in found for code in codes}


def codes_in_sources() -> set[str]:
    """Upper-case words among the strings of the places that decide on codes."""
    verbs = [path.read_text(encoding="utf-8") for path in sorted((SOURCE / "store" / "sql" / "verbs").glob("*.sql"))]
    in_sql = {word for text in verbs for word in _SQL_CODE.findall(text)}
    return in_sql | {word for place in PLACES for word in _words(SOURCE / place)}


def _words(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _CODE.match(node.value):
            yield node.value
