"""What waits in hand by limit key: turns, slots, and what is put off until when (G-31)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from redrive.app import App, Destination
from redrive.errors import InvalidValue
from redrive.message import Attempt, MessageId
from redrive.relay.backpressure.bug_breaker import BugsOfKeys
from redrive.relay.backpressure.limit_key_queue import (
    KEY_MAX,
    LATE_SECONDS_MAX,
    PAUSED_SECONDS,
    PLAIN_MAX,
    KeyedWaiting,
    bounded,
)
from redrive.relay.claiming.capacity import Capacity
from redrive.relay.claiming.claim import Claim
from redrive.testing import make_attempt

pytestmark = pytest.mark.req("G-31")


def destination(**options: Any) -> Destination:
    app = App()

    @app.destination("hooks", **{"limit_key": lambda m: m.headers.get("host"), "concurrency": 4, **options})
    async def send(message: Attempt) -> None: ...

    return app.destinations["hooks"]


def claim(number: int, host: str | None, *, at: float = 0.0, **values: Any) -> Claim:
    headers = {} if host is None else {"host": host}
    made = make_attempt({}, headers=headers, id=MessageId(UUID(int=number)), **values)
    return Claim(made, at, at + 60, known_at=at)


@pytest.fixture
def waiting() -> KeyedWaiting:
    return KeyedWaiting(destination(key_concurrency=2))


def proven(waiting: KeyedWaiting, *hosts: str) -> None:
    """These have answered often enough to have all slots that a key may have."""
    for host in hosts:
        waiting.named(host).earned = waiting.named(host).slots


def begun(waiting: KeyedWaiting, now: float = 0.0) -> list[int]:
    """All that may begin, which it does."""
    taken = []
    while (first := waiting.peek(now)) is not None:
        waiting.begin(first, now)
        taken.append(first.attempt.id.int)
    return taken


def test_keys_take_turns_and_none_has_more_than_its_slots(waiting: KeyedWaiting) -> None:
    waiting.extend([claim(n, "a") for n in range(5)] + [claim(n, "b") for n in range(5, 7)])
    assert waiting.may_begin(0.0) == 4
    assert begun(waiting) == [0, 5, 1, 6]
    assert len(waiting) == 3


def test_however_many_keys_hang_each_leaves_half_of_what_is_free_to_the_next() -> None:
    waiting = KeyedWaiting(destination(concurrency=16))
    proven(waiting, *"abcd")
    for place, host in enumerate("abcd"):
        waiting.extend([claim(100 * place + n, host) for n in range(20)])
        begun(waiting)
    assert [waiting.keys[host].running for host in "abcd"] == [8, 4, 2, 1]
    waiting.append(claim(999, "neighbour"))
    assert begun(waiting) == [999]


def test_slots_are_earned_by_answers_and_lost_by_their_lack() -> None:
    waiting = KeyedWaiting(destination(concurrency=100))
    waiting.extend([claim(n, "a") for n in range(20)])
    assert len(begun(waiting)) == 2, "a host that hangs from its first message on costs two"
    key = waiting.keys["a"]
    for answered, slots in ((True, 3), (True, 4), (None, 4), (False, 2), (False, 1), (False, 1), (True, 2)):
        key.saw(answered=answered)
        assert key.capacity(0.0) == slots
    for _ in range(100):
        key.saw(answered=True)
    assert key.capacity(0.0) == 50


def test_a_key_that_has_a_slot_again_goes_on(waiting: KeyedWaiting) -> None:
    waiting.extend([claim(n, "a") for n in range(3)])
    first = waiting.peek(0.0)
    assert first is not None
    waiting.begin(first, 0.0)
    assert begun(waiting) == [1]
    waiting.end(first, 1.0, latency_seconds=1.0)
    waiting.end(first, 1.0)
    assert begun(waiting) == [2]
    assert waiting.keys["a"].running == 2, "an end is counted once"


def test_what_has_no_key_has_the_slots_of_the_destination(waiting: KeyedWaiting) -> None:
    waiting.extend([claim(n, None) for n in range(4)])
    assert begun(waiting) == [0, 1, 2, 3]
    assert waiting.keys == {}


def test_how_many_slots_a_key_has_can_be_said() -> None:
    waiting = KeyedWaiting(destination(key_concurrency=3))
    proven(waiting, "a")
    waiting.extend([claim(n, "a") for n in range(5)])
    assert len(begun(waiting)) == 3
    with pytest.raises(InvalidValue, match="key_concurrency"):
        destination(key_concurrency=0)


def test_where_money_moves_there_are_no_keys() -> None:
    assert destination(money=True, in_doubt="hold").limit_key is None


def test_a_key_that_rests_is_put_off_until_its_rest_is_over_in_one_go(waiting: KeyedWaiting) -> None:
    waiting.extend([claim(n, "a") for n in range(1000)] + [claim(1000, "b")])
    key = waiting.keys["a"]
    key.paused, key.paused_until = True, 100.0
    put_off = waiting.take_blocked(10.0, probe_seconds=5.0)
    assert {(later.seconds, later.key) for _, later in put_off} == {(None, "a")}, "the database says for how long"
    assert len(put_off) == 1000
    assert begun(waiting, 10.0) == [1000]
    key.paused_until = None
    assert key.blocked_seconds(10.0) == PAUSED_SECONDS
    key.paused_until, key.writing = 100.0, 1
    waiting.append(claim(1, "a"))
    assert waiting.take_blocked(10.0, probe_seconds=5.0) == [], "which does not know of it yet"
    assert begun(waiting, 10.0) == []
    assert waiting.take_blocked(101.0, probe_seconds=5.0) == [], "the rest is over"
    assert begun(waiting, 101.0) == [1]


def test_a_key_that_was_down_lets_one_out_and_puts_off_the_others(waiting: KeyedWaiting) -> None:
    waiting.extend([claim(n, "a") for n in range(3)])
    key = waiting.keys["a"]
    key.breaker, key.breaker_until = "open", 5.0
    assert [later.seconds for _, later in waiting.take_blocked(1.0, probe_seconds=7.0)] == [None] * 3
    waiting.extend([claim(n, "a") for n in range(3)])
    assert [(c.attempt.id.int, later.seconds) for c, later in waiting.take_blocked(6.0, probe_seconds=7.0)] == [
        (1, 7.0),
        (2, 7.0),
    ]
    assert key.needs_probe(6.0)
    assert begun(waiting, 6.0) == [0]


def test_a_ramp_doubles_every_second_up_to_the_slots() -> None:
    waiting = KeyedWaiting(destination(concurrency=100))
    proven(waiting, "a")
    key = waiting.keys["a"]
    key.ramp_from = 10.0
    assert [key.capacity(now) for now in (9.0, 10.0, 11.0, 12.5, 13.0, 20.0)] == [1, 1, 2, 4, 8, 50]


def test_what_waits_too_long_for_a_full_key_is_put_off_one_after_the_other(waiting: KeyedWaiting) -> None:
    """Two hang; behind them ten wait, and a neighbour's is not held up by them."""
    waiting.extend([claim(n, "a") for n in range(12)])
    begun(waiting, 0.0)
    assert waiting.take_late(1.0, horizon_seconds=0.5, is_full=False) == [], "not yet"
    put_off = waiting.take_late(3.0, horizon_seconds=0.5, is_full=False)
    dates = [later.seconds or 0.0 for _, later in put_off]
    assert len(dates) == 10
    assert dates == sorted(dates)
    assert 0.5 <= dates[0] < dates[-1] <= LATE_SECONDS_MAX
    waiting.extend([claim(n, "a", at=3.0) for n in range(20, 25)])
    assert len(waiting.take_late(3.0, horizon_seconds=0.5, is_full=False)) == 5, "at once, behind the others"
    assert waiting.keys["a"].put_off_until <= 3.0 + LATE_SECONDS_MAX


