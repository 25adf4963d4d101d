"""Rails: what is sent, what each answer means, and that no payment is made twice whatever is lost (P-03, P-05)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import redrive
from redrive.answers import Absent, Answer, CannotTell, Delivered, Found, LookupAnswer, Retryable, Terminal, Unknown
from redrive.errors import InvalidValue, SettingsError
from redrive.message import MessageId, token
from redrive.operate.toml_destinations import app_from_file
from redrive.policy import Backoff, Policy
from redrive.relay.build import declared
from redrive.settings import Settings
from redrive.systems.payments import Rail
from redrive.systems.payments.names import key_of
from redrive.systems.payments.rails import CODES, RailTransport
from redrive.systems.payments.validation import checked
from redrive.transports.http.client import Reply
from tests.support import messages as m
from tests.systems.payments.conftest import instruction
from tests.systems.payments.scripted import ScriptedRail, desk
from tests.transports.servers import HERE

GATEWAYS = (408, 500, 502, 503, 504, 599)
UNFIT = "the status does not fit the code."
MADE = {"code": "ACCEPTED", "reference": "r"}
FOUND = Found("r", {"rail_code": "ACCEPTED", "by": "lookup"})
URL = "http://127.0.0.1:1"
TWO_ATTEMPTS = Policy(attempts=2, backoff=Backoff(initial_seconds=1, max_seconds=1, jitter="none"))


def _rail(**options: Any) -> Rail:
    return Rail(rail_type="sepa", url=URL, egress=HERE, **{"can_look_up": True, **options})


def _reply(status: int, said: Any, *, whole: bool = True, **headers: str) -> Reply:
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    return Reply(status, {name.replace("_", "-"): value for name, value in headers.items()}, body, whole)


# what an answer means


@pytest.mark.req("P-03")
@pytest.mark.parametrize(
    ("status", "said", "meaning"),
    [
        (201, {"code": "ACCEPTED", "reference": "r"}, Delivered("r", {"rail_code": "ACCEPTED"})),
        (200, {"code": "DUPLICATE", "reference": "r"}, Delivered("r", {"rail_code": "DUPLICATE"})),
        (202, {"code": "IN_PROGRESS"}, Unknown("IN_PROGRESS", "Rail 202 IN_PROGRESS")),
        (409, {"code": "IN_PROGRESS"}, Unknown("IN_PROGRESS", "Rail 409 IN_PROGRESS")),
        (402, {"code": "INSUFFICIENT_FUNDS"}, Terminal("INSUFFICIENT_FUNDS", "Rail 402 INSUFFICIENT_FUNDS")),
        (422, {"code": "ACCOUNT_CLOSED"}, Terminal("ACCOUNT_CLOSED", "Rail 422 ACCOUNT_CLOSED")),
        (422, {"code": "LIMIT_EXCEEDED"}, Terminal("LIMIT_EXCEEDED", "Rail 422 LIMIT_EXCEEDED")),
        (422, {"code": "INVALID_DESTINATION"}, Terminal("INVALID_DESTINATION", "Rail 422 INVALID_DESTINATION")),
        (422, {"code": "TOKEN_REUSED"}, Unknown("TOKEN_REUSED", "Rail 422 TOKEN_REUSED")),
        (429, {"code": "THROTTLED"}, Retryable("THROTTLED", "Rail 429 THROTTLED", retry_after="7")),
        (503, {"code": "UNAVAILABLE"}, Retryable("UNAVAILABLE", "Rail 503 UNAVAILABLE", retry_after="7")),
        (500, {"code": "INTERNAL"}, Unknown("INTERNAL", "Rail 500 INTERNAL")),
        (502, {"code": "UNAVAILABLE"}, Unknown("STATUS_AND_CODE_DIFFER", f"Rail 502 UNAVAILABLE: {UNFIT}")),
        *((status, b"", Unknown(f"HTTP_{status}", "The rail answered without a code.")) for status in GATEWAYS),
        (422, {"code": "MOON_PHASE"}, Unknown("MOON_PHASE", "Rail 422 MOON_PHASE")),
        (500, {"code": "ACCEPTED"}, Unknown("STATUS_AND_CODE_DIFFER", f"Rail 500 ACCEPTED: {UNFIT}")),
        (201, {"code": "ACCOUNT_CLOSED"}, Unknown("STATUS_AND_CODE_DIFFER", f"Rail 201 ACCOUNT_CLOSED: {UNFIT}")),
        (201, b"<html>", Unknown("HTTP_201", "The rail answered without a code.")),
        (402, b"", Unknown("HTTP_402", "The rail answered without a code.")),
        (404, {"error": "no such page"}, Unknown("HTTP_404", "The rail answered without a code.")),
        (422, ["ACCOUNT_CLOSED"], Unknown("HTTP_422", "The rail answered without a code.")),
        (422, {"code": 7}, Unknown("HTTP_422", "The rail answered without a code.")),
    ],
)  # fmt: skip
def test_a_code_means_what_the_table_says_and_anything_else_is_unknown(status: int, said: Any, meaning: Answer) -> None:
    assert RailTransport(_rail()).answer(_reply(status, said, Retry_After="7")) == meaning


@pytest.mark.req("P-03")
def test_a_reply_that_was_cut_short_is_unknown() -> None:
    said = {"code": "ACCOUNT_CLOSED"}
    assert isinstance(RailTransport(_rail()).answer(_reply(422, said, whole=False)), Unknown)


@pytest.mark.req("P-03")
def test_a_rail_has_codes_of_its_own() -> None:
    transport = RailTransport(_rail(codes={"R03": "terminal", "INTERNAL": "retryable"}))
    assert transport.answer(_reply(400, {"code": "R03"})) == Terminal("R03", "Rail 400 R03")
    assert transport.answer(_reply(500, {"code": "INTERNAL"})) == Retryable("INTERNAL", "Rail 500 INTERNAL")
    assert "R03" not in CODES


@pytest.mark.req("P-05")
@pytest.mark.parametrize(
    ("status", "said", "meaning"),
    [
        (200, {**MADE, "amount": "12.34", "currency": "EUR"}, FOUND),
        (200, MADE, FOUND),
        (404, {"code": "NOT_FOUND"}, Absent()),
        (200, {"code": "INSUFFICIENT_FUNDS"}, Absent()),
        (404, {"error": "no such page"}, CannotTell("HTTP_404", "Lookup 404 HTTP_404")),
        (404, b"<html>", CannotTell("HTTP_404", "Lookup 404 HTTP_404")),
        (200, b"{}", CannotTell("HTTP_200", "Lookup 200 HTTP_200")),
        (200, {"code": "IN_PROGRESS"}, CannotTell("IN_PROGRESS", "Lookup 200 IN_PROGRESS")),
        (503, {"code": "UNAVAILABLE"}, CannotTell("UNAVAILABLE", "Lookup 503 UNAVAILABLE")),
        (500, {"code": "ACCEPTED"}, CannotTell("ACCEPTED", "Lookup 500 ACCEPTED")),
    ],
)  # fmt: skip
def test_a_lookup_believes_only_what_the_rail_says_in_so_many_words(
    status: int, said: Any, meaning: LookupAnswer
) -> None:
    assert RailTransport(_rail()).found(_reply(status, said), _attempt()) == meaning


@pytest.mark.req("P-05")
@pytest.mark.parametrize("other", [{"amount": "12.35"}, {"currency": "USD"}, {"amount": 12.34}])
def test_another_amount_under_our_token_is_not_our_payment(other: dict[str, Any]) -> None:
    said = {"code": "ACCEPTED", "reference": "r", "amount": "12.34", "currency": "EUR", **other}
    found = RailTransport(_rail()).found(_reply(200, said), _attempt())
    assert isinstance(found, CannotTell)
    assert found.code == "LOOKUP_DIFFERS"


# what is sent


def _attempt(payload: dict[str, Any] | None = None, **changes: Any) -> redrive.Attempt:
    right = checked(instruction("p"))
    values: dict[str, Any] = {
        "destination": "payments.sepa",
        "body": json.dumps({**right.payload, **(payload or {})}).encode(),
        "key": key_of(right.instruction_id, right.idempotency_key),
        "order_by": "payments/p",
        "sequence": 3,
        "headers": {"payment-amount": "12.34 EUR"},
    }
    return m.attempt(**{**values, **changes})


@pytest.mark.req("P-02")
async def test_what_was_submitted_passes_before_it_is_sent() -> None:
    await RailTransport(_rail()).validate(_attempt())


@pytest.mark.req("P-02")
@pytest.mark.parametrize(
    ("attempt", "code"),
    [
        (_attempt({"amount": "0"}), "AMOUNT_INVALID"),
        (_attempt({"amount": 12.34}), "AMOUNT_INVALID"),
        (_attempt({"currency": "XYZ"}), "CURRENCY_UNKNOWN"),
        (_attempt({"destination": {"iban": "DE75512108001245126198"}}), "DESTINATION_INVALID"),
        (_attempt({"amount": "12.3"}), "PAYLOAD_INVALID"),
        (_attempt({"amount": "99.99"}), "SEQUENCE_TAMPERED"),
        (_attempt({"currency": "USD"}), "CURRENCY_UNKNOWN"),
        (_attempt({"sequence_id": 9}), "SEQUENCE_GIVEN"),
        (_attempt({"participant_id": "q"}), "SEQUENCE_TAMPERED"),
        (_attempt({"instruction_id": "another"}), "SEQUENCE_TAMPERED"),
        (_attempt({"rail_type": "sepa_instant"}), "SEQUENCE_TAMPERED"),
        (_attempt(order_by="payments/q"), "SEQUENCE_TAMPERED"),
        (_attempt(order_by=None, sequence=None), "SEQUENCE_TAMPERED"),
        (_attempt(key="mine"), "SEQUENCE_TAMPERED"),
        (_attempt(headers={}), "SEQUENCE_TAMPERED"),
        (_attempt(body=b"[]"), "PAYLOAD_INVALID"),
        (_attempt(body=b"{}"), "FIELD_MISSING"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_may_not_be_paid_is_terminal_before_anything_is_sent(attempt: redrive.Attempt, code: str) -> None:
    with pytest.raises(Terminal) as refused:
        await RailTransport(_rail()).validate(attempt)
    assert refused.value.code == code


@pytest.mark.req("P-02")
async def test_a_rail_wants_the_format_that_it_declares() -> None:
    with pytest.raises(Terminal, match="wallet_id"):
        await RailTransport(_rail(destination_format="wallet_id")).validate(_attempt())


@pytest.mark.req("P-02")
async def test_a_payment_that_somebody_edited_wrongly_is_refused_by_us_and_never_reaches_the_rail(
    paying: str, participant: str
) -> None:
    async with desk(paying, ScriptedRail(["ACCOUNT_CLOSED"])) as at:
        (id,) = await at.submit(instruction(participant))
        await at.run()
        wrong = json.dumps({**checked(instruction(participant)).payload, "amount": "99999.00"}).encode()
        await at.rows("SELECT redrive.triage_1(%s, 'data', 'anna', 'a typo')", [id])
        edit = "SELECT redrive.edit_1(%s, 2, %s, 'application/json', '[]', 'anna', 'a typo')"
        assert await at.rows(edit, id, wrong) == [("done",)]
        for who in ("anna", "ben"):
            await at.rows("SELECT redrive.requeue_1(%s, %s, 'try again')", id, who)
        await at.run()
        assert await at.states([id]) == ["dead"]
        assert await at.rows("SELECT error_class FROM redrive.parked WHERE id = %s", id) == [("SEQUENCE_TAMPERED",)]
        assert len(at.rail.sent) == 1


async def test_the_rail_is_given_the_payment_with_its_token_and_number(paying: str, participant: str) -> None:
    async with desk(paying) as at:
        first, second = await at.submit(instruction(participant, 1), instruction(participant, 2, amount=5))
        await at.run()
        assert await at.states([first, second]) == ["delivered", "delivered"]
        tokens = [token_of(participant, 1), token_of(participant, 2)]
        assert at.rail.sent == [
            {
                "token": token,
                "instruction_id": f"{participant}/{number}",
                "participant_id": participant,
                "sequence_id": number,
                "rail_type": "sepa",
                "amount": amount,
                "currency": "EUR",
                "destination": {"iban": "DE75512108001245126199"},
            }
            for token, number, amount in ((tokens[0], 1, "12.34"), (tokens[1], 2, "5.00"))
        ]
        assert at.rail.server.asked[0].headers["Idempotency-Key"] == f'"{tokens[0]}"'


def token_of(participant: str, number: int) -> str:
    """What the rail is given for the instruction of that number, in every database: not the row's id (P-05)."""
    given = instruction(participant, number)
    payment = checked(given)
    seed = key_of(payment.instruction_id, payment.idempotency_key)
    return token(MessageId(UUID(int=0)), 1, "first", tenant=given.tenant, seed=seed)


