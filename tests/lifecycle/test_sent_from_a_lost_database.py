"""What is submitted after a restore may have been sent from the database that is gone: it is asked about (P-10)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from redrive import policy
from redrive.answers import Unknown
from redrive.message import Attempt, Priority
from redrive.policy import Opening, Rules
from redrive.ports import ClaimRequest, RelayInfo
from redrive.store.runtime.postgres import PostgresStore
from tests.support import messages as m

BANK = "bank"
SEED = "instruction 1"
RULES = Rules(money=True, in_doubt="lookup", lookup_after_seconds=30)
pytestmark = pytest.mark.req("P-10")


def relay(in_doubt: str) -> RelayInfo:
    return RelayInfo(
        worker=m.WORKER,
        name="relay",
        host="here",
        pid=1,
        version="1",
        destinations=[BANK],
        money=[BANK],
        in_doubt={BANK: in_doubt},
    )


async def claimed_after_a_restore(
    store: PostgresStore, *, in_doubt: str = "lookup", seed: str | None = SEED
) -> Attempt:
    """Enqueued ten seconds after a restore was declared, claimed when two people have resumed the destination."""
    await store.register(relay(in_doubt), now=m.START)
    await store.declare_restored(actor="anna", reason="from the backup", now=m.at(10))
    for actor in ("anna", "ben"):
        await store.rows("SELECT redrive.resume_1(%s, %s, 'compared by hand', %s)", [BANK, actor, m.at(15)])
    await m.enqueue(store, destination=BANK, token_seed=seed, now=m.at(20))
    claimed = await store.claim(
        m.WORKER, [ClaimRequest(BANK, Priority.NORMAL.level, 1)], lease_seconds=60, now=m.at(50)
    )
    (attempt,) = claimed.attempts
    return attempt


async def test_the_first_attempt_begins_with_a_lookup_and_absent_lets_it_go(store: PostgresStore) -> None:
    attempt = await claimed_after_a_restore(store)
    assert attempt.in_doubt_since == m.at(10)
    assert policy.opening(attempt, RULES, now=m.at(50)) is Opening.LOOK_UP
    early = policy.after_absent(attempt, RULES, now=m.at(39))
    assert isinstance(early, Unknown)
    assert early.code == "ABSENT_TOO_EARLY"
    assert policy.after_absent(attempt, RULES, now=m.at(50)) is None


async def test_what_it_sends_itself_is_a_doubt_of_its_own(store: PostgresStore) -> None:
    """Without a token that the rail remembers, "absent" after our own request is no permission to repeat it."""
    attempt = replace(await claimed_after_a_restore(store), in_doubt_since=m.at(50))
    instead = policy.after_absent(attempt, RULES, now=m.at(50) + timedelta(seconds=31))
    assert isinstance(instead, policy.Settlement)
    assert instead.error_class == "ABSENT_AFTER_DOUBT"


@pytest.mark.parametrize(("in_doubt", "seed"), [("resend", SEED), ("hold", SEED), ("lookup", None)])
async def test_what_cannot_be_asked_or_has_no_seed_is_sent_as_ever(
    store: PostgresStore, in_doubt: str, seed: str | None
) -> None:
    assert (await claimed_after_a_restore(store, in_doubt=in_doubt, seed=seed)).in_doubt_since is None
