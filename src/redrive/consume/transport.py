"""Runs in a relay what a consumer has deferred: the same handler, in a transaction that also settles the message. So
its effect is still once."""

from redrive.answers import Answer, Delivered, Terminal
from redrive.completion import acomplete, complete
from redrive.consume.consumer import TOO_LARGE, Consumer
from redrive.consume.event import Event, read_event
from redrive.consume.handling import SessionLost, call_handler
from redrive.consume.sessions import BEGIN, HandlerSessions, Sessions
from redrive.errors import UsageError
from redrive.message import Attempt
from redrive.produce.inbox import RESERVED_TYPE


class ConsumerTransport:
    """The transport of the destination that has a consumer's name."""

    def __init__(self, consumer: Consumer, sessions: Sessions | None = None) -> None:
        self._consumer, self._sessions = consumer, sessions

    def use_database(self, dsn: str) -> None:
        """Called by the relay: the handler writes where the engine is."""
        self._sessions = HandlerSessions(dsn, self._consumer.handler, name=f"redrive consumer {self._consumer.name}")

    async def validate(self, attempt: Attempt) -> None:
        """Unknown types, malformed events, data that do not fit and reserved places are parked (G-23)."""
        self._event(attempt)

    async def send(self, attempt: Attempt) -> Answer:
        """Raises what the handler raised; its transaction was rolled back then, so nothing happened."""
        if self._sessions is None:
            raise UsageError(f"The consumer {self._consumer.name!r} needs a database: run it in a relay or a worker.")
        event = self._event(attempt)
        try:
            async with self._sessions.session() as session:
                await session.execute(BEGIN)
                answer = await call_handler(
                    session, self._consumer.handler, event, timeout_seconds=self._consumer.timeout_seconds
                )
                if answer is not None:
                    await session.execute("ROLLBACK")
                else:
                    await session.call(acomplete if self._sessions.is_async else complete, attempt)
                    await session.execute("COMMIT")
        except SessionLost as lost:
            answer = lost.answer
        if answer is not None:
            raise answer
        return Delivered()

    async def aclose(self) -> None:
        if self._sessions is not None:
            await self._sessions.aclose()

    def _event(self, attempt: Attempt) -> Event:
        if attempt.content_type == RESERVED_TYPE:
            raise Terminal(TOO_LARGE, "The broker keeps the event. A worker processes it when it comes again.")
        return self._consumer.accepted(read_event(attempt.headers, attempt.content_type, attempt.body))
