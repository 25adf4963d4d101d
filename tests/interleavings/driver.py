"""Runs many cases in one database and says what they came to; the tests only choose which cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from tests.interleavings import oracle
from tests.interleavings.cases import Case, Ran, Runner
from tests.interleavings.serial import Serial, described
from tests.interleavings.sessions import sessions
from tests.interleavings.subject import Subject
from tests.interleavings.verbs import MESSAGE

SHOWN = 12

Broken = Callable[[Ran], list[str]]


@dataclass
class Tally:
    """How many cases ran, in how many of them somebody waited, and the failures."""

    cases: int = 0
    waited: int = 0
    failures: list[str] = field(default_factory=list)
    answers: Counter[tuple[str, str | None]] = field(default_factory=Counter)

    def __str__(self) -> str:
        return f"{self.cases} interleavings, {self.waited} with a wait, {len(self.failures)} failed"

    def note(self, ran: Ran, broken: Sequence[str]) -> None:
        self.cases += 1
        self.waited += bool(ran.blocked)
        self.answers.update((c.verb, r.value) for c, r in zip(ran.calls, ran.replies, strict=True))
        self.failures += [f"{sentence} | {described(ran)}" for sentence in broken]

    def report(self) -> str:
        return "\n".join([str(self), *self.failures])


@contextmanager
def runner(dsn: str, session_count: int, subject: Subject) -> Iterator[Runner]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(subject.helpers.encode())
    with sessions(dsn, session_count + 1) as (observer, *others):
        yield Runner(others, observer, subject)


def run_all(
    dsn: str,
    chosen: Iterable[Case],
    *,
    session_count: int,
    subject: Subject = MESSAGE,
    broken: Broken = oracle.broken,
) -> Tally:
    """Every case, its invariants, and a serial order that explains it. A dozen failures are enough to stop."""
    tally = Tally()
    with runner(dsn, session_count, subject) as one_by_one:

        def run(case: Case) -> tuple[Ran, list[str]]:
            ran = one_by_one.run(case)
            found = broken(ran)
            tally.note(ran, found)
            return ran, found

        serial = Serial(lambda case: run(case)[0], subject)
        for case in chosen:
            ran, found = run(case)
            serial.learn(ran)
            if not found and not serial.explains(ran):
                tally.failures.append(f"no serial order ends like this | {described(ran)}")
            if len(tally.failures) >= SHOWN:
                break
    return tally
