"""Rails: where payments go, as HTTP destinations of the engine, with what each offers against paying twice.

A rail that remembers tokens is sent the same payment again; one that can be asked is asked first; one that does neither
gets one attempt, and a payment whose fate is unknown is held for a person (G-13, P-05). A code that is not in the
table, or does not fit its status, is unknown, never a failure (P-03).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

from redrive import (
    Absent,
    App,
    Attempt,
    Backoff,
    Breaker,
    CannotTell,
    Delivered,
    Destination,
    Duty,
    Found,
    Policy,
    Retryable,
    System,
    Terminal,
    Unknown,
)
from redrive.errors import InvalidValue
from redrive.kit.statements import canonical_json
from redrive.kit.transport import Answer, LookupAnswer, Rules, address_of, clean_code, rules_of
from redrive.systems.payments import validation
from redrive.systems.payments.names import AMOUNT_HEADER, Meaning, destination_of, key_of, order_of
from redrive.systems.payments.validation import FORMATS, Instruction, Payment, PaymentRefused
from redrive.transports.http import Egress, HttpTransport
from redrive.transports.http.client import Reply

TIMEOUT_SECONDS: Final = 30.0
SETTLEMENT_LAG_SECONDS: Final = 60.0
# Code of the rail -> what it means for the payment, and with which statuses it may come.
CODES: Final[Mapping[str, tuple[Meaning, frozenset[int]]]] = {
    "ACCEPTED": ("delivered", frozenset({200, 201})),
    "DUPLICATE": ("delivered", frozenset({200})),
    "IN_PROGRESS": ("unknown", frozenset({202, 409})),
    "INSUFFICIENT_FUNDS": ("terminal", frozenset({402})),
    "ACCOUNT_CLOSED": ("terminal", frozenset({422})),
    "LIMIT_EXCEEDED": ("terminal", frozenset({422})),
    "INVALID_DESTINATION": ("terminal", frozenset({422})),
    "TOKEN_REUSED": ("unknown", frozenset({422})),  # the rail has done something else under our token
    "THROTTLED": ("retryable", frozenset({429})),
    "UNAVAILABLE": ("retryable", frozenset({503})),
    "INTERNAL": ("unknown", frozenset({500})),
}
ANY_STATUS: Final = frozenset(range(200, 600))
# Answers that say the rail is down for all; with connections that fail they open its breaker.
DOWN_CODES: Final = frozenset({"UNAVAILABLE", "INTERNAL"})
SIMULATED: Final = Egress(allow=["127.0.0.0/8"], schemes=frozenset({"http"}))  # for rails of this machine
POLICY: Final = Policy(backoff=Backoff(initial_seconds=5, multiplier=2, max_seconds=1800, jitter=0.2))


# Fields of a rail that are options of its rules and of its destination.
_RULES: Final = (
    *("policy", "can_look_up", "timeout_seconds", "lookup_after_seconds", "lookups_are_immediate"),
    *("settlement_lag_seconds", "absent_is_final", "token_ttl_seconds"),
)
_OPTIONS: Final = ("concurrency", "global_concurrency", "rate", "breaker", "timeout_seconds")


@dataclass(frozen=True, kw_only=True)
class Rail:
    """One rail, and what it promises.

    url: of its API, to which `/payments` is added. token_ttl_seconds: how long it remembers a token, as it says itself;
    None = it does not, or does not say. account: under which it is used, where one URL serves several; another URL or
    account is refused while payments are in doubt there. can_look_up: it can be asked by the token.
    settlement_lag_seconds: how long after its request a payment may first show, in a lookup or on the statement; 0 to
    2,592,000 (30 days). lookup_after_seconds: from when its "not found" is believed; None = timeout_seconds +
    settlement_lag_seconds. lookups_are_immediate: a lookup sees a payment at once; only then may that be 0.
    absent_is_final: what it does not find then, it will never carry out; only then is a payment in doubt closed as
    cancelled or expired. has_statement: it lists what it did (`GET {url}/statement`), and the books are compared with
    it. statement_is_exclusive: it lists only what Redrive sent; then an entry that is not known here means that the
    database was restored, and the rail is paused. destination_format: iban, us_account, card_token or wallet_id; None =
    what its name says.
    codes: its own codes and what they mean (delivered, retryable, terminal, unknown), beside the common ones.
    concurrency: payments at a time in one relay; global_concurrency and rate: over all relays.
    """

    rail_type: str
    url: str
    token_ttl_seconds: float | None = None
    can_look_up: bool = False
    lookup_after_seconds: float | None = None
    lookups_are_immediate: bool = False
    settlement_lag_seconds: float = SETTLEMENT_LAG_SECONDS
    absent_is_final: bool = False
    account: str | None = None
    has_statement: bool = False
    statement_is_exclusive: bool = True
    destination_format: str | None = None
    codes: Mapping[str, Meaning] = field(default_factory=dict)
    timeout_seconds: float = TIMEOUT_SECONDS
    concurrency: int = 10
    global_concurrency: int | None = None
    rate: float | None = None
    breaker: Breaker | None = field(default_factory=lambda: Breaker(codes=DOWN_CODES))
    policy: Policy = POLICY
    headers: Mapping[str, str] = field(default_factory=dict)
    egress: Egress = field(default_factory=Egress)

    def __post_init__(self) -> None:
        validation.rail_type_field(self.rail_type)
        if self.destination_format not in (None, *FORMATS):
            raise InvalidValue(
                f"destination_format of rail {self.rail_type!r} is {self.destination_format!r};"
                f" it must be one of {', '.join(FORMATS)}."
            )
        for code, meaning in self.codes.items():
            if meaning not in get_args(Meaning) or clean_code(code) != code:
                raise InvalidValue(
                    f"codes of rail {self.rail_type!r} has {code!r} = {meaning!r}; a code is upper case, and means"
                    f" one of {', '.join(get_args(Meaning))}."
                )

        _ = self.rules  # refuses a lookup_after_seconds that is not safe

    @property
    def rules(self) -> Rules:
        """A definitive no lets the participant's next payment go; what ran out of attempts, or is held, keeps him
        waiting.
        """
        return rules_of(
            self.name,
            **{option: getattr(self, option) for option in _RULES},
            address=address_of(self.url.rstrip("/"), self.account),
            money=True,
            on_dead="continue_on_terminal",
        )

    @property
    def name(self) -> str:
        return destination_of(self.rail_type)

    def destination(self) -> Destination:
        options: dict[str, Any] = {option: getattr(self, option) for option in _OPTIONS}
        return Destination(name=self.name, transport=RailTransport(self), rules=self.rules, **options)


class RailTransport(HttpTransport):
    """Payments over HTTP. The body is made of payload, token and number: the same bytes at every attempt."""

    def __init__(self, rail: Rail) -> None:
        base = rail.url.rstrip("/")
        super().__init__(
            f"{base}/payments",
            headers=rail.headers,
            lookup_url=f"{base}/payments/{{token}}" if rail.can_look_up else None,
            egress=rail.egress,
            connections=rail.concurrency,
        )
        self.rail = rail
        self._codes = {**CODES, **{code: (meaning, ANY_STATUS) for code, meaning in rail.codes.items()}}

    async def validate(self, attempt: Attempt) -> None:
        """P-02 again, before each dispatch."""
        try:
            payment_of(attempt, self.rail.destination_format)
        except PaymentRefused as refused:
            raise Terminal(refused.reason, f"{refused.field}: {refused.rule}") from None

    def content(self, attempt: Attempt) -> tuple[dict[str, str], bytes]:
        payload = {key: value for key, value in attempt.payload.items() if key != "idempotency_key"}
        body = {**payload, "token": attempt.token, "sequence_id": attempt.sequence}
        return {"Content-Type": "application/json"}, canonical_json(body)

    def answer(self, reply: Reply) -> Answer:
        said = reply.document()
        code = said.get("code")
        if not isinstance(code, str):
            return Unknown(f"HTTP_{reply.status}", "The rail answered without a code.")
        meaning, statuses = self._codes.get(code, ("unknown", ANY_STATUS))
        code = clean_code(code)
        text = f"Rail {reply.status} {code}"
        if reply.status not in statuses:
            return Unknown("STATUS_AND_CODE_DIFFER", f"{text}: the status does not fit the code.")
        match meaning:
            case "delivered":
                return Delivered(_reference(said), {"rail_code": code})
            case "retryable":
                return Retryable(code, text, retry_after=reply.headers.get("Retry-After"))
            case "terminal":
                return Terminal(code, text)
        return Unknown(code, text)

    def found(self, reply: Reply, attempt: Attempt) -> LookupAnswer:
        """There, if the rail has carried out this payment with this amount. Not there, if it never heard of it or has
        refused it. Everything else is no answer.
        """
        said = reply.document()
        code = said.get("code")
        if reply.status == 404 and code == "NOT_FOUND":
            return Absent()
        known = self._codes.get(code) if isinstance(code, str) and reply.status == 200 else None
        if known is not None and known[0] == "terminal":
            return Absent()
        if known is None or known[0] != "delivered":
            code = clean_code(code) if isinstance(code, str) else f"HTTP_{reply.status}"
            return CannotTell(code, f"Lookup {reply.status} {code}")
        if not _is_same(said, attempt.payload):
            return CannotTell("LOOKUP_DIFFERS", "Lookup: the rail has another amount or currency under our token.")
        return Found(_reference(said), {"rail_code": clean_code(code), "by": "lookup"})


def payment_of(attempt: Attempt, destination_format: str | None = None) -> Payment:
    """The payment of a message, checked anew: its fields, and that they are those it was submitted with."""
    given = attempt.payload
    if not isinstance(given, dict):
        raise PaymentRefused(
            "PAYLOAD_INVALID", "payload", None, "it must be an object.", said=f"a {type(given).__name__}"
        )
    payment = validation.checked(Instruction.read({**given, "tenant": attempt.tenant}))
    if payment.payload != given:
        raise PaymentRefused(
            "PAYLOAD_INVALID", "payload", None, "it must be in the form in which it is submitted.", said="not"
        )
    validation.require_format(payment.destination, destination_format)
    _require(attempt.destination == destination_of(payment.rail_type), "rail_type", payment.rail_type)
    _require(attempt.order_by == order_of(payment.participant_id), "participant_id", payment.participant_id)
    _require(
        attempt.key == key_of(payment.instruction_id, payment.idempotency_key), "instruction_id", payment.instruction_id
    )
    _require(attempt.headers.get(AMOUNT_HEADER) == payment.amount_text, "amount", payment.amount_text)
    _require(attempt.sequence is not None, "sequence_id", None)
    return payment


def _require(is_same: bool, field: str, value: object) -> None:
    """An edit may change where it goes, not its participant or its number."""
    if not is_same:
        raise PaymentRefused("SEQUENCE_TAMPERED", field, value, "it must be what the payment was submitted with.")


def with_rails(
    rails: Iterable[Rail],
    *,
    duties: Sequence[Duty] = (),
    reconcile_every_seconds: float = 300.0,
    lag_seconds: float = 60.0,
) -> System:
    """The system with these rails, for `App.include`. A duty compares the books of those that have a statement.

    lag_seconds: how long a rail may take to write down what it has answered; only then is it missing.
    """
    from redrive.systems.payments import system
    from redrive.systems.payments.metrics import METRICS
    from redrive.systems.payments.reconcile import duty

    all_rails = list(rails)
    listing = [rail for rail in all_rails if rail.has_statement]
    comparing = [duty(listing, every_seconds=reconcile_every_seconds, lag_seconds=lag_seconds)] if listing else []
    return replace(
        system,
        destinations=[rail.destination() for rail in all_rails],
        duties=[*system.duties, *comparing, *duties],
        metrics=METRICS,
    )


def rails_of(app: App) -> list[Rail]:
    transports = [destination.transport for destination in app.destinations.values()]
    return [transport.rail for transport in transports if isinstance(transport, RailTransport)]


def _reference(said: Mapping[str, Any]) -> str | None:
    reference = said.get("reference")
    return reference if isinstance(reference, str) and reference else None


def _is_same(said: Mapping[str, Any], payload: Mapping[str, Any]) -> bool:
    """A rail that does not name the amount is believed: the token is ours."""
    return all(said.get(name, payload[name]) == payload[name] for name in ("amount", "currency"))
