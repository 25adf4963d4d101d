"""Cases of what a relay has in hand: an open transaction, a cancel, a crash, a rate."""

import math
import signal
import time
from typing import Final

import psycopg

import redrive
from redrive.prove.isolation.environment import (
    HELD_KEY,
    NEIGHBOUR,
    RATED,
    RATED_PER_SECOND,
    SUSPECT_TIMEOUT_SECONDS,
    SUSPECTS,
    CaseEnvironment,
    Figure,
)
from redrive.prove.limit_rules import most_in_a_second
from redrive.relay.claiming.claim_checks import FRESH_SECONDS

SENDING_SECONDS: Final = 2.0
STOP_SECONDS: Final = 30.0
CANCEL: Final = "SELECT redrive.cancel_1(id) FROM redrive.message WHERE key = %s"
WAITING: Final = 40  # messages in the queue of a relay, each sent for so long
EACH_SECONDS: Final = 0.2
ROUND_TRIP_SECONDS: Final = 0.25  # what a machine with other work may need for one statement
HEALED_SECONDS: Final = 60.0
IN_TROUBLE: Final = 50  # messages whose records hang, and as many whose records wait
HEALTHY: Final = 20  # messages beside one that keeps its thread
PARKED_SECONDS: Final = 60.0
RATED_MESSAGES: Final = 80
PROMPT_SECONDS: Final = 0.025
_CLAIMED = "SELECT count(*) FROM redrive.lease WHERE destination IN ('hanging-record', 'follows')"
_CLAIMS = """
SELECT m.key, extract(epoch FROM a.claimed_at)::float8
  FROM redrive.attempt a JOIN redrive.message m ON m.id = a.message_id
 WHERE a.destination = %s AND a.claimed_at IS NOT NULL
"""


def open_transaction(environment: CaseEnvironment) -> list[Figure]:
    """A caller cancels a message in flight and leaves its transaction open.

    Neighbours beside it, what a stop leaves behind, and what goes out twice.
    """
    relay = environment.start_relay()
    environment.send("slow", ["held"], {"seconds": SENDING_SECONDS})
    environment.wait_begun(["held"])
    quiet = environment.measure_neighbours("quiet")
    with psycopg.connect(environment.dsn) as caller:
        caller.execute(CANCEL, ["held"])
        environment.ended.wait(SENDING_SECONDS)  # it has been sent, and its claim is held by the caller
        beside = environment.measure_neighbours("beside")
        relay.signal(signal.SIGTERM)
        relay.wait(STOP_SECONDS)
        owned = environment.value("SELECT count(*) FROM redrive.lease WHERE destination <> 'slow'")
        caller.rollback()
    return [
        Figure("neighbours' p99 in a quiet run", quiet.p99_ms, "ms"),
        Figure("neighbours' p99 beside the open cancel", beside.p99_ms, "ms", bound=1000.0),
        Figure("messages of others still owned after a stop", owned, bound=0),
        Figure("messages sent twice", environment.sent_twice(), bound=0),
    ]


def records(environment: CaseEnvironment) -> list[Figure]:
    """Records of one destination hang, and those of another wait for an ordering key that a producer holds open.

    How long after the commit of its message a record of a third destination begins, and what was parked of those that
    wait.
    """
    environment.start_relay()
    quiet = environment.measure_neighbours("quiet", destination="booked")
    with psycopg.connect(environment.dsn) as producer:
        redrive.enqueue(producer, NEIGHBOUR, {}, order_by=HELD_KEY)
        for destination in ("hanging-record", "follows"):
            environment.send(destination, [f"{destination}/{number}" for number in range(IN_TROUBLE)])
        environment.wait(lambda: environment.value(_CLAIMED) == 2 * IN_TROUBLE, seconds=5)
        beside = environment.measure_neighbours("beside", destination="booked")
        parked = environment.value("SELECT count(*) FROM redrive.parked WHERE destination = 'follows'")
        producer.rollback()
    return [
        Figure("p99 from commit to record in a quiet run", quiet.p99_ms, "ms"),
        Figure("p99 beside the records that hang and wait", beside.p99_ms, "ms", bound=1000.0),
        Figure("messages whose record did not begin", beside.missing, bound=0),
        Figure("messages parked while their record waits", parked, bound=0),
    ]


def threads(environment: CaseEnvironment) -> list[Figure]:
    """A plain function has three slots, and one message for which it never returns.

    What its neighbours of the same destination notice after three of its attempts, and whether it is parked.
    """
    environment.start_relay()
    environment.send("threads", ["blocks"], {"blocks": True})
    environment.wait(lambda: len(environment.begun().get("blocks", [])) > 2, seconds=PARKED_SECONDS)
    healthy = environment.measure_neighbours("healthy", count=HEALTHY, destination="threads", payload={"blocks": False})
    parked = "SELECT count(*) FROM redrive.parked WHERE destination = 'threads'"
    environment.wait(lambda: environment.value(parked) == 1, seconds=PARKED_SECONDS)
    return [
        Figure("neighbours' p99 in the same destination", healthy.p99_ms, "ms", bound=1000.0),
        Figure("neighbours that were not sent", healthy.missing, bound=0),
        Figure("messages that never return and are not parked", 1 - environment.value(parked), bound=0),
    ]


