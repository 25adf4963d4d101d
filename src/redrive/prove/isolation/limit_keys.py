"""One tenant's host asks for a rest of an hour; the others have URLs of their own."""

from __future__ import annotations

from redrive.prove.isolation.case import Case, Figure
from redrive.prove.isolation.environment import CaseEnvironment
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
        Figure(what="the others' p99 in a quiet run", measured=quiet.p99_ms, unit="ms"),
        Figure(what="the others' p99 beside the host that rests", measured=beside.p99_ms, unit="ms", bound=1000.0),
        Figure(what="messages of the others that did not arrive", measured=beside.missing, unit="", bound=0),
        Figure(what="messages sent to the host that rests", measured=sent, unit="", bound=20),
        Figure(what="claims of each message that was put off", measured=claims, unit="", bound=2),
    ]


CASE = Case(
    name="limit-keys",
    title="One tenant's host answers 429 with Retry-After; the others have URLs of their own.",
    run=run,
)
