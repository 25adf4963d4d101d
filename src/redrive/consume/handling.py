"""Calls a handler on a session, within its time: it ended, it failed, or it hangs and its session is aborted."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from redrive.answers import Answer, Delivered, Retryable
from redrive.consume.sessions import Session

FAILED: Final = "CONSUMER_FAILED"
TIMED_OUT: Final = "CONSUMER_TIMEOUT"
CONNECTION_LOST: Final = "CONSUMER_CONNECTION_LOST"
BEHIND: Final = "BEHIND"
GRACE_SECONDS: Final = 1.0  # for a handler that is told to end


class SessionLost(Exception):
    """The connection is gone, and with it the transaction. answer: what became of the handler."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


async def call_handler(
    session: Session, handler: Callable[..., Any], *values: Any, timeout_seconds: float
) -> Answer | None:
    """None where it returned; else the answer that its failure stands for. Raises SessionLost."""
    running = asyncio.ensure_future(session.call(handler, *values))
    try:
        await asyncio.wait({running}, timeout=timeout_seconds)
        if not running.done():
            return await _timed_out(session, running)
    except asyncio.CancelledError:
        running.cancel()
        await session.abort()
        raise
    answer = _answer(running)
    if answer is not None and session.is_lost:
        raise SessionLost(Retryable(CONNECTION_LOST, answer_text(answer))) from answer
    return answer


async def _timed_out(session: Session, running: asyncio.Future[Any]) -> Answer:
    answer = Retryable(TIMED_OUT)
    await session.interrupt(running)
    await asyncio.wait({running}, timeout=GRACE_SECONDS)
    if not running.done() or session.is_lost:
        await session.abort()
        raise SessionLost(answer)
    _answer(running)
    return answer


def _answer(running: asyncio.Future[Any]) -> Answer | None:
    if running.cancelled():
        return Retryable(FAILED, "CancelledError")
    error = running.exception()
    if error is None or isinstance(error, Delivered):
        return None
    if isinstance(error, Answer):
        return error
    answer = Retryable(FAILED, type(error).__name__)
    answer.__cause__ = error
    return answer


def answer_text(answer: Answer) -> str:
    return str(getattr(answer, "text", ""))


def code_of(answer: Answer) -> str:
    return str(getattr(answer, "code", FAILED))
