"""Sends one notification: reads its row again first, sends, and asks the provider before it gives up (R-07).

    notified_at                             not sent again; without evidence the provider is asked, and a row that it
                                            does not know violates "send, then mark": cleared, counted, sent again
    notification_id without notified_at     it may have been sent: the provider is asked
    neither                                 sent

A provider that cannot be asked holds instead of asking. The row is written by `recording.record_notification`, in the
transaction that settles the message: `sql/verbs/deliver.sql`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, Protocol

from redrive import Absent, Attempt, CannotTell, Delivered, Found, Retryable, Terminal, Unknown
from redrive.kit.transport import Answer, LookupAnswer
from redrive.systems.reviews.taxonomy import SENT_WITHOUT_RECORD, retryable
from redrive.systems.reviews.work import WorkTable

SENT_WITHOUT_EVIDENCE: Final = "SENT_WITHOUT_EVIDENCE"
MAY_HAVE_BEEN_SENT: Final = "MAY_HAVE_BEEN_SENT"
Ask = Callable[[Attempt], Awaitable[LookupAnswer]]


class Sender(Protocol):
    """A transport of `redrive.transports`: HTTP or SMTP."""

    def send(self, attempt: Attempt, /) -> Awaitable[Answer | None]: ...


class DeliveryTransport:
    """A sender, with the row of the delivery before and the provider's record behind it. attempts: of a stage."""

    def __init__(self, sender: Sender, *, attempts: int) -> None:
        self._sender = sender
        self._attempts = attempts
        self._ask: Ask | None = getattr(sender, "lookup", None)
        self._work = WorkTable()
        self.lookup = self._ask
        self.validate = getattr(sender, "validate", None)
        self.address: str | None = getattr(sender, "address", None)

    def use_database(self, dsn: str) -> None:
        """Called by the relay."""
        self._work.use_database(dsn)

    async def aclose(self) -> None:
        await self._work.aclose()
        close = getattr(self._sender, "aclose", None)
        if close is not None:
            await close()

    async def send(self, attempt: Attempt) -> Answer | None:
        known = await self._work.rows("SELECT * FROM redrive_reviews.delivery_of_1(%s)", [attempt.id])
        instead = await self._instead(attempt, known[0]) if known else None
        return instead or await self._sent(attempt)

    async def _instead(self, attempt: Attempt, row: Any) -> Answer | None:
        """What is answered without a send; None: it is to be sent."""
        if row.notified_at is not None:
            if row.has_evidence:
                return Delivered(row.notification_id, {"by": "an earlier attempt"})
            return await self._marked(attempt, row)
        if row.notification_id is not None:
            return await self._asked(attempt, absent=None)
        return None

    async def _marked(self, attempt: Attempt, row: Any) -> Answer:
        """It is marked as sent, and nothing shows that a provider has accepted it."""
        if self._ask is None:
            await self._violated(attempt, row, "held")
            return Unknown(SENT_WITHOUT_EVIDENCE, "It is marked as sent, and no acceptance was kept.")
        marked = replace(attempt, in_doubt_since=row.notified_at)  # the provider remembers its token from there on
        answer = await self._asked(marked, absent=retryable_without_record())
        assert answer is not None
        if isinstance(answer, Retryable):
            await self._violated(attempt, row, "requeued")
        return answer

    async def _violated(self, attempt: Attempt, row: Any, repair: str) -> None:
        query = "SELECT redrive_reviews.sent_without_record_1(%s, %s, %s, true)"
        await self._work.rows(query, [attempt.id, row.notified_at, repair])

    async def _asked(self, attempt: Attempt, *, absent: Answer | None) -> Answer | None:
        if self._ask is None:
            return Unknown(
                MAY_HAVE_BEEN_SENT, "An earlier attempt has an id of the provider, and was not marked as sent."
            )
        match await self._ask(attempt):
            case Found(reference, result) | Delivered(reference, result):
                return Delivered(reference, result)
            case Absent():
                return absent
            case CannotTell(code, text):
                return Unknown(code, text)
        raise AssertionError

    async def _sent(self, attempt: Attempt) -> Answer | None:
        """Before a delivery is given up for good, the provider is asked whether it has it all the same (R-10)."""
        answer = await self._sender.send(attempt)
        if self._ask is None or not self._gives_up(attempt, answer):
            return answer
        return await self._asked(attempt, absent=answer)

    def _gives_up(self, attempt: Attempt, answer: Answer | None) -> bool:
        """In doubt it is asked about anyway, by the engine."""
        is_last = isinstance(answer, Retryable) and attempt.spent + 1 >= self._attempts
        return isinstance(answer, Terminal) or is_last


def retryable_without_record() -> Retryable:
    return retryable(SENT_WITHOUT_RECORD, "It was marked as sent, and the provider does not have it; it is sent now.")
