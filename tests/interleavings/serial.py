"""The strongest of what must hold: whatever the interleaving, it ends as *some* serial order of the committed verbs
would have ended, in which a verb that looks past locked rows may have found nothing when another transaction was open
beside it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

from tests.interleavings.cases import Case, Ran, overlaps, precedes, serial
from tests.interleavings.subject import Subject


class Serial:
    """The outcomes of serial orders, found by running them, each once."""

    def __init__(self, run: Callable[[Case], Ran], subject: Subject) -> None:
        self._run = run
        self._subject = subject
        self._known: dict[tuple[str, tuple[str, ...]], str] = {}

    def learn(self, ran: Ran) -> None:
        case = ran.case
        if case.order == serial(len(case.verbs)) and all(case.commits):
            self._known[case.state, case.verbs] = self._digest(ran)

    def explains(self, ran: Ran) -> bool:
        """Whether some serial order ends as this case did."""
        outcome = self._digest(ran)
        return any(self._outcome(ran.case.state, verbs) == outcome for verbs in self._orders(ran))

    def _outcome(self, state: str, verbs: tuple[str, ...]) -> str:
        if (state, verbs) not in self._known:
            count = len(verbs)
            self._known[state, verbs] = self._digest(self._run(Case(state, verbs, (True,) * count, serial(count))))
        return self._known[state, verbs]

    def _digest(self, ran: Ran) -> str:
        return json.dumps({k: fact for k, fact in ran.facts.items() if k not in self._subject.aside}, sort_keys=True)

    def _orders(self, ran: Ran) -> Iterator[tuple[str, ...]]:
        case = ran.case
        committed = [session for session, commit in enumerate(case.commits) if commit and session not in ran.undone]
        for order in itertools.permutations(committed):
            if not any(precedes(ran.trace, b, a) for a, b in itertools.combinations(order, 2)):
                for chosen in itertools.product(*(self._may_have_been(ran, session) for session in order)):
                    yield tuple(itertools.chain.from_iterable(chosen))

    def _may_have_been(self, ran: Ran, session: int) -> Iterator[tuple[str, ...]]:
        """What this session did, as a serial order sees it: its verb; where it ran beside another, less, or nothing."""
        verb = ran.case.verbs[session]
        yield (self._subject.plain.get(verb, verb),)
        if any(overlaps(ran.trace, session, other) for other in range(len(ran.case.verbs)) if other != session):
            if verb in self._subject.lesser:
                yield (self._subject.lesser[verb],)
            if verb in self._subject.skipping:
                yield ()


def described(ran: Ran) -> str:
    """The case as a person reads it in a failure."""
    answers = ", ".join(f"{c.verb} → {r.value or r.sqlstate}" for c, r in zip(ran.calls, ran.replies, strict=True))
    waited = f"; waited: {sorted(s + 1 for s in ran.blocked)}" if ran.blocked else ""
    return f"{ran.case} | {answers}{waited} | {json.dumps(ran.facts)}"
