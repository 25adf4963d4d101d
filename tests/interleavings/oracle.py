"""What must hold after every case.

`broken` lists the invariants that a case has broken: one place, one closing row, dense attempts, the fence, evidence
of refused outcomes, truthful cancels, no error, nobody waiting who must not. `Serial` adds the strongest of them:
whatever the interleaving, the message ends as *some* serial order of the committed verbs would have left it, in which
a verb that looks past locked rows may have found nothing when another transaction was open beside it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.interleavings.cases import Case, Ran, overlaps, precedes, serial
from tests.interleavings.verbs import REVIVING, SETTLING, SKIPPING

ENDING_A_CLAIM = frozenset({"settle", "hand_back", "reap"})
SETTLED_BEFORE = frozenset({"dead", "held", "unrecorded", "closed"})


def broken(ran: Ran) -> list[str]:
    """The sentences that are not true of this case; none when all is well."""
    return [
        *_statements(ran),
        *_places(ran.facts),
        *_attempts(ran.facts),
        *_outcomes(ran),
        *_cancels(ran),
    ]


def _statements(ran: Ran) -> Iterator[str]:
    for call, reply in zip(ran.calls, ran.replies, strict=True):
        if reply.sqlstate is not None:
            yield f"{call.verb} failed with {reply.sqlstate}: {reply.text}"
    for reply in ran.ends:
        if reply.sqlstate is not None:
            yield f"the end of a transaction failed with {reply.sqlstate}: {reply.text}"
    for session in ran.blocked:
        if ran.case.verbs[session] in SKIPPING:
            yield f"{ran.case.verbs[session]} waited for a lock"


def _places(facts: dict[str, Any]) -> Iterator[str]:
    closings = [row for row in facts["archive"] if row["closed"]]
    found = [name for name in ("pending", "lease", "parked") if facts[name]] + ["closed"] * len(closings)
    if len(found) != 1:
        yield f"the message is in {found or 'no place'}"
    if facts["state"] is None:
        yield "state_of does not know the message"


def _attempts(facts: dict[str, Any]) -> Iterator[str]:
    """Each claim ended in exactly one row of the archive, or is the lease; no number is left out."""
    ended = [row["attempt"] for row in facts["archive"] if row["verb"] in ENDING_A_CLAIM]
    held = [row["attempt"] for row in facts["lease"] or ()]
    if sorted(ended + held) != list(range(1, len(ended + held) + 1)):
        yield f"attempts ended {ended}, held {held}: not dense"
    for row in (*(facts["pending"] or ()), *(facts["parked"] or ())):
        if row["attempt"] != len(ended):
            yield f"{len(ended)} claims ended, but the message says {row['attempt']}"


def _outcomes(ran: Ran) -> Iterator[str]:
    """An outcome is accepted once for its claim; a refused one is kept as evidence; a rolled back one is neither."""
    accepted = int(ran.case.state in SETTLED_BEFORE)
    refused = 0
    for session, call in enumerate(ran.calls):
        if call.verb in SETTLING and ran.case.commits[session]:
            accepted += ran.replies[session].value == "settled"
            refused += ran.replies[session].value == "refused"
    archived = [row for row in ran.facts["archive"] if row["verb"] == "settle"]
    if len(archived) != accepted:
        yield f"{accepted} outcomes were accepted, {len(archived)} are in the archive"
    if len(ran.facts["late"]) != refused:
        yield f"{refused} outcomes were refused, {len(ran.facts['late'])} are kept as late answers"


def _cancels(ran: Ran) -> Iterator[str]:
    """What cancel said is true of everything that follows, unless a person sends the message again."""
    revived = any(_committed(ran, verb, "done") for verb in REVIVING)
    state = ran.facts["state"]
    waiting = (ran.facts["pending"] or ran.facts["lease"] or [{}])[0]
    for session, call in enumerate(ran.calls):
        if call.verb != "cancel" or not ran.case.commits[session]:
            continue
        answer = ran.replies[session].value
        if answer == "cancelled" and state != "cancelled":
            yield f"cancel said cancelled, but the message is {state}"
        elif answer == "cancelled" and _in_doubt_at_last(ran.facts) and not revived:
            yield "a message in doubt was cancelled without asking its destination"
        elif answer == "already_closed" and state in {"pending", "leased", "parked"}:
            yield f"cancel said already closed, but the message is {state}"
        elif answer in {"in_flight", "in_doubt"} and waiting and not revived:
            if not waiting["cancel_requested"]:
                yield f"cancel said {answer}, but the message is {state} without its flag"
            if state == "pending" and not waiting["in_doubt"]:
                yield f"cancel said {answer}, but a further attempt will be made"
        elif answer not in {"cancelled", "already_closed", "in_flight", "in_doubt", "parked"}:
            yield f"cancel said {answer}"


def _in_doubt_at_last(facts: dict[str, Any]) -> bool:
    """Whether the last claim left the outcome open; a claim that was handed back left what it found."""
    claims = [row for row in facts["archive"] if row["verb"] in ENDING_A_CLAIM]
    return bool(claims) and bool(max(claims, key=lambda row: row["attempt"])["in_doubt"])


def _committed(ran: Ran, verb: str, answer: str) -> bool:
    return any(
        call.verb == verb and ran.case.commits[session] and ran.replies[session].value == answer
        for session, call in enumerate(ran.calls)
    )


class Serial:
    """The outcomes of serial orders, found by running them, each once."""

    def __init__(self, run: Callable[[Case], Ran]) -> None:
        self._run = run
        self._known: dict[tuple[str, tuple[str, ...]], str] = {}

    def learn(self, ran: Ran) -> None:
        case = ran.case
        if case.order == serial(len(case.verbs)) and all(case.commits):
            self._known[case.state, case.verbs] = _digest(ran)

    def explains(self, ran: Ran) -> bool:
        """Whether some serial order ends as this case did."""
        outcome = _digest(ran)
        return any(self._outcome(ran.case.state, verbs) == outcome for verbs in _serial_orders(ran))

    def _outcome(self, state: str, verbs: tuple[str, ...]) -> str:
        if (state, verbs) not in self._known:
            count = len(verbs)
            self._known[state, verbs] = _digest(self._run(Case(state, verbs, (True,) * count, serial(count))))
        return self._known[state, verbs]


def _serial_orders(ran: Ran) -> Iterator[tuple[str, ...]]:
    case = ran.case
    committed = [session for session, commit in enumerate(case.commits) if commit]
    optional = [session for session in committed if _may_have_looked_past(ran, session)]
    for count in range(len(optional) + 1):
        for left_out in itertools.combinations(optional, count):
            chosen = [session for session in committed if session not in left_out]
            for order in itertools.permutations(chosen):
                if not any(precedes(ran.trace, b, a) for a, b in itertools.combinations(order, 2)):
                    yield tuple(case.verbs[session] for session in order)


def _may_have_looked_past(ran: Ran, session: int) -> bool:
    others = (other for other in range(len(ran.case.verbs)) if other != session)
    return ran.case.verbs[session] in SKIPPING and any(overlaps(ran.trace, session, other) for other in others)


def _digest(ran: Ran) -> str:
    return json.dumps(ran.facts, sort_keys=True)


def described(ran: Ran) -> str:
    """The case as a person reads it in a failure."""
    answers = ", ".join(f"{c.verb} → {r.value or r.sqlstate}" for c, r in zip(ran.calls, ran.replies, strict=True))
    waited = f"; waited: {sorted(s + 1 for s in ran.blocked)}" if ran.blocked else ""
    return f"{ran.case} | {answers}{waited} | {json.dumps(ran.facts)}"
