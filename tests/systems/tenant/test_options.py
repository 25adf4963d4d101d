"""The options: the document's names, defaults and bounds; a value outside is refused with the bound (T-03)."""

from __future__ import annotations

from dataclasses import fields
from random import Random
from typing import Any

import pytest

import redrive
from redrive.errors import SettingsError
from redrive.relay.process import RelayProcess, relay_defaults
from redrive.settings import Settings
from redrive.systems import tenant
from redrive.systems.tenant.options import NAMES
from redrive.testing import ScriptedTransport
from tests.systems.tenant.conftest import TYPES, outbox

pytestmark = [pytest.mark.req("T-03"), pytest.mark.req("T-12")]

# As the document lists them, with the ruling's bounds.
SEED = {
    "PollIntervalSeconds": (5.0, 1, 300),
    "BatchSize": (100, 1, 1000),
    "MaxRetries": (5, 1, 100),
    "BaseRetryDelaySeconds": (10.0, 0, 3600),
    "UseExponentialBackoff": (True, 0, 1),
    "Jitter": (0.2, 0, 1),
    "MaxErrorTextLength": (2000, 100, 65_536),
}
NUMBERS = [one for one in fields(tenant.OutboxOptions) if type(one.default) is not bool]


def _one(name: str, value: object) -> dict[str, Any]:
    return {name: value}


def test_the_documents_names_have_its_defaults() -> None:
    documented = tenant.OutboxOptions().documented()
    assert {name: documented[name] for name in SEED} == {name: default for name, (default, _, _) in SEED.items()}
    bounds = {one.metadata["name"]: (one.metadata["low"], one.metadata["high"]) for one in fields(tenant.OutboxOptions)}
    assert {name: bounds[name] for name in SEED} == {name: (low, high) for name, (_, low, high) in SEED.items()}


def test_names_of_the_document_and_of_python_are_both_known() -> None:
    assert tenant.OutboxOptions.of({"MaxRetries": 7}) == tenant.OutboxOptions(max_retries=7)
    assert tenant.OutboxOptions.of({"max_retries": 7}) == tenant.OutboxOptions(max_retries=7)
    with pytest.raises(SettingsError, match="no outbox option 'MaxRetry'") as refused:
        tenant.OutboxOptions.of({"MaxRetry": 7})
    assert refused.value.next == "did you mean MaxRetries?"
    with pytest.raises(SettingsError, match=r"MaxRetries \(max_retries\) is given by both of its names"):
        tenant.OutboxOptions.of({"max_retries": 7, "MaxRetries": 8})


@pytest.mark.parametrize("one", NUMBERS, ids=lambda one: NAMES[one.name])
def test_a_bound_is_accepted_and_its_neighbour_refused_with_value_and_bound(one: Any) -> None:
    low, high, whole = one.metadata["low"], one.metadata["high"], type(one.default) is int
    others = {
        name: getattr(tenant.OutboxOptions(), name)
        for name in NAMES
        if name.endswith(("_degraded", "_degraded_seconds")) and name != one.name
    }
    lowest = {name: next(f.metadata["low"] for f in fields(tenant.OutboxOptions) if f.name == name) for name in others}
    highest = {
        name: next(f.metadata["high"] for f in fields(tenant.OutboxOptions) if f.name == name)
        for name in NAMES
        if "_unhealthy" in name and name != one.name
    }
    for value in (low, high):
        given: dict[str, Any] = {**lowest, **highest, one.name: value}
        assert getattr(tenant.OutboxOptions(**given), one.name) == value
    step = 1 if whole else 0.0001
    for value in (low - step, high + step, True, "5"):
        with pytest.raises(SettingsError) as refused:
            tenant.OutboxOptions(**_one(one.name, value))
        assert NAMES[one.name] in str(refused.value)
        assert f"from {low:,} to {high:,}" in str(refused.value)
    if whole:
        with pytest.raises(SettingsError, match="a whole number"):
            tenant.OutboxOptions(**_one(one.name, float(low + 1)))


@pytest.mark.parametrize("name", ["use_exponential_backoff", "prometheus_enabled"])
def test_a_switch_is_true_or_false(name: str) -> None:
    with pytest.raises(SettingsError, match="must be true or false"):
        tenant.OutboxOptions(**_one(name, 1))


