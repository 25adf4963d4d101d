"""Many members, one summary: what is to happen once, when every member of a batch has been reported.

    batches = Batches("imports", source=Imports(), gates=[Gate("summary", opens=all_reported, passed=send_summary)])
    batches.report(conn, id, steps)      # a member, in its own transaction: refused once the batch is closed
    batches.decide(conn, id)             # in a transaction of its own: passes the gates that are open
    app.add_duty(batches.duty())         # decides every open batch, so that none waits for an event that was lost

Two last members that are reported at once do not see each other, so neither may decide. `decide` locks the batch alone,
which waits for every report that is under way, and takes the tally in a new statement, which sees them all. What a gate
does (`passed`) commits together with its mark, so it happens once. docs/how-to/summarise-a-batch.md has an example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

from redrive import Duty
from redrive.kit.database import Database, TransientFailure, database_duty
from redrive.kit.statements import Steps, arun, run

__all__ = ["BatchSource", "Batches", "Decided", "Gate"]

Tally = TypeVar("Tally")
EVERY_SECONDS: Final = 30.0
PAGE: Final = 200


class BatchSource(Protocol[Tally]):
    """Your tables. Each method is steps: it yields `(sql, values)`, gets the rows, and returns the result.

    lock: locks the row of a batch and returns whether it is sealed and not closed. is_alone: alone (FOR NO KEY UPDATE),
    else shared (FOR SHARE), sealed or not. tally: what the gates are decided by, always counted from the members.
    passed: which gates were passed. mark: keeps that one was. waiting: ids of sealed batches that are not closed, in
    order, behind one. rebuild: corrects the roll-ups from the members and returns how many were wrong.
    """

    def lock(self, id: UUID, *, is_alone: bool) -> Steps[bool]: ...

    def tally(self, id: UUID) -> Steps[Tally]: ...

    def passed(self, id: UUID) -> Steps[frozenset[str]]: ...

    def mark(self, id: UUID, gate: str, tally: Tally) -> Steps[None]: ...

    def waiting(self, after: UUID | None, limit: int) -> Steps[Sequence[UUID]]: ...

    def rebuild(self, id: UUID) -> Steps[int]: ...


@dataclass(frozen=True, kw_only=True)
class Gate(Generic[Tally]):
    """What happens once in the life of a batch; gates are passed in their order, the last one closes the batch.

    opens: whether it is to be passed. passed: steps that do it, such as an enqueue, in the transaction of its mark.
    is_overdue, expire: at the deadline `expire` gives up members that are still open, and the gate is looked at again.
    None = there is no deadline.
    """

    name: str
    opens: Callable[[Tally], bool]
    passed: Callable[[UUID, Tally], Steps[None]]
    is_overdue: Callable[[Tally], bool] | None = None
    expire: Callable[[UUID, Tally], Steps[None]] | None = None


@dataclass
class Decided:
    """batches: looked at. gates: passed, by their names, in order."""

    batches: int = 0
    gates: int = 0

    def __str__(self) -> str:
        return f"{self.batches} open, {self.gates} gates passed"


class Batches(Generic[Tally]):
    """name: of the duty, `NAME.gates`."""

    def __init__(self, name: str, *, source: BatchSource[Tally], gates: Sequence[Gate[Tally]]) -> None:
        self.name = name
        self.source = source
        self.gates = tuple(gates)

    def report(self, conn: Any, id: UUID, member: Steps[None]) -> bool:
        """Run `member`, the steps that keep a member's outcome, in the transaction of `conn`.

        False, and nothing is run: the batch is closed, and the member is late.
        """
        return run(conn, self._report(id, member))

    async def areport(self, conn: Any, id: UUID, member: Steps[None]) -> bool:
        """`report` for an asynchronous connection."""
        return await arun(conn, self._report(id, member))

    def decide(self, conn: Any, id: UUID) -> Sequence[str]:
        """Pass the gates that are open, in the transaction of `conn`, which has reported no member.

        Returns their names.
        """
        return run(conn, self.decide_steps(id))

    async def adecide(self, conn: Any, id: UUID) -> Sequence[str]:
        """`decide` for an asynchronous connection."""
        return await arun(conn, self.decide_steps(id))

    def rebuild(self, conn: Any, id: UUID) -> int:
        """Correct the roll-ups of a batch from its members; returns how many were wrong."""
        return run(conn, self.source.rebuild(id))

    def duty(self, *, every_seconds: float = EVERY_SECONDS) -> Duty:
        """Decides every open batch, each in a transaction of its own."""
        return database_duty(f"{self.name}.gates", self.decide_all, every_seconds=every_seconds)

    async def decide_all(self, database: Database) -> Decided:
        """What the duty does once. A batch that cannot be decided does not keep the others; its error ends the run."""
        decided, failures, after = Decided(), list[Exception](), None
        while page := await self._in_transaction(database, self.source.waiting(after, PAGE)):
            for id in page:
                decided.batches += 1
                try:
                    decided.gates += len(await self._in_transaction(database, self.decide_steps(id)))
                except TransientFailure:
                    raise  # so would all others
                except Exception as error:
                    failures.append(error)
            after = page[-1]
        if failures:
            raise failures[0]
        return decided

    def decide_steps(self, id: UUID) -> Steps[list[str]]:
        """`decide` as statements."""
        names: list[str] = []
        if not (yield from self.source.lock(id, is_alone=True)):
            return names
        before = yield from self.source.passed(id)
        for gate in self.gates:
            if gate.name in before:
                continue
            # A new statement, and after a gate was passed another one: it sees what that wrote.
            tally = yield from self._look(id, gate)
            if not gate.opens(tally):
                break
            yield from self.source.mark(id, gate.name, tally)
            yield from gate.passed(id, tally)
            names.append(gate.name)
        return names

    def _look(self, id: UUID, gate: Gate[Tally]) -> Steps[Tally]:
        tally = yield from self.source.tally(id)
        if gate.expire is not None and gate.is_overdue is not None and gate.is_overdue(tally) and not gate.opens(tally):
            yield from gate.expire(id, tally)
            tally = yield from self.source.tally(id)
        return tally

    def _report(self, id: UUID, member: Steps[None]) -> Steps[bool]:
        if not (yield from self.source.lock(id, is_alone=False)):
            return False
        yield from member
        return True

    async def _in_transaction(self, database: Database, steps: Steps[Any]) -> Any:
        async with database.connection(self.name) as conn, conn.transaction():
            return await arun(conn, steps)
