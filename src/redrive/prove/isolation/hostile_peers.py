"""One peer and then four that never come to their answer; the neighbours have URLs of their own."""

from __future__ import annotations

from contextlib import ExitStack

from redrive.prove.isolation.environment import CaseEnvironment, Delays, Figure
from redrive.prove.isolation.peers import peer

EACH = 50  # messages to each of them
NOISE_MS = 100.0  # what a machine with other work may add to any delay


def run(environment: CaseEnvironment) -> list[Figure]:
    """Neighbours with URLs of their own beside one and four such peers, against a quiet run."""
    with peer("well") as well:
        environment.start_relay(app="redrive.prove.isolation.hooks_app:app")
        environment.measure_neighbours("first", count=50, destination="hooks", payload={"url": well})
        quiet = environment.measure_neighbours("quiet", destination="hooks", payload={"url": well})
        bound = max(2 * quiet.p99_ms, NOISE_MS)
        figures = [Figure("neighbours' p99 in a quiet run", quiet.p99_ms, "ms")]
        for kind in ("endless", "dribbling"):
            for count in (1, 4):
                beside = _beside(environment, kind, count, well)
                what = f"neighbours' p99 beside {count} {kind}"
                figures.append(Figure(what, beside.p99_ms, "ms", bound=bound))
    return figures


def _beside(environment: CaseEnvironment, kind: str, count: int, well: str) -> Delays:
    with ExitStack() as stack:
        for place in range(count):
            url = stack.enter_context(peer(kind))
            environment.send("hooks", [f"{kind}/{count}/{place}/{number}" for number in range(EACH)], {"url": url})
        return environment.measure_neighbours(f"beside {count} {kind}", destination="hooks", payload={"url": well})
