"""One tenant's host answers 429 with Retry-After; the others have URLs of their own."""

from __future__ import annotations

from redrive.prove.isolation.environment import CaseEnvironment, Figure
from redrive.prove.isolation.peers import peer

RESTING = 2000


def run(environment: CaseEnvironment) -> list[Figure]:
    """The others' delay behind two thousand messages of the host that rests."""
    with peer("well") as well, peer("resting") as resting:
        environment.start_relay(app="redrive.prove.isolation.hooks_app:app")
        environment.measure_neighbours("first", count=50, destination="hooks", payload={"url": well})
        quiet = environment.measure_neighbours("quiet", destination="hooks", payload={"url": well})
        environment.send("hooks", [f"resting/{number}" for number in range(RESTING)], {"url": resting})
        beside = environment.measure_neighbours("beside", destination="hooks", payload={"url": well})
        begun = environment.begun()
        sent = sum(len(times) for key, times in begun.items() if key.startswith("resting/"))
        claims = environment.value("SELECT max(attempt) FROM redrive.pending")
    return [
        Figure("the others' p99 in a quiet run", quiet.p99_ms, "ms"),
        Figure("the others' p99 beside the host that rests", beside.p99_ms, "ms", bound=1000.0),
        Figure("messages of the others that did not arrive", beside.missing, "", bound=0),
        Figure("messages sent to the host that rests", sent, "", bound=20),
        Figure("claims of each message that was put off", claims, "", bound=2),
    ]
