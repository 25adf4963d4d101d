"""One message in one transaction: receive, savepoint, handler, or defer; then commit. The worker acknowledges later.

If the handler fails, its writes are undone to the savepoint, while the inbox row and the lock of the ordering key stay:
so the message is deferred before another worker can have the key (docs/adr/015-inbox.md). A message that is too large
for the engine is not acknowledged: the engine keeps its place, and those behind it are deferred.
"""

from enum import StrEnum
from typing import Final, NamedTuple

import psycopg

from redrive.answers import Answer, Retryable
from redrive.consume.consumer import Arrived, Consumer
from redrive.consume.handling import BEHIND, CONNECTION_LOST, FAILED, SessionLost, call_handler, code_of
from redrive.consume.sessions import BEGIN, Session, Sessions
from redrive.errors import InvalidPayload, InvalidValue
from redrive.produce import inbox
from redrive.produce.inbox import Received

LOST_MAX: Final = 3  # connections that a handler may lose before its message is deferred


class Kind(StrEnum):
    """What became of a delivery."""

    PROCESSED = "processed"
    DEFERRED = "deferred"
    RESERVED = "reserved"
    SEEN = "seen"


class Result(NamedTuple):
    """code: why it was deferred, or why its place was reserved."""

    kind: Kind
    code: str | None = None


class DatabaseAway(Exception):
    """PostgreSQL cannot be reached, or refuses to write: nothing was committed that we know of. Try again."""


class Receiving:
    """Receives the messages of one consumer."""

    def __init__(self, consumer: Consumer, sessions: Sessions) -> None:
        self._consumer, self._sessions = consumer, sessions
        self._lost: dict[str, int] = {}

    async def receive(self, arrived: Arrived) -> Result:
        """Commits, or raises DatabaseAway. Safe to call again after it."""
        try:
            return await self._received(arrived)
        except SessionLost as lost:
            return await self._after_loss(arrived, lost.answer)
        except psycopg.Error as error:
            raise DatabaseAway from error

    async def _received(self, arrived: Arrived) -> Result:
        async with self._sessions.session() as session:
            await session.execute(BEGIN)
            result = await self._in_transaction(session, arrived)
            await session.execute("COMMIT")
        self._lost.pop(arrived.message_id, None)
        return result

    async def _in_transaction(self, session: Session, arrived: Arrived) -> Result:
        received = await session.steps(
            inbox.receive(self._consumer.name, arrived.message_id, order_by=arrived.order_by, tenant="default")
        )
        if received is Received.SEEN:
            return Result(Kind.SEEN)
        if received is Received.BEHIND:
            return await self._defer(session, arrived, BEHIND)
        problem = arrived.problem or await self._handle(session, arrived)
        if problem is not None:
            return await self._defer(session, arrived, code_of(problem))
        if received is Received.RESERVED:
            await session.steps(inbox.fulfil(self._consumer.name, arrived.message_id))
        return Result(Kind.PROCESSED)

    async def _handle(self, session: Session, arrived: Arrived) -> Answer | None:
        """None where its writes stand. Deferred constraints are checked now, while we can still defer the message."""
        consumer = self._consumer
        await session.execute("SAVEPOINT redrive_consumer")
        answer = await call_handler(session, consumer.handler, arrived.event, timeout_seconds=consumer.timeout_seconds)
        if answer is None:
            answer = await self._checked(session)
        if answer is not None:
            await session.execute("ROLLBACK TO SAVEPOINT redrive_consumer")
        return answer

    async def _checked(self, session: Session) -> Answer | None:
        """A handler that ended the transaction itself has no savepoint any more: nothing can be undone then."""
        try:
            await session.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            if session.is_lost:
                raise
            return Retryable(FAILED, type(error).__name__)
        return None

    async def _defer(self, session: Session, arrived: Arrived, code: str) -> Result:
        """The values are judged before a statement is sent, so that the transaction can still reserve its place."""
        message = arrived.as_message()
        try:
            deferred = await session.steps(
                inbox.defer(self._consumer.name, arrived.message_id, arrived.delivery.body, **message)
            )
        except (InvalidPayload, InvalidValue):
            return await self._reserve(session, arrived, code)
        return Result(Kind.DEFERRED, code) if deferred.is_new else Result(Kind.SEEN)

    async def _reserve(self, session: Session, arrived: Arrived, code: str) -> Result:
        note = {
            "event": arrived.message_id,
            "at": arrived.delivery.id,
            "bytes": len(arrived.delivery.body),
            "code": code,
        }
        is_reserved = await session.steps(
            inbox.reserve(
                self._consumer.name,
                arrived.message_id,
                note,
                order_by=arrived.order_by,
                tenant="default",
                kind=arrived.kind,
            )
        )
        return Result(Kind.RESERVED, code) if is_reserved else Result(Kind.SEEN)

    async def _after_loss(self, arrived: Arrived, answer: Answer) -> Result:
        """A handler that hung is deferred. One whose connection broke is tried again, as the database may have gone."""
        lost = self._lost[arrived.message_id] = self._lost.get(arrived.message_id, 0) + 1
        if code_of(answer) == CONNECTION_LOST and lost < LOST_MAX:
            raise DatabaseAway from answer
        try:
            async with self._sessions.session() as session:
                await session.execute(BEGIN)
                result = await self._defer(session, arrived, code_of(answer))
                await session.execute("COMMIT")
        except psycopg.Error as error:
            raise DatabaseAway from error
        self._lost.pop(arrived.message_id, None)
        return result