def test_a_full_hand_keeps_what_begins_soon_and_puts_off_the_rest(waiting: KeyedWaiting) -> None:
    waiting.extend([claim(n, "a") for n in range(502)])
    begun(waiting, 0.0)
    waiting.keys["a"].latency_seconds = 0.01  # two at a time: 200 a second
    assert waiting.take_late(0.0, horizon_seconds=0.5, is_full=False) == []
    put_off = waiting.take_late(0.0, horizon_seconds=0.5, is_full=True)
    assert len(put_off) == 400
    assert waiting.soon(0.0, horizon_seconds=0.5) == 100 == len(waiting)


def test_what_cannot_begin_soon_is_no_reason_to_claim_less(waiting: KeyedWaiting) -> None:
    waiting.extend([claim(n, "a") for n in range(50)])
    begun(waiting, 0.0)
    assert waiting.soon(0.001, horizon_seconds=0.5) == 0, "it has not answered yet: its pace is not known"
    waiting.keys["a"].latency_seconds = 0.01
    assert waiting.soon(1.0, horizon_seconds=0.5) == 1
    capacity = Capacity("hooks", 4, waiting=1, running=2, put_aside=47)
    assert capacity.room(claim_max=1000, horizon_seconds=0.5) == 1000 - 47 - 3


