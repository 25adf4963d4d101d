"""Which cases there are, and how one is run.

A case is a state, a verb per session, how each session ends (commit or rollback), and an order of the steps
`verb` and `end` of all sessions. Sessions are numbered in the order in which their verbs are issued; with every
ordered choice of verbs that leaves no order out. A verb that blocks is left waiting, the next steps run, and its
session ends as soon as it has its answer.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.interleavings.sessions import DEADLINE_SECONDS, Progress, Reply, Session
from tests.interleavings.subject import Call, Subject

STEP_SECONDS = 100
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

    blocked: sessions whose verb had to wait. subject: the message or the lane. facts: all that is known of it
    afterwards. undone: sessions that ended with an error that is forgiven them.
    """

    case: Case
    subject: str
    calls: list[Call]
    replies: list[Reply]
    trace: Order = ()
    blocked: set[int] = field(default_factory=set)
    ends: list[Reply] = field(default_factory=list)
    undone: set[int] = field(default_factory=set)
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

    def __init__(self, sessions: Sequence[Session], observer: Session, subject: Subject) -> None:
        self._sessions = sessions
        self._observer = observer
        self._subject = subject
        self._beginning = f"'{observer.run(f'SELECT {BEGINNING}').value}'::timestamptz"

    def run(self, case: Case) -> Ran:
        """A cancel gives up after a second; where the machine stood still for so long, the case is run again."""
        for _ in range(BUSY_RUNS):
            ran = self._run_once(case)
            if all(reply.value != "busy" for reply in ran.replies):
                break
        return ran

    def _run_once(self, case: Case) -> Ran:
        reply = self._observer.run(self._subject.prepare.format(state=case.state, now=self._now(0)))
        assert reply.value is not None, reply
        ran = Ran(case, reply.value, [], [Reply() for _ in case.verbs])
        _Course(self._sessions, self._observer, self._subject, ran, self._now).take()
        end = self._now(len(case.verbs) + 1)
        facts = self._observer.run(self._subject.facts.format(subject=ran.subject, now=end))
        assert facts.value is not None, facts
        ran.facts = json.loads(facts.value)
        return ran

    def _now(self, step: int) -> str:
        return f"{self._beginning} + {step * STEP_SECONDS} * interval '1 second'"


class _Course:
    """One case under way."""

    def __init__(
        self,
        sessions: Sequence[Session],
        observer: Session,
        subject: Subject,
        ran: Ran,
        now: Callable[[int], str],
    ) -> None:
        self._sessions, self._observer, self._subject, self._ran, self._now = sessions, observer, subject, ran, now
        self._holder = subject.holder_of(ran.case.state)
        self._waiting: list[int] = []
        self._to_end: set[int] = set()

    def take(self) -> None:
        self._open()
        seen: set[int] = set()
        for session in self._ran.case.order:
            if session in seen:
                self._end_or_postpone(session)
            else:
                seen.add(session)
                self._issue(session)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self._waiting:  # for each other: the server ends one of them after a second
            assert time.monotonic() < deadline, f"sessions {self._waiting} wait for ever"
            self._wake()

    def _open(self) -> None:
        """Transactions whose snapshot is older than the case."""
        for session, verb in enumerate(self._ran.case.verbs):
            if verb in self._subject.openings:
                self._sessions[session].run(self._subject.openings[verb])

    def _issue(self, session: int) -> None:
        verb, step = self._ran.case.verbs[session], len(self._ran.calls) + 1
        issued = self._subject.call(
            verb, subject=self._ran.subject, session=session, holder=self._holder, now=self._now(step)
        )
        self._ran.calls.append(issued)
        self._ran.trace += (session,)
        self._sessions[session].send(issued.sql if verb in self._subject.openings else f"BEGIN; {issued.sql}")
        if self._progress(session) == "blocked":
            self._ran.blocked.add(session)
            self._waiting.append(session)
        else:
            self._answered(session)

    def _answered(self, session: int) -> None:
        self._ran.replies[session] = reply = self._sessions[session].reply
        if reply.sqlstate in self._subject.forgiven.get(self._ran.case.verbs[session], ()):
            self._ran.undone.add(session)

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
        claimed = self._subject.claimed(self._ran.calls[session], self._ran.replies[session])
        if commit and claimed is not None and self._holder.attempt == 0:
            self._holder = claimed
        self._wake()

    def _wake(self) -> None:
        """Those that waited for whoever has just ended: each has its answer now, or waits for the next."""
        for session in list(self._waiting):
            if session in self._waiting and self._progress(session) == "done":
                self._waiting.remove(session)
                self._answered(session)
                if session in self._to_end:
                    self._to_end.remove(session)
                    self._end(session)
