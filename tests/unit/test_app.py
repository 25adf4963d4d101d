"""Everything that can be wrong with a declaration is refused when it is made (G-19)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import inf, nan
from typing import Any, cast

import pytest

import redrive
from redrive.answers import Absent, LookupAnswer
from redrive.app import DESTINATIONS_MAX, ENGINE_DUTIES, App, Destination, Duty
from redrive.errors import InvalidValue, NotFound
from redrive.message import Attempt
from redrive.policy import Breaker, Rules, Settlement
from redrive.ports import Store
from redrive.recover.engine_duties import engine_duties
from redrive.system import System

pytestmark = pytest.mark.req("G-19")


async def handler(attempt: Attempt) -> None: ...


async def lookup(attempt: Attempt) -> LookupAnswer:
    return Absent()


async def record(conn: Any, attempt: Attempt, settlement: Settlement) -> None: ...


def plain_record(conn: Any, attempt: Attempt, settlement: Settlement) -> None: ...


async def work(store: Store) -> str:
    return "nothing"


class RecordObject:
    async def __call__(self, conn: Any, attempt: Attempt, settlement: Settlement) -> None: ...


def declare(name: str = "mail", **options: Any) -> Destination:
    app = App()
    assert app.destination(name, **options)(handler) is handler
    return app.destinations[name]


@pytest.mark.parametrize("name", ["m", "m" * 100, "e-mail/ÄÖÜ ☎ 1"])
def test_a_name_of_1_to_100_characters_is_accepted(name: str) -> None:
    assert declare(name).name == name


@pytest.mark.parametrize("name", ["", "m" * 101, "a\x00b", "a\ud800b", " mail", "mail\n"])
def test_any_other_name_is_refused(name: str) -> None:
    """As `enqueue` does it: a destination that no message can name would wait for ever."""
    with pytest.raises(InvalidValue, match="destination"):
        declare(name)


def test_a_name_is_declared_once() -> None:
    app = App()
    app.destination("mail")(handler)
    with pytest.raises(InvalidValue, match="'mail' is declared twice"):
        app.destination("mail")(handler)
    assert len(app.destinations) == 1


def test_there_is_a_most_of_destinations() -> None:
    app = App()
    one = declare()
    for number in range(DESTINATIONS_MAX):
        app.add(Destination(name=f"d{number}", transport=one.transport))
    with pytest.raises(InvalidValue, match="1000 destinations already"):
        app.add(one)


@pytest.mark.parametrize("concurrency", [1, 1000])
def test_concurrency_within_its_bounds_is_accepted(concurrency: int) -> None:
    assert declare(concurrency=concurrency).concurrency == concurrency


@pytest.mark.parametrize("concurrency", [0, -1, 1001, 2.5, "5", True])
def test_any_other_concurrency_is_refused(concurrency: Any) -> None:
    with pytest.raises(InvalidValue, match=f"concurrency of 'mail' is {concurrency!r}; it must be"):
        declare(concurrency=concurrency)


@pytest.mark.req("G-25")
@pytest.mark.parametrize("limit", [1, 100_000, None])
def test_global_concurrency_within_its_bounds_is_accepted(limit: int | None) -> None:
    assert declare(global_concurrency=limit).global_concurrency == limit


@pytest.mark.req("G-25")
@pytest.mark.parametrize("limit", [0, -1, 100_001, 2.5, "5", True])
def test_any_other_global_concurrency_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidValue, match=f"global_concurrency of 'mail' is {limit!r}; it must be"):
        declare(global_concurrency=limit)


@pytest.mark.req("G-25")
@pytest.mark.parametrize("rate", [0.001, 50, 100_000.0, None])
def test_a_rate_within_its_bounds_is_accepted(rate: float | None) -> None:
    assert declare(rate=rate).rate == rate


@pytest.mark.req("G-25")
@pytest.mark.parametrize("rate", [0, 0.0009, -1, 100_001, float("nan"), float("inf"), True, "5"])
def test_any_other_rate_is_refused(rate: Any) -> None:
    with pytest.raises(InvalidValue, match=r"rate of 'mail' is .*; it must be between 0\.001 and 100000 per second"):
        declare(rate=rate)


@pytest.mark.req("G-25")
def test_a_breaker_is_declared_by_name_or_with_numbers_or_not_at_all() -> None:
    assert declare().breaker is None
    assert declare(breaker=False).breaker is None
    assert declare(breaker=True).breaker == Breaker()
    assert declare(breaker=Breaker(failures=3)).breaker == Breaker(failures=3)
    with pytest.raises(InvalidValue, match="breaker of 'mail' is a int; it must be True, False or a Breaker"):
        declare(breaker=5)


@pytest.mark.req("G-25")
def test_only_with_a_breaker_costs_an_attempt_nothing_that_found_it_down() -> None:
    """Ruling 12: what is free must be bounded by something."""
    assert declare(breaker=True).rules.has_breaker
    assert not declare().rules.has_breaker
    plain = declare()
    assert not Destination(name="d", transport=plain.transport, rules=Rules(has_breaker=True)).rules.has_breaker
    assert Destination(name="d", transport=plain.transport, breaker=Breaker()).rules.has_breaker


@pytest.mark.parametrize("seconds", [0.001, 30, 3000])
def test_a_timeout_within_its_bounds_is_accepted(seconds: float) -> None:
    assert declare(timeout_seconds=seconds).timeout_seconds == seconds


@pytest.mark.parametrize("seconds", [0, -1, 3000.001, inf, nan])
def test_any_other_timeout_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidValue, match=f"timeout_seconds of 'mail' is {seconds}; it must be above 0"):
        declare(timeout_seconds=seconds)


@pytest.mark.parametrize("option", ["lookup", "validate"])
def test_what_is_no_function_is_refused(option: str) -> None:
    with pytest.raises(InvalidValue, match=f"{option} of 'mail' is a str; it must be a function"):
        declare(**{option: "shop.check"})


def test_a_handler_that_is_no_function_is_refused() -> None:
    with pytest.raises(InvalidValue, match="handler of 'mail' is a str"):
        App().destination("mail")(cast("Any", "shop.send"))


# doubt


@pytest.mark.req("G-13")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "resend"),
        ({"token_ttl_seconds": 60}, "resend"),
        ({"money": True}, "hold"),
        ({"money": True, "token_ttl_seconds": 60}, "resend"),
        ({"lookup": lookup}, "lookup"),
        ({"lookup": lookup, "money": True}, "lookup"),
        ({"lookup": lookup, "in_doubt": "hold"}, "hold"),
        ({"lookup": lookup, "in_doubt": "resend"}, "resend"),
        ({"in_doubt": "hold"}, "hold"),
        ({"money": True, "token_ttl_seconds": 60, "in_doubt": "resend"}, "resend"),
        ({"money": True, "lookup": lookup, "in_doubt": "hold"}, "hold"),
    ],
)
def test_what_a_destination_does_in_doubt(options: dict[str, Any], expected: str) -> None:
    assert declare(**options).rules.in_doubt == expected


@pytest.mark.req("G-13")
def test_asking_needs_somebody_to_ask() -> None:
    with pytest.raises(InvalidValue, match='has in_doubt="lookup" but no lookup; give one'):
        declare(in_doubt="lookup")


@pytest.mark.req("G-13")
@pytest.mark.parametrize("options", [{}, {"lookup": lookup}])
def test_money_without_a_token_is_never_resent(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="money without token_ttl_seconds"):
        declare(money=True, in_doubt="resend", **options)


@pytest.mark.parametrize(("option", "value"), [("in_doubt", "ask"), ("on_dead", "stop")])
def test_a_word_that_is_not_one_of_the_choices_is_refused(option: str, value: str) -> None:
    with pytest.raises(InvalidValue, match=f"{option} of 'mail' is '{value}'; it must be one of"):
        declare(**{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("lookup_after_seconds", -1),
        ("lookup_after_seconds", nan),
        ("lookup_after_seconds", 30 * 86_400 + 1),
        ("settlement_lag_seconds", -1),
        ("settlement_lag_seconds", 30 * 86_400 + 1),
        ("token_ttl_seconds", 0),
        ("token_ttl_seconds", -1),
        ("token_ttl_seconds", nan),
        ("token_ttl_seconds", inf),
    ],
)
def test_spans_out_of_bounds_are_refused(option: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=f"{option} of 'mail' is {value}; it must be"):
        declare(**{option: value})


# record


@pytest.mark.parametrize("given", [record, functools.partial(record), RecordObject()])
def test_a_record_that_can_be_awaited_is_accepted(given: Any) -> None:
    assert declare(record=given).record is given


@pytest.mark.parametrize("given", [plain_record, "record", RecordObject])
def test_any_other_record_is_refused(given: Any) -> None:
    with pytest.raises(InvalidValue, match="record of 'mail' must be an `async def` function"):
        declare(record=given)


# duties and systems


def test_a_duty_is_declared_once() -> None:
    app = App()
    assert app.duty("sweep", every_seconds=5)(work) is work
    with pytest.raises(InvalidValue, match="'sweep' is declared twice"):
        app.duty("sweep", every_seconds=5)(work)


@pytest.mark.parametrize("every_seconds", [0, -1, nan, inf, 30 * 86_400 + 1])
def test_a_duty_comes_round_at_an_interval_that_is_one(every_seconds: float) -> None:
    with pytest.raises(InvalidValue, match=f"every_seconds of duty 'sweep' is {every_seconds}; it must be"):
        App().duty("sweep", every_seconds=every_seconds)(work)


@pytest.mark.parametrize("name", ["", "s" * 101, "a\x00b", "a\udfffb"])
def test_a_duty_has_a_name_that_can_be_kept(name: str) -> None:
    with pytest.raises(InvalidValue, match="duty"):
        App().add_duty(Duty(name=name, every_seconds=1, run_once=work))


@pytest.mark.req("G-17")
@pytest.mark.parametrize("name", sorted(ENGINE_DUTIES))
def test_the_engines_own_duties_cannot_be_taken(name: str) -> None:
    """Two duties of one name share one turn: the reaper would miss every other one of its own."""
    with pytest.raises(InvalidValue, match=f"duty '{name}' is the engine's own"):
        App().duty(name, every_seconds=1)(work)


def test_the_engines_own_duties_are_all_known() -> None:
    duties = engine_duties(
        reap_every_seconds=1, partition_days=1, partitions_ahead=1, retention_days=1, inbox_retention_days=1
    )
    assert {duty.name for duty in duties} == ENGINE_DUTIES


@pytest.mark.req("G-30")
def test_a_system_is_included_once_and_whole() -> None:
    app = App()
    system = System(
        name="parcels",
        destinations=[declare("pick"), declare("ship")],
        duties=[Duty(name="d", every_seconds=1, run_once=work)],
    )
    app.include(system)
    assert (list(app.destinations), list(app.duties), list(app.systems)) == (["pick", "ship"], ["d"], ["parcels"])
    with pytest.raises(InvalidValue, match="System 'parcels' is included twice"):
        app.include(system)


@pytest.mark.req("G-30")
@pytest.mark.parametrize("clash", ["destination", "duty"])
def test_a_system_that_clashes_changes_nothing(clash: str) -> None:
    app = App()
    if clash == "destination":
        app.destination("ship")(handler)
    else:
        app.duty("d", every_seconds=1)(work)
    before = (list(app.destinations), list(app.duties))
    system = System(
        name="parcels",
        destinations=[declare("pick"), declare("ship")],
        duties=[Duty(name="d", every_seconds=1, run_once=work)],
    )
    with pytest.raises(InvalidValue, match="declared twice"):
        app.include(system)
    assert (list(app.destinations), list(app.duties), list(app.systems)) == (*before, [])


# which destinations a relay handles


def app_of(*names: str) -> App:
    app = App()
    for name in names:
        app.destination(name)(handler)
    return app


def test_a_relay_handles_all_or_those_that_are_named() -> None:
    app = app_of("erp", "mail", "sms")
    assert set(app.only([])) == {"erp", "mail", "sms"}
    assert set(app.only(["sms", "erp", "sms"])) == {"erp", "sms"}


@pytest.mark.parametrize(("names", "known"), [(("erp", "mail"), "erp, mail"), ((), "none")])
def test_a_relay_for_an_unknown_destination_is_refused(names: tuple[str, ...], known: str) -> None:
    with pytest.raises(NotFound, match=f"Destination 'smss' is not declared in this app; it has: {known}"):
        app_of(*names).only(["smss"])


def test_rules_are_what_was_declared() -> None:
    policy = redrive.Policy(attempts=3)
    destination = declare(
        policy=policy,
        lookup=lookup,
        lookup_after_seconds=5,
        token_ttl_seconds=60,
        money=True,
        on_dead="continue",
        record=record,
    )
    assert destination.rules == Rules(
        policy=policy, in_doubt="lookup", lookup_after_seconds=5, token_ttl_seconds=60, money=True, on_dead="continue"
    )


@pytest.mark.req("P-05")
@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({}, 30),
        ({"timeout_seconds": 5, "settlement_lag_seconds": 2}, 7),
        ({"lookup_after_seconds": 3}, 3),
        ({"lookups_are_immediate": True}, 0),
        ({"money": False}, 0),
        ({"money": False, "lookup_after_seconds": 0}, 0),
        ({"in_doubt": "hold"}, 0),
    ],
)
def test_money_believes_absent_when_a_request_must_have_ended(options: dict[str, Any], seconds: float) -> None:
    destination = declare(**{"lookup": lookup, "money": True, **options})
    assert destination.rules.lookup_after_seconds == seconds


@pytest.mark.req("P-05")
def test_money_that_would_believe_absent_at_once_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"'mail' moves money and has lookup_after_seconds=0.*lookups_are_immediate"):
        declare(lookup=lookup, money=True, lookup_after_seconds=0)
    with pytest.raises(InvalidValue, match="lookup_after_seconds=0"):
        Destination(
            name="mail",
            transport=declare(lookup=lookup).transport,
            rules=Rules(money=True, in_doubt="lookup", token_ttl_seconds=60),
        )


def test_the_address_is_part_of_the_rules() -> None:
    rules = [declare(address=address).rules for address in (None, "bank", "other bank")]
    assert len({one.version for one in rules}) == 3
    assert rules[0].address is None


def test_a_declared_function_can_still_be_called_as_it_is() -> None:
    app = App()

    @app.destination("mail")
    def send(attempt: Attempt) -> str:
        return "sent"

    typed: Callable[[Attempt], str] = send
    assert typed(cast("Attempt", None)) == "sent"