@pytest.mark.parametrize(
    ("degraded", "unhealthy", "low", "high"),
    [
        ("BacklogDegraded", "BacklogUnhealthy", 10, 11),
        ("OldestAgeDegradedSeconds", "OldestAgeUnhealthySeconds", 10.0, 10.5),
        ("FailureRatioDegraded", "FailureRatioUnhealthy", 0.3, 0.4),
    ],
)
def test_an_outbox_cannot_be_unhealthy_before_it_is_degraded(
    degraded: str, unhealthy: str, low: float, high: float
) -> None:
    with pytest.raises(SettingsError, match=rf"{degraded} .* is {high:g}, above {unhealthy} .*{low:g}"):
        tenant.OutboxOptions.of({degraded: high, unhealthy: low})
    assert tenant.OutboxOptions.of({degraded: low, unhealthy: low}).documented()[degraded] == low


@pytest.mark.seed("003", "Backoff_Delay_Grows_Exponentially")
def test_the_pause_doubles_from_base_to_an_hour() -> None:
    plain = tenant.OutboxOptions(jitter=0.0)
    assert [plain.delay_seconds(n, Random(1)) for n in range(1, 12)] == [
        *(10.0 * 2**n for n in range(9)),
        3600.0,
        3600.0,
    ]
    constant = tenant.OutboxOptions(jitter=0.0, use_exponential_backoff=False)
    assert [constant.delay_seconds(n, Random(1)) for n in (1, 2, 9)] == [10.0] * 3
    random = Random(7)
    varied = [tenant.OutboxOptions().delay_seconds(3, random) for _ in range(2000)]
    assert 32 <= min(varied) < 33
    assert 47 < max(varied) <= 48
    assert max(tenant.OutboxOptions().delay_seconds(20, random) for _ in range(200)) == 3600.0


def test_poll_and_batch_size_are_those_of_the_relay_that_runs_the_outbox() -> None:
    app = redrive.App()
    app.include(outbox(poll_interval_seconds=300.0, batch_size=7)[0].system())
    assert relay_defaults(app) == {"poll_seconds": 300.0, "claim_max": 7}
    limits = RelayProcess.of(Settings(), app=app, dsn="host=nowhere").limits
    assert (limits.poll_seconds, limits.claim_max) == (300.0, 7)


def test_what_a_person_set_counts_before_what_the_outbox_asks_for() -> None:
    app = redrive.App()
    app.include(outbox(poll_interval_seconds=30.0, batch_size=7)[0].system())
    limits = RelayProcess.of(Settings(poll_seconds=2.0), app=app, dsn="host=nowhere").limits
    assert (limits.poll_seconds, limits.claim_max) == (2.0, 7)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policy": redrive.Policy(attempts=9)}, "policy of an outbox is set by its options: MaxRetries"),
        ({"error_text_max": 300}, "error_text_max of an outbox is set by its options: MaxErrorTextLength"),
        (
            {"options": {"MaxRetries": 3}},
            "options is of type dict; it must be OutboxOptions; `OutboxOptions.of` makes one",
        ),
        ({"event_types": {}}, "event_types is of type dict; it must be EventTypes"),
        ({"transport": ScriptedTransport(), "lookup": lambda _: None}, "lookup is for a function"),
    ],
)
def test_an_outbox_that_contradicts_itself_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(redrive.InvalidValue) as refused:
        tenant.Outbox(**{"event_types": TYPES, **given})
    assert said in str(refused.value)


def test_a_function_has_the_lookup_that_its_outbox_names() -> None:
    box = tenant.Outbox(TYPES, in_doubt="lookup", lookup=lambda _: redrive.Found())
    box.deliver(lambda _: None)
    (destination,) = box.system().destinations
    assert (destination.rules.in_doubt, callable(destination.transport.lookup)) == ("lookup", True)  # type: ignore[attr-defined]


def test_an_app_runs_one_outbox() -> None:
    app = redrive.App()
    app.include(outbox()[0].system())
    with pytest.raises(redrive.InvalidValue, match="System 'tenant' is included twice"):
        app.include(tenant.Outbox(TYPES, name="audit", transport=ScriptedTransport()).system())


def test_an_outbox_without_a_way_out_is_refused() -> None:
    with pytest.raises(redrive.InvalidValue, match="has no way out"):
        tenant.Outbox(TYPES).system()
