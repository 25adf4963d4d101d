"""Messages are cancelled that wait in a relay's queue for a slot."""

from __future__ import annotations

import time

import psycopg

from redrive.prove.isolation.environment import CaseEnvironment, Figure
from redrive.relay.claiming.claim_checks import FRESH_SECONDS

MESSAGES = 40
EACH_SECONDS = 0.2
ROUND_TRIP_SECONDS = 0.25  # what a machine with other work may need for one statement
CANCEL = "SELECT redrive.cancel_1(id) FROM redrive.message WHERE key = %s"
CLAIMED = "SELECT count(*) FROM redrive.lease WHERE destination = 'slow'"


def run(environment: CaseEnvironment) -> list[Figure]:
    """How many of them were begun long after the commit of their cancel, and how late the latest was."""
    keys = [f"waits/{number}" for number in range(MESSAGES)]
    environment.send("slow", keys, {"seconds": EACH_SECONDS})
    environment.start_relay(limits={"concurrency": 1, "horizon_seconds": 10.0})  # so it claims far ahead
    environment.wait_begun(keys[:1])
    environment.wait(lambda: environment.value(CLAIMED) > MESSAGES / 2, seconds=30)
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
        Figure("messages cancelled", len(cancelled), ""),
        Figure("of them claimed by then (in_flight)", answers.count("in_flight"), ""),
        Figure("begun more than 0.25 s and a round trip after the commit", too_late, "", bound=0),
        Figure("latest begin after a commit", max([*late, 0.0]) * 1000, "ms"),
    ]
