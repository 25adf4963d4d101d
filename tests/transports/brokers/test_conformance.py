"""Each broker transport keeps the promises of every transport, against the real broker."""

from __future__ import annotations

from unittest import SkipTest

import pytest

from redrive.testing import TRANSPORT_CHECKS
from redrive.testing.transports import Check
from tests.transports.brokers.subjects import BrokerSubject

# What they have not, or what their broker cannot be brought to: no check of it is left out unseen.
WORDS = {"no `lookup`", "no `validate`"}
ABSENT = {
    "nats": WORDS,
    "redis": WORDS,
    "rabbitmq": {*WORDS, "cannot be busy"},
    "kafka": {*WORDS, "cannot be busy", "cannot be refusing"},
}


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.req("G-13")
async def test_the_transport_keeps_its_promises(check: Check, subject: BrokerSubject) -> None:
    lacks = ""
    try:
        await check(subject)
    except SkipTest as left_out:
        lacks = str(left_out)
    assert not lacks or any(words in lacks for words in ABSENT[subject.broker.name]), lacks
