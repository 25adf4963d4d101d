"""Settling in *your* transaction: for users of an ORM whose writes must commit with the outcome.

    with Session.begin() as session:
        session.add(Invoice(...))
        redrive.complete(session.connection().connection, message, redrive.Delivered())

Raises `ClaimLost` when the claim was lost meanwhile: let it roll your transaction back. The relay then settles nothing
from the handler's return value: no lease means done, a lease means that you rolled back, so the effect is unknown
(docs/how-to/record-in-the-same-transaction.md).
"""

from __future__ import annotations

from random import SystemRandom
from typing import Any

from redrive import policy
from redrive.answers import Advance, Answer, Delivered
from redrive.errors import ClaimLost, UsageError
from redrive.message import Attempt
from redrive.ports import Outcome


def complete(conn: Any, attempt: Attempt, answer: Answer | None = None) -> None:
    """Settle on a psycopg connection, inside its open transaction."""
    query, values = _statement(attempt, answer)
    _check(attempt, conn.execute(query, values).fetchall())


async def acomplete(conn: Any, attempt: Attempt, answer: Answer | None = None) -> None:
    """The same on an async connection."""
    query, values = _statement(attempt, answer)
    _check(attempt, await (await conn.execute(query, values)).fetchall())


def _statement(attempt: Attempt, answer: Answer | None) -> tuple[Any, list[Any]]:
    from redrive.store.runtime.wire import settle_call

    completion = attempt.completion
    if completion.worker is None or completion.rules is None:
        raise UsageError(
            "complete() takes the attempt that a relay handed to its handler; this one was not claimed by a relay."
        )
    if isinstance(answer, Advance) and completion.rules.in_doubt == "lookup" and not completion.staged:
        raise UsageError(
            f"Destination {attempt.destination!r} has a lookup, so its stages have to be declared: staged=True."
        )
    completion.attempted = True
    settlement = policy.decide(
        attempt, answer or Delivered(), completion.rules, now=attempt.claimed_at, random=SystemRandom()
    )
    outcome = Outcome(attempt=attempt, settlement=settlement, policy_version=completion.rules.version)
    completion.outcome = outcome
    return settle_call(completion.worker, "complete", [outcome])


def _check(attempt: Attempt, lost: list[Any]) -> None:
    if lost:
        attempt.completion.outcome = None
        raise ClaimLost(f"Attempt {attempt.number} of message {attempt.id} is no longer ours; nothing was settled.")