# never twice


@pytest.mark.req("P-05")
async def test_a_payment_that_was_made_and_whose_reply_was_lost_is_found_and_not_made_again(
    paying: str, participant: str
) -> None:
    async with desk(paying, ScriptedRail(["lost"], remembers=False), lookup_after_seconds=60) as at:
        ids = await at.submit(instruction(participant, 1))
        await at.run()
        assert await at.states(ids) == ["delivered"]
        assert at.rail.methods == ["POST", "GET"]
        assert len(at.rail.ledger) == 1
        query = (
            "SELECT rail_reference, rail_code FROM redrive_payments.payment_outbox_attempts WHERE state = 'DISPATCHED'"
        )
        assert await at.rows(query) == [("ref-1", "ACCEPTED")]


@pytest.mark.req("P-05")
async def test_a_request_that_was_lost_is_sent_again_only_after_the_rail_said_absent_late_enough(
    paying: str, participant: str
) -> None:
    async with desk(paying, ScriptedRail(["dropped", "ACCEPTED"]), lookup_after_seconds=600) as at:
        ids = await at.submit(instruction(participant, 1))
        await at.run()
        assert await at.states(ids) == ["delivered"]
        assert at.rail.methods[0] == "POST"
        assert at.rail.methods[-2:] == ["GET", "POST"]
        assert len(at.rail.ledger) == 1
        assert at.rail.sent[0] == at.rail.sent[1]
        waited = "SELECT max(completed_at) - min(completed_at) >= '600 s' FROM redrive.attempt WHERE message_id = %s"
        assert await at.rows(waited, ids[0]) == [(True,)]


