"""Runs many cases in one database and says what they came to; the tests only choose which cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from tests.interleavings.cases import HELPERS, Case, Ran, Runner
from tests.interleavings.oracle import Serial, broken, described
from tests.interleavings.sessions import sessions

SHOWN = 12


@dataclass
class Tally:
    """How many cases ran, in how many of them somebody waited, and the failures."""

    cases: int = 0
    waited: int = 0
    failures: list[str] = field(default_factory=list)
    answers: Counter[tuple[str, str | None]] = field(default_factory=Counter)

    def __str__(self) -> str:
        return f"{self.cases} interleavings, {self.waited} with a wait, {len(self.failures)} failed"

    def note(self, ran: Ran) -> None:
        self.cases += 1
        self.waited += bool(ran.blocked)
        self.answers.update((c.verb, r.value) for c, r in zip(ran.calls, ran.replies, strict=True))
        self.failures += [f"{sentence} | {described(ran)}" for sentence in broken(ran)]

    def report(self) -> str:
        return "\n".join([str(self), *self.failures])


@contextmanager
def runner(dsn: str, session_count: int) -> Iterator[Runner]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(HELPERS.encode())
    with sessions(dsn, session_count + 1) as (observer, *others):
        yield Runner(others, observer)


def run_all(dsn: str, chosen: Iterable[Case], *, session_count: int) -> Tally:
    """Every case, its invariants, and a serial order that explains it. A dozen failures are enough to stop."""
    tally = Tally()
    with runner(dsn, session_count) as one_by_one:

        def run(case: Case) -> Ran:
            ran = one_by_one.run(case)
            tally.note(ran)
            return ran

        serial = Serial(run)
        for case in chosen:
            ran = run(case)
            serial.learn(ran)
            if not broken(ran) and not serial.explains(ran):
                tally.failures.append(f"no serial order ends like this | {described(ran)}")
            if len(tally.failures) >= SHOWN:
                break
    return tally
