"""What may be paid (P-02): exact amounts, known currencies, destinations that can exist. Pure.

`submit` asks before anything is written, a rail again before each dispatch. Every refusal names the field, the value
and the rule.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final, Self

from iso4217 import Currency
from stdnum import iban, luhn
from stdnum.exceptions import ValidationError
from stdnum.us import rtn

from redrive.errors import UsageError
from redrive.kit.statements import canonical_json, shown
from redrive.systems.payments.names import TENANT

AMOUNT_DIGITS_MAX: Final = 15  # before the point
_WIDE: Final = Context(prec=60)  # the caller's may be too narrow to be exact
_PLAIN_DECIMAL: Final = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?\Z")
_RAIL_TYPE: Final = re.compile(r"[a-z][a-z0-9_-]{0,49}\Z")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_LENGTHS: Final = {"tenant": 100, "instruction_id": 200, "idempotency_key": 500, "participant_id": 150}
SHOWN_END: Final = 4  # characters of an account that are shown
# What the database gives, so that a caller cannot.
_GIVEN_BY_US: Final = ("sequence_id", "sequence", "outbox_id", "token")


class PaymentRefused(UsageError):
    """An instruction that is not accepted; nothing was changed. `reason` is its stable name.

    field, value, rule: what is wrong, and what would be right. The value of an account is not in the message.
    """

    code = "PAYMENT_REFUSED"

    def __init__(self, reason: str, field: str, value: object, rule: str, *, said: str | None = None) -> None:
        super().__init__(f"{reason}: {field} is {shown(value) if said is None else said}; {rule}")
        self.reason, self.field, self.value, self.rule = reason, field, value, rule


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One payment that shall be made.

    instruction_id: the application's own name for it, 1 to 200 characters. idempotency_key: of this submission; the
    instruction's id where none is given. amount: a Decimal, a whole number or plain decimal text, never a float.
    destination: by rail {"iban"}, {"routing_number", "account_number"}, {"card_token"} or {"wallet_id"}, each with an
    optional "name" of whom it belongs to.
    """

    instruction_id: str
    participant_id: str
    rail_type: str
    amount: Decimal | int | str
    currency: str
    destination: Mapping[str, str]
    idempotency_key: str = ""
    tenant: str = TENANT

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """From the names of its fields, as in a JSON document; one that is missing or unknown is refused."""
        known = {one.name for one in fields(cls)}
        for name in given:
            if name in _GIVEN_BY_US:
                raise PaymentRefused(
                    "SEQUENCE_GIVEN", name, given[name], "it is given by the database, never by a caller."
                )
            if name not in known:
                raise PaymentRefused("FIELD_UNKNOWN", name, given[name], f"known are: {', '.join(sorted(known))}.")
        for one in fields(cls):
            if one.default is MISSING and one.name not in given:
                raise PaymentRefused("FIELD_MISSING", one.name, None, "it must be given.", said="missing")
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class Payment:
    """A checked instruction, in the one form in which it is kept, compared and sent."""

    tenant: str
    instruction_id: str
    idempotency_key: str
    participant_id: str
    rail_type: str
    amount: Decimal
    currency: str
    destination: dict[str, str]

    @property
    def payload(self) -> dict[str, Any]:
        values = {**vars(self), "amount": str(self.amount)}
        del values["tenant"]
        return values

    @property
    def stored(self) -> tuple[bytes, str, bytes]:
        """As the verbs take it: the destination's hash, what is shown of it, the payload."""
        hashed = hashlib.sha256(canonical_json(self.destination)).digest()
        return hashed, canonical_json(self.destination_shown).decode(), canonical_json(self.payload)

    @property
    def amount_text(self) -> str:
        return f"{self.amount} {self.currency}"

    @property
    def destination_shown(self) -> dict[str, str]:
        return {name: value if name == "name" else hidden(value) for name, value in self.destination.items()}


def checked(instruction: Instruction) -> Payment:
    tenant = text_field("tenant", instruction.tenant)
    instruction_id = text_field("instruction_id", instruction.instruction_id)
    currency = _currency(instruction.currency)
    rail_type = rail_type_field(instruction.rail_type)
    if currency.code != _CURRENCY_OF_RAIL.get(rail_type, currency.code):
        rule = f"{rail_type} pays in {_CURRENCY_OF_RAIL[rail_type]} only."
        raise PaymentRefused("CURRENCY_UNKNOWN", "currency", instruction.currency, rule)
    return Payment(
        tenant=tenant,
        instruction_id=instruction_id,
        idempotency_key=text_field("idempotency_key", instruction.idempotency_key or instruction_id),
        participant_id=text_field("participant_id", instruction.participant_id),
        rail_type=rail_type,
        amount=exact_amount(instruction.amount, currency),
        currency=currency.code,
        destination=_destination(instruction.destination, _FORMAT_OF_RAIL.get(rail_type)),
    )


def text_field(name: str, value: object) -> str:
    longest = _LENGTHS[name]
    if not isinstance(value, str) or not 1 <= len(value) <= longest or _CONTROL.search(value):
        rule = f"it must be text of 1 to {longest} characters, none of them a control character."
        raise PaymentRefused("FIELD_INVALID", name, value, rule)
    return value


def rail_type_field(value: object) -> str:
    if not isinstance(value, str) or not _RAIL_TYPE.match(value):
        rule = "it must be 1 to 50 small letters, digits, _ or -, a letter first."
        raise PaymentRefused("RAIL_INVALID", "rail_type", value, rule)
    return value