@pytest.mark.req("P-05")
async def test_while_the_rail_cannot_tell_it_is_asked_and_not_sent_to(paying: str, participant: str) -> None:
    rail = ScriptedRail(["IN_PROGRESS", "ACCEPTED"], lookups=["IN_PROGRESS", "UNAVAILABLE", "IN_PROGRESS"])
    async with desk(paying, rail) as at:
        ids = await at.submit(instruction(participant, 1))
        await at.run()
        assert await at.states(ids) == ["delivered"]
        assert at.rail.methods == ["POST", "GET", "GET", "GET", "GET", "POST"]


@pytest.mark.req("P-05")
async def test_a_rail_that_remembers_nothing_and_says_absent_is_not_sent_to_again(
    paying: str, participant: str
) -> None:
    async with desk(paying, ScriptedRail(["dropped"], remembers=False), token_ttl_seconds=None) as at:
        ids = await at.submit(instruction(participant, 1))
        await at.run()
        assert await at.states(ids) == ["held"]
        assert at.rail.methods == ["POST", "GET"]


@pytest.mark.req("P-05")
@pytest.mark.parametrize("fate", ["lost", "dropped", "IN_PROGRESS", "INTERNAL"])
async def test_a_rail_with_neither_token_nor_lookup_gets_one_attempt_in_doubt_and_then_a_person_decides(
    paying: str, participant: str, fate: str
) -> None:
    rail = ScriptedRail([fate], remembers=False)
    async with desk(paying, rail, token_ttl_seconds=None, can_look_up=False) as at:
        ids = await at.submit(instruction(participant, 1), instruction(participant, 2))
        await at.run()
        assert await at.states(ids) == ["held", "pending"]  # and the participant waits
        assert at.rail.methods == ["POST"]


