"""A caller cancels a message in flight and leaves its transaction open."""

from __future__ import annotations

import signal

import psycopg

from redrive.prove.isolation.environment import CaseEnvironment, Figure

SENDING_SECONDS = 2.0
STOP_SECONDS = 30.0


def run(environment: CaseEnvironment) -> list[Figure]:
    """Neighbours beside it, what a stop leaves behind, and what goes out twice."""
    relay = environment.start_relay()
    environment.send("slow", ["held"], {"seconds": SENDING_SECONDS})
    environment.wait_begun(["held"])
    quiet = environment.measure_neighbours("quiet")
    with psycopg.connect(environment.dsn) as caller:
        caller.execute("SELECT redrive.cancel_1(id) FROM redrive.message WHERE key = 'held'")
        environment.ended.wait(SENDING_SECONDS)  # it has been sent, and its claim is held by the caller
        beside = environment.measure_neighbours("beside")
        relay.signal(signal.SIGTERM)
        relay.wait(STOP_SECONDS)
        owned = environment.value("SELECT count(*) FROM redrive.lease WHERE destination <> 'slow'")
        caller.rollback()
    twice = sum(len(times) > 1 for times in environment.begun().values())
    return [
        Figure("neighbours' p99 in a quiet run", quiet.p99_ms, "ms"),
        Figure("neighbours' p99 beside the open cancel", beside.p99_ms, "ms", bound=1000.0),
        Figure("messages of others still owned after a stop", owned, "", bound=0),
        Figure("messages sent twice", twice, "", bound=0),
    ]