def _currency(value: object) -> Any:
    """Its entry in ISO 4217. Those without minor units (gold, test codes) cannot be paid in."""
    try:
        found = Currency(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or found.code != value:
        raise PaymentRefused("CURRENCY_UNKNOWN", "currency", value, "it must be a code of ISO 4217, such as EUR.")
    if found.exponent is None:
        raise PaymentRefused(
            "CURRENCY_UNKNOWN", "currency", value, "it is a code of ISO 4217 that no amount can be paid in."
        )
    return found


def exact_amount(value: object, currency: Any) -> Decimal:
    """With the currency's decimals; nothing is ever rounded."""
    amount = _decimal(value)
    if amount <= 0:
        raise PaymentRefused("AMOUNT_INVALID", "amount", value, "it must be above 0.")
    if amount.adjusted() >= AMOUNT_DIGITS_MAX:
        rule = f"it must have at most {AMOUNT_DIGITS_MAX} digits before the point."
        raise PaymentRefused("AMOUNT_INVALID", "amount", value, rule)
    exact = amount.quantize(Decimal(1).scaleb(-currency.exponent), context=_WIDE)
    if exact != amount:
        rule = f"{currency.code} has {currency.exponent} decimals, and an amount is never rounded."
        raise PaymentRefused("AMOUNT_INVALID", "amount", value, rule)
    return exact


def _decimal(value: object) -> Decimal:
    if isinstance(value, Decimal) and value.is_finite():
        return value
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10 ** (2 * AMOUNT_DIGITS_MAX):
        return Decimal(value)
    if isinstance(value, str) and _PLAIN_DECIMAL.match(value):
        try:
            return Decimal(value)
        except InvalidOperation:
            pass
    rule = "it must be a Decimal, a whole number or plain decimal text such as '12.34'; a float is never exact."
    raise PaymentRefused("AMOUNT_INVALID", "amount", value, rule)


# destinations: which fields, and what each must be


def _iban(value: str) -> str:
    return str(iban.validate(value))


def _routing_number(value: str) -> str:
    return str(rtn.validate(value))


def _matching(pattern: str) -> Callable[[str], str]:
    compiled = re.compile(rf"(?:{pattern})\Z")

    def check(value: str) -> str:
        if not compiled.match(value):
            raise ValidationError
        return value

    return check


def _card_token(value: str) -> str:
    """A token of the card's vault; a card number itself is refused."""
    digits = re.sub(r"[ -]", "", value)
    if digits.isdigit() and 12 <= len(digits) <= 19 and luhn.is_valid(digits):
        raise ValidationError
    return _matching(r"[A-Za-z0-9][A-Za-z0-9_-]{7,63}")(value)


_CHECKS: Final[dict[str, tuple[Callable[[str], str], str]]] = {
    "iban": (_iban, "it must be an IBAN with right check digits, of a length that its country has."),
    "routing_number": (_routing_number, "it must be a US routing number: nine digits with a right checksum."),
    "account_number": (_matching("[0-9]{4,17}"), "it must be 4 to 17 digits."),
    "card_token": (_card_token, "it must be a token of 8 to 64 letters, digits, _ or -, never a card's own number."),
    "wallet_id": (
        _matching(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{2,127}"),
        "it must be 3 to 128 letters, digits or . _ : @ + -.",
    ),
    "name": (
        _matching(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,140}"),
        "it must be 1 to 140 characters, none a control character.",
    ),
}
FORMATS: Final[dict[str, frozenset[str]]] = {
    "iban": frozenset({"iban"}),
    "us_account": frozenset({"routing_number", "account_number"}),
    "card_token": frozenset({"card_token"}),
    "wallet_id": frozenset({"wallet_id"}),
}
# Rails whose destinations look the same everywhere; another rail says which it wants (`Rail.destination_format`).
_FORMAT_OF_RAIL: Final = {
    "sepa": "iban",
    "sepa_instant": "iban",
    "ach": "us_account",
    "fedwire": "us_account",
    "card": "card_token",
    "wallet": "wallet_id",
}
# Rails that pay in one currency, whatever is asked for.
_CURRENCY_OF_RAIL: Final = {"sepa": "EUR", "sepa_instant": "EUR"}


def _destination(value: object, wanted: str | None) -> dict[str, str]:
    if not isinstance(value, Mapping):
        rule = 'it must be an object, such as {"iban": …}.'
        raise PaymentRefused("DESTINATION_INVALID", "destination", value, rule, said=f"a {type(value).__name__}")
    require_format(value, wanted)
    return {str(name): _destination_field(str(name), value[name]) for name in sorted(value)}


def require_format(value: Mapping[str, Any], wanted: str | None) -> None:
    """It has the fields of the format, or of any where none is wanted; a name may be added."""
    given = frozenset(value) - {"name"}
    formats = [FORMATS[wanted]] if wanted is not None else list(FORMATS.values())
    if given not in formats:
        choices = " or ".join(" and ".join(sorted(one, reverse=True)) for one in formats)
        raise PaymentRefused(
            "DESTINATION_INVALID",
            "destination",
            dict(value),
            f"it must have {choices}.",
            said=f"one of {sorted(given)}",
        )


def _destination_field(name: str, value: object) -> str:
    check, rule = _CHECKS[name]
    try:
        if isinstance(value, str):
            return check(value)
    except ValidationError:
        pass
    said = hidden(value) if isinstance(value, str) else f"a {type(value).__name__}"
    raise PaymentRefused("DESTINATION_INVALID", f"destination.{name}", value, rule, said=said) from None


def hidden(value: str) -> str:
    """The end of it, where enough is left to hide."""
    return f"…{value[-SHOWN_END:]}" if len(value) > 2 * SHOWN_END else "…"