def cancel(environment: CaseEnvironment) -> list[Figure]:
    """Messages are cancelled that wait in a relay's queue for a slot.

    How many of them were begun long after the commit of their cancel, and how late the latest was.
    """
    keys = [f"waits/{number}" for number in range(WAITING)]
    environment.send("slow", keys, {"seconds": EACH_SECONDS})
    environment.start_relay(limits={"concurrency": 1, "horizon_seconds": 10.0})  # so it claims far ahead
    environment.wait_begun(keys[:1])
    claimed = "SELECT count(*) FROM redrive.lease WHERE destination = 'slow'"
    environment.wait(lambda: environment.value(claimed) > WAITING / 2, seconds=30)
    cancelled: dict[str, float] = {}
    answers: list[str] = []
    with psycopg.connect(environment.dsn, autocommit=True) as conn:
        for key in keys[1::2]:
            answers += [row[0] for row in conn.execute(CANCEL, [key])]
            cancelled[key] = time.monotonic()
    environment.wait_begun(keys[::2])
    begun = environment.begun()
    late = [min(begun[key]) - at for key, at in cancelled.items() if key in begun]
    too_late = sum(seconds > FRESH_SECONDS + ROUND_TRIP_SECONDS for seconds in late)
    return [
        Figure("messages cancelled", len(cancelled)),
        Figure("of them claimed by then (in_flight)", answers.count("in_flight")),
        Figure("begun more than 0.25 s and a round trip after the commit", too_late, bound=0),
        Figure("latest begin after a commit", max([*late, 0.0]) * 1000, "ms"),
    ]


def suspects(environment: CaseEnvironment) -> list[Figure]:
    """A relay dies with messages of two destinations in flight, and one of the destinations hangs.

    How long after the kill the fast ones run again: their leases run out, a child process starts and runs them.
    """
    fast = [f"fast/{number}" for number in range(SUSPECTS)]
    hanging = [f"hanging/{number}" for number in range(SUSPECTS)]
    relay = environment.start_relay()
    environment.send("hanging", hanging)
    environment.send("fast", fast)
    environment.wait_begun([*hanging, *fast])
    relay.signal(signal.SIGKILL)
    killed_at = time.monotonic()
    environment.start_relay()
    environment.wait(lambda: all(len(environment.begun()[key]) > 1 for key in fast), seconds=HEALED_SECONDS)
    begun = environment.begun()
    missing = sum(len(begun[key]) < 2 for key in fast)
    last = max([killed_at, *(max(begun[key]) for key in fast)])
    after = f"after the kill the last of {SUSPECTS} fast suspects began"
    return [
        Figure("suspects of the fast destination that were not run", missing, bound=0),
        Figure(after, last - killed_at, "s", bound=30.0),
        Figure("what one of the hanging suspects takes", SUSPECT_TIMEOUT_SECONDS, "s"),
    ]


def rate(environment: CaseEnvironment) -> list[Figure]:
    """A destination has a rate, and more waits than it lets out.

    The largest number in any second, wherever it begins; the first ones come after a quiet time. What is promised is
    counted in claims: in any second no more than the rate, rounded up. A handler begins some time after its claim; the
    promise holds for handlers too while that takes less than 25 ms, which a busy machine may exceed.
    """
    environment.start_relay()
    environment.start_relay()
    keys = [f"rated/{number}" for number in range(RATED_MESSAGES)]
    environment.send(RATED, keys)
    environment.wait_begun(keys)
    begun = {key: min(times) for key, times in environment.begun().items()}
    environment.wait(lambda: len(environment.rows(_CLAIMS, RATED)) >= len(keys), seconds=10)
    claimed = dict(environment.rows(_CLAIMS, RATED))
    waited = {key: begun[key] - claimed[key] for key in claimed.keys() & begun.keys()}
    promptest = min(waited.values())  # the two clocks differ by so much, and a little
    late = sum(seconds - promptest > PROMPT_SECONDS for seconds in waited.values())
    most = math.ceil(RATED_PER_SECOND)
    whole = max(begun.values()) - min(begun.values())
    at_once = f"claimed in any second, at {RATED_PER_SECOND:g} a second by two relays"
    begins = f"begun in any second; {late} of {RATED_MESSAGES} began more than 25 ms after their claim"
    return [
        Figure(at_once, most_in_a_second(list(claimed.values())), bound=most),
        Figure(begins, most_in_a_second(list(begun.values())), bound=most + late),
        Figure("a second, over the whole time", (RATED_MESSAGES - most) / whole),
    ]
