"""Cases of HTTP: one peer is in trouble, and the neighbours have URLs of their own."""

from contextlib import ExitStack

from redrive.prove.isolation.environment import CaseEnvironment, Delays, Figure
from redrive.prove.isolation.peers import peer

HOOKS = "hooks"
RESTING = 2000
EACH = 50  # messages to each hostile peer
NOISE_MS = 100.0  # what a machine with other work may add to any delay


def limit_keys(environment: CaseEnvironment) -> list[Figure]:
    """One tenant's host answers 429 with Retry-After; the others have URLs of their own.

    The others' delay behind two thousand messages of the host that rests.
    """
    with peer("well") as well, peer("resting") as resting:
        quiet = _quiet(environment, well)
        environment.send(HOOKS, [f"resting/{number}" for number in range(RESTING)], {"url": resting})
        beside = _neighbours(environment, "beside", well)
        sent = sum(len(times) for key, times in environment.begun().items() if key.startswith("resting/"))
        claims = environment.value("SELECT max(attempt) FROM redrive.pending")
    return [
        Figure("the others' p99 in a quiet run", quiet.p99_ms, "ms"),
        Figure("the others' p99 beside the host that rests", beside.p99_ms, "ms", bound=1000.0),
        Figure("messages of the others that did not arrive", beside.missing, bound=0),
        Figure("messages sent to the host that rests", sent, bound=20),
        Figure("claims of each message that was put off", claims, bound=2),
    ]


def hostile_peers(environment: CaseEnvironment) -> list[Figure]:
    """One peer and then four that never come to their answer; the neighbours have URLs of their own.

    Their delay beside one and four such peers, against a quiet run.
    """
    with peer("well") as well:
        quiet = _quiet(environment, well)
        figures = [Figure("neighbours' p99 in a quiet run", quiet.p99_ms, "ms")]
        for kind in ("endless", "dribbling"):
            for count in (1, 4):
                p99_ms = _beside(environment, kind, count, well).p99_ms
                bound = max(2 * quiet.p99_ms, NOISE_MS)
                figures.append(Figure(f"neighbours' p99 beside {count} {kind}", p99_ms, "ms", bound=bound))
    return figures


def _beside(environment: CaseEnvironment, kind: str, count: int, well: str) -> Delays:
    with ExitStack() as stack:
        for place in range(count):
            url = stack.enter_context(peer(kind))
            environment.send(HOOKS, [f"{kind}/{count}/{place}/{number}" for number in range(EACH)], {"url": url})
        return _neighbours(environment, f"beside {count} {kind}", well)


def _quiet(environment: CaseEnvironment, well: str) -> Delays:
    environment.start_relay(app="redrive.prove.isolation.hooks_app:app")
    _neighbours(environment, "first", well, count=50)
    return _neighbours(environment, "quiet", well)


def _neighbours(environment: CaseEnvironment, name: str, well: str, *, count: int = 200) -> Delays:
    return environment.measure_neighbours(name, count=count, destination=HOOKS, payload={"url": well})
