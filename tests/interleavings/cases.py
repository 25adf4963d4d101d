"""Which cases there are, and how one is run.

A case is a state, a verb per session, how each session ends (commit or rollback), and an order of the steps
`verb` and `end` of all sessions. Sessions are numbered in the order in which their verbs are issued; with every
ordered choice of verbs that leaves no order out. A verb that blocks is left waiting, the next steps run, and its
session ends as soon as it has its answer.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.interleavings.sessions import Progress, Reply, Session
from tests.interleavings.verbs import OWNER, STEP_SECONDS, Call, Holder, call, holder_of

HELPERS = (Path(__file__).parent / "states.sql").read_text()
# A day ahead: later than any lease that the server's start could excuse.
BEGINNING = "(date_trunc('day', statement_timestamp()) + interval '2 days')"

BUSY_RUNS = 3

Order = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """order: session numbers; the first time a number occurs its verb is issued, the second time it ends."""

    state: str
    verbs: tuple[str, ...]
    commits: tuple[bool, ...]
    order: Order

    def __str__(self) -> str:
        said: list[str] = []
        for place, session in enumerate(self.order):
            first = session not in self.order[:place]
            end = "commit" if self.commits[session] else "rollback"
            said.append(f"{session + 1}:{self.verbs[session] if first else end}")
        return f"{self.state}: " + " ".join(said)


@dataclass
class Ran:
    """What happened. trace: the order as it came to be, in which a verb that waited ends later than the case asked for.

    blocked: sessions whose verb had to wait. facts: all that is known of the message afterwards.
    """

    case: Case
    id: UUID
    calls: list[Call]
    replies: list[Reply]
    trace: Order = ()
    blocked: set[int] = field(default_factory=set)
    ends: list[Reply] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


@cache
def orders(sessions: int) -> tuple[Order, ...]:
    """All orders of the steps in which the verbs are issued by session 0 first, then 1, then 2."""
    steps = [session for session in range(sessions) for _ in range(2)]
    distinct = sorted(set(itertools.permutations(steps)))
    return tuple(o for o in distinct if list(dict.fromkeys(o)) == list(range(sessions)))


def serial(sessions: int) -> Order:
    return tuple(session for session in range(sessions) for _ in range(2))


def overlaps(order: Order, one: int, other: int) -> bool:
    """Whether the two transactions were open at the same time."""
    return order.index(one) < _end(order, other) and order.index(other) < _end(order, one)


def precedes(order: Order, one: int, other: int) -> bool:
    """Whether the first had ended before the other's verb was issued."""
    return _end(order, one) < order.index(other)


def _end(order: Order, session: int) -> int:
    return len(order) - 1 - order[::-1].index(session)


def cases(state: str, verbs: Sequence[str], sessions: int) -> Iterator[Case]:
    """Every choice of verbs, every order; all commit, and wherever transactions overlap also one rollback."""
    endings = [tuple(True for _ in range(sessions))]
    endings += [tuple(other != one for other in range(sessions)) for one in range(sessions)]
    for chosen in itertools.product(verbs, repeat=sessions):
        for order in orders(sessions):
            for commits in endings:
                if all(commits) or _is_seen(order, commits.index(False)):
                    yield Case(state, chosen, commits, order)


def _is_seen(order: Order, rolled_back: int) -> bool:
    """A transaction that is rolled back beside nobody is as if it had never been."""
    return any(overlaps(order, rolled_back, other) for other in set(order) if other != rolled_back)


class Runner:
    """Runs cases one after the other in one database."""

    def __init__(self, sessions: Sequence[Session], observer: Session) -> None:
        self._sessions = sessions
        self._observer = observer
        self._beginning = f"'{observer.run(f'SELECT {BEGINNING}').value}'::timestamptz"

    def run(self, case: Case) -> Ran:
        """A cancel gives up after a second; where the machine stood still for so long, the case is run again."""
        for _ in range(BUSY_RUNS):
            ran = self._run_once(case)
            if all(reply.value != "busy" for reply in ran.replies):
                break
        return ran

    def _run_once(self, case: Case) -> Ran:
        prepare = f"SELECT interleaving.prepare('{case.state}', '{OWNER}', {self._now(0)})"
        reply = self._observer.run(f"SELECT interleaving.clear(); {prepare}")
        assert reply.value is not None, reply
        ran = Ran(case, UUID(reply.value), [], [Reply() for _ in case.verbs])
        _Course(self._sessions, self._observer, ran, self._now).take()
        facts = self._observer.run(f"SELECT interleaving.facts('{ran.id}')")
        assert facts.value is not None, facts
        ran.facts = json.loads(facts.value)
        return ran

    def _now(self, step: int) -> str:
        return f"{self._beginning} + {step * STEP_SECONDS} * interval '1 second'"


class _Course:
    """One case under way."""

    def __init__(self, sessions: Sequence[Session], observer: Session, ran: Ran, now: Callable[[int], str]) -> None:
        self._sessions, self._observer, self._ran, self._now = sessions, observer, ran, now
        self._holder = holder_of(ran.case.state)
        self._waiting: list[int] = []
        self._to_end: set[int] = set()

    def take(self) -> None:
        seen: set[int] = set()
        for session in self._ran.case.order:
            if session in seen:
                self._end_or_postpone(session)
            else:
                seen.add(session)
                self._issue(session)
        assert not self._waiting, f"sessions {self._waiting} wait for ever"

    def _issue(self, session: int) -> None:
        case, step = self._ran.case, len(self._ran.calls) + 1
        issued = call(
            case.verbs[session], message=self._ran.id, session=session, holder=self._holder, now=self._now(step)
        )
        self._ran.calls.append(issued)
        self._ran.trace += (session,)
        self._sessions[session].send(f"BEGIN; {issued.sql}")
        if self._progress(session) == "blocked":
            self._ran.blocked.add(session)
            self._waiting.append(session)
        else:
            self._ran.replies[session] = self._sessions[session].reply

    def _progress(self, session: int) -> Progress:
        return self._sessions[session].progress(self._observer, self._sessions)

    def _end_or_postpone(self, session: int) -> None:
        if session in self._waiting:
            self._to_end.add(session)
        else:
            self._end(session)

    def _end(self, session: int) -> None:
        commit = self._ran.case.commits[session]
        self._ran.trace += (session,)
        self._ran.ends.append(self._sessions[session].run("COMMIT" if commit else "ROLLBACK"))
        reply = self._ran.replies[session]
        claimed = self._ran.case.verbs[session] == "claim" and (reply.value or "").isdigit()
        if commit and claimed and self._holder.attempt == 0:
            self._holder = Holder(self._ran.calls[session].worker, int(reply.value or 0))
        self._wake()

    def _wake(self) -> None:
        """Those that waited for whoever has just ended: each has its answer now, or waits for the next."""
        for session in list(self._waiting):
            if session in self._waiting and self._progress(session) == "done":
                self._waiting.remove(session)
                self._ran.replies[session] = self._sessions[session].reply
                if session in self._to_end:
                    self._to_end.remove(session)
                    self._end(session)
