"""Handlers may do what they like: none takes the relay down, keeps its claim, or keeps the relay from ending."""

from __future__ import annotations

import pytest

from redrive.prove.environment import Environment
from tests.crash.apps import RUDE
from tests.crash.lives import enqueue, key_ids, rows, said, stop, wait_quiet

APP = "tests.crash.apps:rude"
POLITE = 50
EXPECTED = {
    "raise_cancelled": "CANCELLED",
    "return_bad_retry_after": "BUSY",  # nonsense is ignored
    "hang": "TIMEOUT",
    "swallow_cancellation": "TIMEOUT",
    "block_a_thread": "TIMEOUT",
    "return_bad_code": "NOT_A_CODE",
    "return_garbage": None,  # a number is JSON: delivered, with it as the result
    "return_unserialisable": "RETURN_INVALID",
    "return_bad_stage": "RETURN_INVALID",
    "lookup": "LOOKUP_FAILED",
}


@pytest.mark.req("G-10")
@pytest.mark.req("G-18")
def test_no_handler_takes_the_relay_down_or_keeps_it_from_ending(environment: Environment) -> None:
    environment.observe()
    kinds = [handler.__name__ for handler in RUDE] + ["validate", "lookup"]
    for kind in kinds:
        enqueue(environment, kind, kind)
    enqueue(environment, "polite", "polite", count=POLITE)
    relay = environment.relay(app=APP)
    wait_quiet(environment)

    ids = key_ids(environment)
    parked = dict(rows(environment, "SELECT id::text, error_class FROM redrive.parked"))
    found = {kind: parked.get(ids[f"{kind}/0"]) for kind in kinds}
    assert found == {kind: EXPECTED.get(kind, "UNCLASSIFIED") for kind in kinds}
    assert environment.counts()["closed"] == POLITE + 1
    assert environment.value("SELECT count(*) FROM redrive.attempt WHERE verb = 'reap'") == 0
    assert relay.code is None, said(environment)
    assert stop(relay) == 0, said(environment)