@pytest.mark.req("P-05")
async def test_a_rail_with_a_token_alone_is_sent_the_same_again_and_does_it_once(paying: str, participant: str) -> None:
    async with desk(paying, ScriptedRail(["lost", "ACCEPTED"]), can_look_up=False) as at:
        ids = await at.submit(instruction(participant, 1))
        await at.run()
        assert await at.states(ids) == ["delivered"]
        assert at.rail.methods == ["POST", "POST"]
        assert len(at.rail.ledger) == 1


@pytest.mark.req("P-05")
async def test_past_the_life_of_its_token_a_payment_in_doubt_is_held(paying: str, participant: str) -> None:
    slow = Policy(backoff=Backoff(initial_seconds=100, max_seconds=100, jitter="none"))
    async with desk(paying, ScriptedRail(["lost"]), can_look_up=False, token_ttl_seconds=120.0, policy=slow) as at:
        ids = await at.submit(instruction(participant, 1))
        await at.run()
        assert await at.states(ids) == ["held"]
        assert at.rail.methods == ["POST"]


@pytest.mark.full
@pytest.mark.req("P-03")
async def test_a_rail_that_does_not_answer_in_time_is_unknown_and_asked(paying: str, participant: str) -> None:
    async with desk(paying, ScriptedRail(["never"]), timeout_seconds=2.0) as at:
        ids = await at.submit(instruction(participant, 1))
        await at.run()
        assert await at.states(ids) == ["delivered"]
        assert await at.rows("SELECT code FROM redrive.attempt WHERE message_id = %s AND attempt = 1", ids[0]) == [
            ("TIMEOUT",)
        ]
        assert len(at.rail.ledger) == 1


