"""Providers: who notifies a recipient. One destination of the engine each, `reviews.notify.NAME`.

`HttpProvider` remembers tokens and can be asked: a notification whose fate is unknown is looked up, and sent again only
once the provider says that it does not have it. `SmtpProvider` cannot be asked: what is in doubt is held for a
person, or sent again where that is chosen.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from email.message import EmailMessage
from typing import Any, Final, Literal

import aiohttp

from redrive import Absent, App, Attempt, Breaker, CannotTell, Delivered, Destination, Found, Policy, Unknown
from redrive.errors import InvalidValue
from redrive.kit.statements import canonical_json
from redrive.kit.transport import Answer, LookupAnswer, Rules, clean_code, rules_of
from redrive.systems.reviews.delivery import DeliveryTransport, Sender
from redrive.systems.reviews.names import destination_of
from redrive.systems.reviews.recording import record_notification
from redrive.systems.reviews.request import ReviewRefused, check_address
from redrive.systems.reviews.taxonomy import POLICY, of_status, retryable, terminal
from redrive.transports.http import Egress, EgressRefused, HttpTransport
from redrive.transports.http.client import Client, Reply, Request

TIMEOUT_SECONDS: Final = 30.0
ID_MAX: Final = 500
TEXTS: Final = ("changelist_id", "recipient", "subject", "text", "html")
# The request may have been carried out all the same: the category stays `network`, and the provider is asked.
LOST_STATUSES: Final = frozenset({408, 502, 504})
# What a provider says in `code`, before its status is looked at.
CODES: Final[Mapping[str, str]] = {
    "rate_limit_exceeded": "RATE_LIMITED",
    "internal_error": "UPSTREAM_INTERNAL",
    "conflict": "CONFLICT",
    "invalid_recipient": "RECIPIENT_INVALID",
    "moderation_block": "CONTENT_REJECTED",
    "policy_denied": "CONTENT_REJECTED",
    "channel_deleted": "CHANNEL_GONE",
}
_RETRYABLE: Final = frozenset({"RATE_LIMITED", "UPSTREAM_INTERNAL", "CONFLICT"})


@dataclass(frozen=True, kw_only=True)
class HttpProvider:
    """A service that sends mail for us: `POST {url}/messages` with the token, `GET {url}/messages/{token}`.

    name: 1 to 63 characters. headers: sent with each request; secrets among them are named by `headers_env` in a file.
    lookup_after_seconds, token_ttl_seconds: how long after a send its "not found" is not believed yet, and is not
    believed any more, because it has forgotten the token.
    """

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    token_ttl_seconds: float = 86_400.0
    lookup_after_seconds: float = 0.0
    timeout_seconds: float = TIMEOUT_SECONDS
    concurrency: int = 10
    rate: float | None = None
    policy: Policy = POLICY
    egress: Egress = field(default_factory=Egress)

    on_replay = "idempotent: the provider is asked first where it is in doubt, and remembers the token"
    can_look_up = True

    def transport(self) -> ProviderTransport:
        return ProviderTransport(self, _HttpSender(self))

    def destination(self) -> Destination:
        rules = rules_of(
            destination_of(self.name),
            can_look_up=True,
            timeout_seconds=self.timeout_seconds,
            policy=self.policy,
            in_doubt="lookup",
            lookup_after_seconds=self.lookup_after_seconds,
            token_ttl_seconds=self.token_ttl_seconds,
        )
        return _destination(self, self.transport(), rules)


@dataclass(frozen=True, kw_only=True)
class SmtpProvider:
    """A mail server. in_doubt: what follows a mail that may have been accepted: "hold" for a person, or "resend", which
    may send it twice. tls, username, password: as `SmtpTransport` takes them.
    """

    name: str
    host: str
    port: int = 587
    sender: str
    username: str | None = None
    password: str | None = None
    tls: Literal["starttls", "implicit", "none"] = "starttls"
    in_doubt: Literal["hold", "resend"] = "hold"
    timeout_seconds: float = TIMEOUT_SECONDS
    concurrency: int = 5
    rate: float | None = None
    policy: Policy = POLICY

    can_look_up = False

    def __post_init__(self) -> None:
        if self.in_doubt not in ("hold", "resend"):
            raise InvalidValue(
                f'in_doubt of provider {self.name!r} is {self.in_doubt!r}; it must be "hold" or "resend".'
            )
        try:
            check_address(self.sender)
        except ReviewRefused:
            raise InvalidValue(
                f"sender of provider {self.name!r} is {self.sender!r}; it must be a mail address."
            ) from None

    @property
    def on_replay(self) -> str:
        if self.in_doubt == "hold":
            return (
                "safe while it is dead: the server refused it; what may have been sent is held, and cannot "
                "be asked about"
            )
        return "may be a second mail: the server cannot be asked, and resend is chosen"

    def transport(self) -> ProviderTransport:
        return ProviderTransport(self, smtp_sender(self))

    def destination(self) -> Destination:
        rules = rules_of(
            destination_of(self.name),
            can_look_up=False,
            timeout_seconds=self.timeout_seconds,
            policy=self.policy,
            in_doubt=self.in_doubt,
        )
        return _destination(self, self.transport(), rules)


Provider = HttpProvider | SmtpProvider


class ProviderTransport(DeliveryTransport):
    """A `DeliveryTransport` that knows its provider."""

    def __init__(self, provider: Provider, sender: Sender) -> None:
        super().__init__(sender, attempts=provider.policy.attempts)
        self.provider = provider


def _destination(provider: Provider, transport: ProviderTransport, rules: Rules) -> Destination:
    return Destination(
        name=destination_of(provider.name),
        transport=transport,
        rules=rules,
        concurrency=provider.concurrency,
        timeout_seconds=provider.timeout_seconds,
        rate=provider.rate,
        breaker=Breaker(),
        record=record_notification,
    )


def check_payload(payload: Any) -> Mapping[str, Any]:
    """Before each send: a person may have edited it."""
    is_whole = isinstance(payload, dict) and all(isinstance(payload.get(name), str) for name in TEXTS)
    if not is_whole:
        raise terminal("PAYLOAD_INVALID", "The notification does not have its fields.")
    try:
        check_address(payload["recipient"])
    except ReviewRefused:
        raise terminal("RECIPIENT_INVALID", "The recipient is no mail address.") from None
    found: Mapping[str, Any] = payload
    return found


def mail_of(payload: Mapping[str, Any], sender: str) -> EmailMessage:
    """Plain text and HTML. `Auto-Submitted` asks programs that answer for absent people to keep quiet (RFC 3834)."""
    message = EmailMessage()
    message["Auto-Submitted"] = "auto-generated"
    message["From"] = sender
    message["To"] = payload["recipient"]
    message["Subject"] = " ".join(payload["subject"].split())
    message.set_content(payload["text"])
    message.add_alternative(payload["html"], subtype="html")
    return message


# HTTP


class _HttpSender(HttpTransport):
    """The body is made of payload and token: the same bytes at every attempt."""

    def __init__(self, provider: HttpProvider) -> None:
        base = provider.url.rstrip("/")
        super().__init__(
            f"{base}/messages",
            headers=provider.headers,
            lookup_url=f"{base}/messages/{{token}}",
            egress=provider.egress,
            connections=provider.concurrency,
        )
        self._token_ttl_seconds = provider.token_ttl_seconds

    async def validate(self, attempt: Attempt) -> None:
        check_payload(attempt.payload)

    def content(self, attempt: Attempt) -> tuple[dict[str, str], bytes]:
        payload = attempt.payload
        said = {"to": payload["recipient"], **{name: payload[name] for name in ("subject", "text", "html")}}
        return {"Content-Type": "application/json"}, canonical_json({**said, "token": attempt.token})

    def answer(self, reply: Reply) -> Answer:
        return answer_of(reply)

    def found(self, reply: Reply, attempt: Attempt) -> LookupAnswer:
        return believed(found_of(reply), attempt, token_ttl_seconds=self._token_ttl_seconds)


def answer_of(reply: Reply) -> Answer:
    """What a reply to a send means. What it accepted without an id has happened, but cannot be named: it is asked."""
    said = read_reply(reply)
    text = f"The provider answered with status {reply.status}."
    if 200 <= reply.status < 300:
        id = _id_in(said)
        return Unknown("ACCEPTED_WITHOUT_ID", text) if id is None else Delivered(id, {"status": reply.status})
    if reply.status in LOST_STATUSES:
        return Unknown("GATEWAY_LOST", text)
    known = CODES.get(str(said.get("code")))
    retry_after = reply.headers.get("Retry-After")
    if known is None:
        return of_status(reply.status, retry_after, text)
    return retryable(known, text, retry_after=retry_after) if known in _RETRYABLE else terminal(known, text)


def found_of(reply: Reply) -> LookupAnswer:
    """Its own word for "not there" is needed: a 404 of something in between proves nothing."""
    said = read_reply(reply)
    id = _id_in(said)
    if reply.status == 200 and id is not None:
        return Found(id, {"by": "lookup"})
    if reply.status == 404 and said.get("code") == "not_found":
        return Absent()
    return CannotTell(
        clean_code(f"LOOKUP_{reply.status}"), f"The provider answered a question with status {reply.status}."
    )


def _id_in(said: Mapping[str, Any]) -> str | None:
    """One that can be kept: of printable characters, and not longer than the archive takes."""
    id = said.get("id")
    return id if isinstance(id, str) and 1 <= len(id) <= ID_MAX and id.isprintable() else None


def believed(answer: LookupAnswer, attempt: Attempt, *, token_ttl_seconds: float) -> LookupAnswer:
    """A provider that has forgotten the token would say "not there" of anything: then it cannot tell."""
    used_since = attempt.token_used_since or attempt.in_doubt_since
    is_forgotten = used_since is not None and attempt.claimed_at - used_since > timedelta(seconds=token_ttl_seconds)
    return CannotTell("TOKEN_FORGOTTEN") if isinstance(answer, Absent) and is_forgotten else answer


def read_reply(reply: Reply) -> Mapping[str, Any]:
    try:
        said = json.loads(reply.body) if reply.is_whole else {}
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


class Records:
    """Asks a provider for its records outside of an attempt: for reconciliation. in_vain: so many of the last questions
    had no answer.
    """

    def __init__(self, provider: HttpProvider) -> None:
        self._base = f"{provider.url.rstrip('/')}/messages"
        self._headers = dict(provider.headers)
        self._timeout_seconds = provider.timeout_seconds
        self._client = Client(provider.egress, connections=provider.concurrency, connect_seconds=5.0)
        self.in_vain = 0

    async def ask(self, token: str) -> LookupAnswer:
        """A provider that does not answer in the time of an attempt cannot tell; it must not hold up the duty."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answer = found_of(
                    await self._client.ask(Request("GET", f"{self._base}/{token}", headers=self._headers))
                )
        except (aiohttp.ClientError, EgressRefused, OSError):  # TimeoutError is an OSError
            answer = CannotTell("NETWORK_TIMEOUT")
        self.in_vain = self.in_vain + 1 if isinstance(answer, CannotTell) else 0
        return answer

    async def aclose(self) -> None:
        await self._client.aclose()


# SMTP


def smtp_sender(provider: SmtpProvider) -> Sender:
    """Its accepted reply is kept as the evidence of the delivery (R-12)."""
    from redrive.transports.smtp import SmtpTransport  # its library is needed only by those who send over SMTP

    return SmtpTransport(
        provider.host,
        port=provider.port,
        sender=provider.sender,
        tls=provider.tls,
        username=provider.username,
        password=provider.password,
        mail=lambda attempt: mail_of(check_payload(attempt.payload), provider.sender),
    )


def providers_of(app: App) -> list[Provider]:
    transports = [destination.transport for destination in app.destinations.values()]
    return [one.provider for one in transports if isinstance(one, ProviderTransport)]
