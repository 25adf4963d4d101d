"""What cases are about: one message (`verbs.MESSAGE`), or one lane with its messages (`lane_verbs.LANE`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from tests.interleavings.sessions import Reply


@dataclass(frozen=True)
class Holder:
    """Who settles, hands back and renews: the first claim that is known to be committed."""

    worker: UUID
    attempt: int
    sequence: int = 1


@dataclass(frozen=True)
class Call:
    """One verb as it was issued, and by when."""

    verb: str
    worker: UUID
    attempt: int
    sql: str


class CallOf(Protocol):
    """The statement of a verb. subject: what prepare gave. now: an SQL expression."""

    def __call__(self, verb: str, *, subject: str, session: int, holder: Holder, now: str) -> Call: ...


@dataclass(frozen=True)
class Subject:
    """helpers: SQL, run once. prepare and facts: statements with {state}, {subject} and {now}.

    skipping: verbs that look past a row that somebody else has locked; they never wait for anybody.
    claimed: who holds what this reply says was claimed, if it says so.
    openings: how a transaction begins before the case, where it does; forgiven: errors that a verb may end with, as if
    it had never been; plain: a verb that does the same in a serial order; lesser: what a verb may come to instead where
    another transaction is open beside it. aside: facts that may differ from those of a serial order.
    """

    helpers: str
    prepare: str
    facts: str
    skipping: frozenset[str]
    holder_of: Callable[[str], Holder]
    call: CallOf
    claimed: Callable[[Call, Reply], Holder | None]
    openings: Mapping[str, str] = field(default_factory=dict)
    forgiven: Mapping[str, frozenset[str]] = field(default_factory=dict)
    plain: Mapping[str, str] = field(default_factory=dict)
    lesser: Mapping[str, str] = field(default_factory=dict)
    aside: frozenset[str] = frozenset()