# the order of a participant


async def test_a_definitive_no_lets_the_next_payment_go(paying: str, participant: str) -> None:
    async with desk(paying, ScriptedRail(["INSUFFICIENT_FUNDS", "ACCEPTED"])) as at:
        ids = await at.submit(instruction(participant, 1), instruction(participant, 2))
        await at.run()
        assert await at.states(ids) == ["dead", "delivered"]
        assert [one["sequence_id"] for one in at.rail.sent] == [1, 2]


async def test_a_payment_that_ran_out_of_attempts_halts_its_participant_and_nobody_else(
    paying: str, participant: str
) -> None:
    rail = ScriptedRail(["UNAVAILABLE", "UNAVAILABLE", "ACCEPTED"])
    async with desk(paying, rail, policy=TWO_ATTEMPTS) as at:
        ids = await at.submit(instruction(participant, 1), instruction(participant, 2))
        await at.run()
        await at.rows("SELECT redrive_payments.add_participant_1('default', %s)", f"{participant}-b")
        others = await at.submit(instruction(f"{participant}-b", 1))
        await at.run()
        assert await at.states([*ids, *others]) == ["dead", "pending", "delivered"]


async def test_a_retry_is_not_overtaken(paying: str, participant: str) -> None:
    async with desk(paying, ScriptedRail(["UNAVAILABLE", "THROTTLED", "ACCEPTED"])) as at:
        ids = await at.submit(*(instruction(participant, number) for number in (1, 2, 3)))
        await at.run()
        assert await at.states(ids) == ["delivered"] * 3
        assert [one["sequence_id"] for one in at.rail.sent] == [1, 1, 1, 2, 3]


# how a rail is declared


@pytest.mark.req("P-03")
@pytest.mark.parametrize(
    ("offers", "in_doubt"),
    [
        ({"token_ttl_seconds": 60.0, "can_look_up": True}, "lookup"),
        ({"can_look_up": True}, "lookup"),
        ({"token_ttl_seconds": 60.0, "can_look_up": False}, "resend"),
        ({"can_look_up": False}, "hold"),
    ],
)
def test_what_is_done_in_doubt_follows_from_what_the_rail_offers(offers: dict[str, Any], in_doubt: str) -> None:
    destination = _rail(**offers).destination()
    assert (destination.rules.in_doubt, destination.rules.money) == (in_doubt, True)
    assert (destination.timeout_seconds, destination.rules.on_dead) == (30.0, "continue_on_terminal")
    assert destination.name == "payments.sepa"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"codes": {"R03": "maybe"}}, "means one of delivered, retryable, terminal, unknown"),
        ({"codes": {"r03": "terminal"}}, "a code is upper case"),
        ({"destination_format": "bitcoin"}, "one of iban, us_account, card_token, wallet_id"),
        ({"rail_type": "Sepa!"}, "small letters"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"concurrency": 0}, "concurrency"),
        ({"url": "http://169.254.169.254"}, "refused"),
    ],
)
def test_a_rail_that_cannot_be_is_refused_where_it_is_declared(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Rail(**{"rail_type": "sepa", "url": URL, "egress": HERE, **options}).destination()


@pytest.mark.req("P-05")
@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({}, 90),
        ({"timeout_seconds": 10}, 70),
        ({"settlement_lag_seconds": 3600}, 3630),
        ({"settlement_lag_seconds": 0}, 30),
        ({"lookup_after_seconds": 7}, 7),
        ({"lookups_are_immediate": True}, 0),
        ({"lookups_are_immediate": True, "lookup_after_seconds": 0}, 0),
    ],
)
def test_not_found_is_believed_when_a_request_must_have_shown_its_effect(
    options: dict[str, Any], seconds: float
) -> None:
    assert _rail(**options).destination().rules.lookup_after_seconds == seconds