def test_what_waits_for_its_rate_is_not_put_off_for_want_of_a_slot() -> None:
    waiting = KeyedWaiting(destination(rate=0.001))
    waiting.extend([claim(n, "a") for n in range(3)])
    ((key, claims),) = waiting.take_without_turn()
    claims[0].turn_at = 0.0
    assert begun(waiting, 0.0) == [0]
    key.put_off_until = 1000.0  # what was claimed before waits for its turn too
    assert waiting.take_late(0.1, horizon_seconds=0.5, is_full=True) == []


def test_what_has_no_turn_yet_does_not_begin() -> None:
    waiting = KeyedWaiting(destination(rate=10.0))
    waiting.extend([claim(n, "a") for n in range(3)])
    ((key, claims),) = waiting.take_without_turn()
    assert waiting.take_without_turn() == [], "they are being booked"
    assert begun(waiting) == []
    claims[0].turn_at, claims[1].turn_at = 1.0, 1.1
    assert begun(waiting, 1.0) == [0]
    dates = waiting.dates(key, 1, 1.0, apart=0.1, most=3600)
    assert [c.attempt.id.int for c, _ in waiting.take(key, [claims[2]], dates)] == [2]
    assert begun(waiting, 2.0) == [1]
    assert len(waiting) == 0


def test_a_function_that_fails_limits_by_tenant() -> None:
    def fails(_: Attempt) -> str:
        raise KeyError("url")

    waiting = KeyedWaiting(destination(limit_key=fails))
    waiting.append(claim(1, None, tenant="acme"))
    assert list(waiting.keys) == ["tenant acme"]


@pytest.mark.parametrize("name", ["x" * 500, "a\nb", "é" * 101, "a\x00b", "\ud800"])
def test_a_key_is_bounded_and_printable(name: str) -> None:
    stored = bounded(name)
    assert len(stored) <= KEY_MAX
    assert stored.isprintable()
    assert bounded(name + "!") != stored


def test_keys_of_which_nothing_is_to_be_said_are_forgotten(waiting: KeyedWaiting) -> None:
    waiting.named("resting").paused = True
    for number in range(PLAIN_MAX + 10):
        waiting.named(f"host {number}")
    assert len(waiting.keys) <= PLAIN_MAX
    assert "resting" in waiting.keys


def test_all_that_waits_can_be_taken_and_comes_back(waiting: KeyedWaiting) -> None:
    claims = [claim(n, "ab"[n % 2]) for n in range(4)]
    waiting.extend(claims)
    assert set(waiting) == set(claims)
    waiting.remove(claims[0])
    assert claims[0] not in waiting
    waiting.clear()
    assert len(waiting) == 0
    waiting.extend(claims)
    assert sorted(begun(waiting)) == [0, 1, 2, 3]


# the bug breaker of a destination with keys


def ids(count: int) -> Iterator[UUID]:
    return (UUID(int=n) for n in range(count))


@pytest.mark.req("G-10")
def test_bugs_of_one_tenant_or_of_few_keys_do_not_pause_the_destination() -> None:
    bugs = BugsOfKeys()
    assert not any(bugs.saw_bug(id, f"host {id.int}", "acme") for id in ids(30)), "one tenant"
    bugs = BugsOfKeys()
    assert not any(bugs.saw_bug(id, f"host {id.int % 2}", f"tenant {id.int}") for id in ids(30)), "two keys"


@pytest.mark.req("G-10")
@pytest.mark.parametrize("tenants", [("acme", "ajax"), ("default",)])
def test_ten_in_a_row_of_many_keys_pause_it_and_a_success_starts_again(tenants: tuple[str, ...]) -> None:
    bugs = BugsOfKeys()
    said = [bugs.saw_bug(id, f"host {id.int % 3}", tenants[id.int % len(tenants)]) for id in ids(10)]
    assert said == [False] * 9 + [True]
    bugs.saw_success()
    assert not bugs.saw_bug(UUID(int=99), "host", "acme")
