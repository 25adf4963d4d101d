"""Where notices go: mail by SMTP, and the merchant's webhook. Destinations of the engine, with its delivery guarantees.

A mail server cannot be asked, so a mail whose fate is unknown is held for a person; a webhook gets the same token at
every attempt, and is sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from redrive import Attempt, Backoff, Breaker, Destination, Policy, Terminal
from redrive.kit.statements import canonical_json
from redrive.kit.transport import rules_of
from redrive.systems.evidence.names import NOTICE_MAIL, NOTICE_WEBHOOK
from redrive.transports.http import Egress, HttpTransport, Signer

if TYPE_CHECKING:
    from redrive.transports.smtp import SmtpTransport

TIMEOUT_SECONDS: Final = 30.0
CONCURRENCY: Final = 5
POLICY: Final = Policy(attempts=10, backoff=Backoff(initial_seconds=10, multiplier=2, max_seconds=3600))


def mail_destination(
    transport: SmtpTransport, *, in_doubt: Literal["hold", "resend"] = "hold", policy: Policy = POLICY
) -> Destination:
    """in_doubt: "resend" may send a notice twice."""
    rules = rules_of(NOTICE_MAIL, can_look_up=False, timeout_seconds=TIMEOUT_SECONDS, policy=policy, in_doubt=in_doubt)
    return _destination(NOTICE_MAIL, transport, rules)


def webhook_destination(
    *, egress: Egress | None = None, signer: Signer | None = None, policy: Policy = POLICY
) -> Destination:
    """egress: where merchants' webhooks may be; None = public addresses over HTTPS."""
    rules = rules_of(
        NOTICE_WEBHOOK, can_look_up=False, timeout_seconds=TIMEOUT_SECONDS, policy=policy, in_doubt="resend"
    )
    return _destination(NOTICE_WEBHOOK, NoticeWebhook(_url_of, egress=egress, signer=signer), rules)


class NoticeWebhook(HttpTransport):
    """Sends the summary of a notice to the URL of its upload; `Idempotency-Key` is the same at every attempt."""

    def content(self, attempt: Attempt) -> tuple[dict[str, str], bytes]:
        return {"Content-Type": "application/json"}, canonical_json(attempt.payload["notice"])


def _url_of(attempt: Attempt) -> str:
    payload = attempt.payload
    url = payload.get("url") if isinstance(payload, dict) else None
    if not isinstance(url, str) or "notice" not in payload:
        raise Terminal("PAYLOAD_INVALID", "The message of a notice does not have its fields.")
    return url


def _destination(name: str, transport: Any, rules: Any) -> Destination:
    return Destination(
        name=name,
        transport=transport,
        rules=rules,
        concurrency=CONCURRENCY,
        timeout_seconds=TIMEOUT_SECONDS,
        breaker=Breaker(),
    )