@pytest.mark.req("P-05")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"lookup_after_seconds": 0}, "moves money and has lookup_after_seconds=0"),
        ({"lookup_after_seconds": 5, "lookups_are_immediate": True}, "only one of them can be true"),
        ({"settlement_lag_seconds": -1}, "settlement_lag_seconds"),
        ({"settlement_lag_seconds": 30 * 86_400 + 1}, "settlement_lag_seconds"),
    ],
)
def test_a_rail_whose_not_found_would_be_believed_too_early_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidValue, match=why):
        _rail(**options).destination()


@pytest.mark.req("P-05")
def test_the_url_and_the_account_are_part_of_the_rules() -> None:
    rails = [_rail(), _rail(account="DE-1"), Rail(rail_type="sepa", url=f"{URL}/v3", egress=HERE, can_look_up=True)]
    assert len({rail.rules.version for rail in rails}) == len({rail.rules.address for rail in rails}) == 3
    assert _rail().rules.version == _rail().rules.version
    shown = declared({"payments.sepa": _rail(settlement_lag_seconds=600).destination()}, lease_seconds=45)
    assert shown["effects_within_seconds"] == {"payments.sepa": 600}
    assert shown["addresses"] == {"payments.sepa": _rail().rules.address}


FILE = """
[payments.rails.sepa]
url = "https://rail.example/v2"
token_ttl_seconds = 86400
can_look_up = true
lookup_after_seconds = 90
settlement_lag_seconds = 120
absent_is_final = true
account = "DE-1"
concurrency = 4
rate = 20.0
headers_env = { Authorization = "RAIL_KEY" }
codes = { R03 = "terminal" }
policy = { attempts = 6 }

[payments.rails.giro]
url = "https://giro.example"
destination_format = "iban"
"""


@pytest.mark.req("P-03")
def test_rails_are_declared_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "redrive.toml"
    file.write_text(FILE)
    monkeypatch.setenv("RAIL_KEY", "Bearer x")
    app = app_from_file(file)
    assert set(app.destinations) == {"payments.sepa", "payments.giro"}
    sepa = app.destinations["payments.sepa"]
    assert (sepa.concurrency, sepa.rate, sepa.rules.policy.attempts, sepa.rules.lookup_after_seconds) == (4, 20, 6, 90)
    assert (sepa.rules.settlement_lag_seconds, sepa.rules.absent_is_final) == (120, True)
    assert app.destinations["payments.giro"].rules.in_doubt == "hold"
    assert Settings.load(config=file).lease_seconds == 60  # a command that reads the same file is not disturbed by it


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[payments.rails.sepa]\nurll = "x"\n', "There is no key 'urll'"),
        ("[payments.rails.sepa]\n", "url of 'sepa' is missing"),
        ('[payments.rails.sepa]\nurl = "https://a.example"\nconcurrency = "many"\n', "it must be a whole number"),
        ('[payments.rails.sepa]\nurl = "https://a.example"\ncodes = { R03 = "maybe" }\n', "means one of"),
        ('[payments.rails.sepa]\nurl = "https://a.example"\nheaders = { Authorization = "x" }\n', "a secret"),
        ("[payments]\nrail = 5\n", "There is no key 'rail'"),
        ("[payments]\nrails = 5\n", "must be tables"),
        ("payments = 5\n", "must be a table"),
    ],
)  # fmt: skip
def test_a_file_that_declares_a_rail_wrongly_is_refused_with_its_place(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "redrive.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=why) as refused:
        app_from_file(file)
    assert "redrive.toml" in str(refused.value)
    assert not isinstance(refused.value, InvalidValue)
