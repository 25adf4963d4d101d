"""What must hold after every case.

`broken` lists the invariants that a case has broken: one place, one closing row, dense attempts, the fence, evidence
of refused outcomes, truthful cancels, no error, nobody waiting who must not. `serial.Serial` adds the strongest.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from tests.interleavings.cases import Ran
from tests.interleavings.verbs import REVIVING, SETTLING, SKIPPING

ENDING_A_CLAIM = frozenset({"settle", "hand_back", "reap"})
SETTLED_BEFORE = frozenset({"dead", "held", "unrecorded", "closed"})


def broken(ran: Ran) -> list[str]:
    """The sentences that are not true of this case; none when all is well."""
    return [
        *statements(ran, SKIPPING),
        *_places(ran.facts),
        *_attempts(ran.facts),
        *_outcomes(ran),
        *_cancels(ran),
    ]


def statements(ran: Ran, skipping: Container[str]) -> Iterator[str]:
    for session, (call, reply) in enumerate(zip(ran.calls, ran.replies, strict=True)):
        if reply.sqlstate is not None and session not in ran.undone:
            yield f"{call.verb} failed with {reply.sqlstate}: {reply.text}"
    for reply in ran.ends:
        if reply.sqlstate is not None:
            yield f"the end of a transaction failed with {reply.sqlstate}: {reply.text}"
    for session in ran.blocked:
        if ran.case.verbs[session] in skipping:
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
