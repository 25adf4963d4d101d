"""One attempt, from its opening to its settlement, with no transaction open.

Look up if in doubt, validate, send, and turn the result into a settlement. `policy` decides; this module has the order
of the steps and says what an exception in each of them means. Every exception of a handler ends as an answer.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from redrive import answers, policy, redact
from redrive.answers import (
    ADVANCE_UNDECLARED,
    DELIVERED,
    RETURN_INVALID,
    UNCLASSIFIED,
    Absent,
    Advance,
    Answer,
    CannotTell,
    Delivered,
    Found,
    LookupAnswer,
    Retryable,
    Terminal,
    Unknown,
)
from redrive.app import Destination
from redrive.errors import InvalidPayload
from redrive.events import Events
from redrive.message import Attempt, ParkReason
from redrive.policy import Opening, Rules, Settlement, SettlementKind
from redrive.ports import Clock, NotBegun, Outcome
from redrive.produce import bounds
from redrive.relay.dispatching.failure_text import context_of, text_of
from redrive.relay.dispatching.given_up_sends import GivenUpSends

MaySend = Callable[[], bool | Awaitable[bool]]  # to be awaited only where the database has to be asked


class Dispatcher:
    def __init__(self, destination: Destination, *, clock: Clock, random: Random, events: Events) -> None:
        self.destination = destination
        self._rules = destination.rules
        self._rules_version = destination.rules.version
        self._clock = clock
        self._random = random
        self._events = events
        self._send = destination.transport.send
        self._schema = destination.schema
        self._validate = getattr(destination.transport, "validate", None)
        self._lookup = getattr(destination.transport, "lookup", None)
        self._staged = destination.staged
        self._error_text_max = destination.error_text_max
        self._classify = getattr(destination.transport, "classify", lambda _: None)
        # Of a transport that runs handlers in threads, which cannot be ended (`transports/functions.py`).
        self.has_threads: Callable[[], bool] = getattr(destination.transport, "has_threads", lambda: True)
        self.has_few_threads: Callable[[], bool] = getattr(destination.transport, "has_few_threads", lambda: False)
        self._needs_own_process = getattr(destination.transport, "needs_own_process", lambda _: False)
        self.clock_jumps: Sequence[policy.ClockJump] = ()  # of the database's clock, as its relay knows them
        self._given_up_sends = GivenUpSends(
            clock=clock,
            lookup_after_seconds=destination.rules.lookup_after_seconds,
            quiet_seconds=getattr(destination.transport, "quiet_seconds", lambda _: None),
        )

    async def dispatch(self, attempt: Attempt, *, claimed_at: float, may_send: MaySend = lambda: True) -> Outcome:
        """claimed_at: when we got the claim (monotonic). may_send: called right before the first byte; false: the claim
        may be lost or its message cancelled, so it is handed back."""
        began = self._clock.monotonic()
        if self._schema is not None:
            attempt.read_by(self._schema)
        if _begins_with_send(attempt, self._rules):
            answer, failure = await self._validate_and_send(attempt, may_send)
            return self._decide(attempt, answer, failure, began, claimed_at)
        return await self._dispatch_in_doubt(attempt, began, claimed_at, may_send)

    async def _dispatch_in_doubt(self, attempt: Attempt, began: float, claimed_at: float, may_send: MaySend) -> Outcome:
        """The message was tried, reaped or changed before, so policy decides the first step."""
        now = self._now(attempt, claimed_at)
        opening = policy.opening(self._present(attempt, now), self._rules, now=now)
        if isinstance(opening, Settlement):
            return self._outcome(attempt, opening, began, None)
        answer: Answer | Settlement | None = None
        failure: BaseException | None = None
        if opening is Opening.RECORD:
            answer = _kept_answer(attempt)
        elif opening is Opening.LOOK_UP:
            attempt, answer = await self._ask(attempt, claimed_at)
        if answer is None:
            answer, failure = await self._validate_and_send(attempt, may_send)
        if isinstance(answer, Settlement):
            return self._outcome(attempt, answer, began, None)
        return self._decide(attempt, answer, failure, began, claimed_at)

    async def examine(self, attempt: Attempt) -> dict[str, Any]:
        """Whether it could be sent, by schema and `validate`, and by `lookup` if in doubt. Sends nothing."""
        if self._schema is not None:
            attempt.read_by(self._schema)
        refused = await self._refused(attempt) if self._validate is not None or self._schema is not None else None
        if refused is not None:
            answer, failure = refused
            return {"valid": False, "code": getattr(answer, "code", UNCLASSIFIED), "text": self._text(answer, failure)}
        if self._lookup is None or not attempt.in_doubt:
            return {"valid": True}
        found = await self.look_up(attempt)
        if isinstance(found, Found | Delivered | Advance):
            return {"valid": False, "code": "FOUND", "lookup": "found"}
        if isinstance(found, CannotTell):
            return {"valid": False, "code": found.code, "lookup": "cannot_tell"}
        return {"valid": True, "lookup": "absent"}

    def _decide(
        self, attempt: Attempt, answer: Answer, failure: BaseException | None, began: float, claimed_at: float
    ) -> Outcome:
        if isinstance(answer, Delivered):
            return self._outcome(attempt, policy.close_as_delivered(attempt, answer), began, None)
        now = self._now(attempt, claimed_at)
        try:
            present = self._present(attempt, now)
            settlement = policy.decide(present, answer, self._rules, now=now, random=self._random)
            return self._outcome(attempt, settlement, began, failure)
        except Exception as error:  # an answer whose fields are not what they should be: a bug of the handler
            bug = Unknown(UNCLASSIFIED, bug=True)
            settlement = policy.decide(attempt, bug, self._rules, now=now, random=self._random)
            return self._outcome(attempt, settlement, began, error)

    def cut_off(self, attempt: Attempt, code: str, *, claimed_at: float, began: float) -> Outcome:
        """An attempt that was ended from outside (timeout, stop): its effect is not known.

        After a lookup it may have been sent again: the doubt is a new one, and "absent" counts from this moment.
        """
        self._given_up_sends.give_up(attempt.id)
        if self._rules.in_doubt == "lookup":
            attempt = replace(attempt, in_doubt_since=None)
        return self._decide(attempt, Unknown(code), None, began, claimed_at)

    def needs_own_process(self, attempt: Attempt) -> bool:
        """Whether the next attempt belongs in a process that can be ended, because this one still runs in a thread.

        Not where money moves: only this process knows that the send has not ended, so that "absent" says nothing yet.
        """
        return not self._rules.money and bool(self._needs_own_process(attempt.id))

    async def _ask(self, attempt: Attempt, claimed_at: float) -> tuple[Attempt, Answer | Settlement | None]:
        """None: it is absent, the doubt is gone, send. "Absent" holds for the moment of the question, not of a slow
        answer."""
        asked_at = self._now(attempt, claimed_at)
        found = await self.look_up(attempt)
        if isinstance(found, Delivered | Advance):
            return attempt, found
        if isinstance(found, Found):
            if self._staged and found.result is None:
                return attempt, _held_at_its_stage(attempt)
            return attempt, Delivered(found.reference, found.result)
        if isinstance(found, CannotTell):
            return attempt, Unknown(found.code, found.text, from_lookup=True)
        wait_seconds = self._given_up_sends.wait_seconds(attempt.id) if self._rules.money else 0.0
        if wait_seconds:
            return attempt, Unknown("ABSENT_TOO_EARLY", from_lookup=True, wait_seconds=wait_seconds)
        instead = policy.after_absent(self._present(attempt, asked_at), self._rules, now=asked_at)
        return (attempt, instead) if instead is not None else (replace(attempt, in_doubt_since=None, lookups=0), None)

    async def look_up(self, attempt: Attempt) -> LookupAnswer | Delivered | Advance:
        """A lookup that fails could not tell. Delivered and Advance: it is there, and its stage ended like this."""
        assert self._lookup is not None
        with self._events.step("lookup", id=attempt.id, destination=attempt.destination):
            try:
                async with asyncio.timeout(self.destination.timeout_seconds):
                    found = await self._lookup(attempt)
            except (LookupAnswer, Delivered, Advance) as raised:
                found = raised
            except TimeoutError:
                return CannotTell("LOOKUP_TIMEOUT")
            except BaseException as error:  # as with a send, SystemExit too
                if _is_cut_off(error):
                    raise
                return CannotTell("LOOKUP_FAILED", redact.error_type(error))
        known = isinstance(found, Found | Absent | CannotTell | Delivered | Advance) and _unkeepable(found) is None
        return found if known else CannotTell("LOOKUP_ANSWER_INVALID", type(found).__name__)

    async def _validate_and_send(self, attempt: Attempt, may_send: MaySend) -> tuple[Answer, BaseException | None]:
        if self._validate is not None or self._schema is not None:
            refused = await self._refused(attempt)
            if refused is not None:
                return refused
        if self._events.wants_step("send"):
            return await self._send_with_event(attempt, may_send)
        return await self._send_classified(attempt, may_send)

    async def _send_with_event(self, attempt: Attempt, may_send: MaySend) -> tuple[Answer, BaseException | None]:
        with self._events.step(
            "send",
            id=attempt.id,
            destination=attempt.destination,
            attempt=attempt.number,
            traceparent=attempt.headers.get("traceparent"),
        ) as added:
            answer, failure = await self._send_classified(attempt, may_send)
            added.update(answer=type(answer).__name__, code=getattr(answer, "code", None))
            return answer, failure

    async def _refused(self, attempt: Attempt) -> tuple[Answer, BaseException | None] | None:
        """Before the first byte, so whatever the schema or `validate` raises had no effect."""
        with self._events.step("validate", id=attempt.id, destination=attempt.destination):
            try:
                async with asyncio.timeout(self.destination.timeout_seconds):
                    _read(attempt)
                    if self._validate is not None:
                        await self._validate(attempt)
            except (Terminal, Retryable) as answer:
                return answer, None
            except TimeoutError:
                return Retryable("VALIDATE_TIMEOUT"), None
            except BaseException as error:
                if _is_cut_off(error):
                    raise
                return Terminal(UNCLASSIFIED, bug=True), error
        return None

    async def _send_classified(self, attempt: Attempt, may_send: MaySend) -> tuple[Answer, BaseException | None]:
        """A process that slept through its lease, or whose lookup took that long, does not send."""
        allowed = may_send()
        if not (allowed if isinstance(allowed, bool) else await allowed):
            raise NotBegun
        if self._rules.money:
            with self._given_up_sends.sending(attempt.id):
                return await self._send_plainly(attempt)
        return await self._send_plainly(attempt)

    async def _send_plainly(self, attempt: Attempt) -> tuple[Answer, BaseException | None]:
        try:
            answer: object = await self._send(attempt)  # a handler may return anything
        except Answer as raised:
            answer = raised
        except (asyncio.CancelledError, NotBegun):
            raise
        except BaseException as error:  # a handler may raise SystemExit too; it must not take its neighbours along
            return self._classified(error), error
        if answer is None:
            return DELIVERED, None
        if not isinstance(answer, Answer):
            answer = Delivered(result=answer)
        problem = _unkeepable(answer)
        if problem is None and isinstance(answer, Advance) and self._rules.in_doubt == "lookup" and not self._staged:
            return Unknown(ADVANCE_UNDECLARED, _UNDECLARED, bug=True), None
        if problem is None:
            return _as_sent(answer), None
        return Unknown(RETURN_INVALID, redact.unkeepable(answer), bug=True), problem

    def _present(self, attempt: Attempt, now: datetime) -> Attempt:
        return policy.by_present_clock(attempt, self.clock_jumps, now=now) if self.clock_jumps else attempt

    def _now(self, attempt: Attempt, claimed_at: float) -> datetime:
        """The database's time: when it gave us the claim, plus what has passed here."""
        return attempt.claimed_at + timedelta(seconds=self._clock.monotonic() - claimed_at)

    def _classified(self, error: BaseException) -> Answer:
        """A user's table that raises leaves the error unclassified."""
        try:
            answer = self._classify(error)
        except Exception:
            answer = None
        if not isinstance(answer, Answer) or _unkeepable(answer) is not None:
            return Unknown(UNCLASSIFIED, bug=True)
        return _as_sent(answer)

    def _text(self, answer: Answer | None, failure: BaseException | None) -> str | None:
        return text_of(answer, failure, limit=self._error_text_max)

    def _outcome(
        self, attempt: Attempt, settlement: Settlement, began: float, failure: BaseException | None
    ) -> Outcome:
        outcome = Outcome(
            attempt=attempt,
            settlement=settlement,
            latency_ms=int(1000 * (self._clock.monotonic() - began)),
            policy_version=self._rules_version,
        )
        if settlement.kind is SettlementKind.CLOSE:
            return outcome
        return replace(
            outcome,
            text=self._text(settlement.answer, failure),
            stack=redact.stack(failure) if failure else None,
            context=context_of(attempt, settlement, failure, self._rules_version),
        )


_UNDECLARED: Final = "It answered Advance and has a lookup, so its stages have to be declared: staged."


def _begins_with_send(attempt: Attempt, rules: Rules) -> bool:
    """The common case of `policy.opening`."""
    if attempt.has_evidence:
        return False
    return (
        attempt.in_doubt_since is None
        and attempt.kept_answer is None
        and attempt.crashes == 0
        and attempt.spent < rules.policy.attempts
    )


def _read(attempt: Attempt) -> None:
    """Reads the payload by the schema, if there is one; the handler gets the result."""
    if attempt.schema is None:
        return
    try:
        _ = attempt.data
    except InvalidPayload as error:
        raise Terminal("PAYLOAD_INVALID", error.args[0]) from None


def _kept_answer(attempt: Attempt) -> Answer | Settlement:
    """An earlier answer. One that this version cannot read stays unrecorded and is never sent again."""
    assert attempt.kept_answer is not None
    try:
        return answers.from_json(attempt.kept_answer)
    except (KeyError, TypeError):
        return policy.park_unrecorded(attempt, "KEPT_ANSWER_INVALID")


def _held_at_its_stage(attempt: Attempt) -> Settlement:
    """The effect of this stage is there; only an operator can say whether another stage follows."""
    return Settlement(
        kind=SettlementKind.PARK,
        park_reason=ParkReason.HELD,
        error_class="FOUND_WITHOUT_OUTCOME",
        spent=attempt.spent,
        lookups=attempt.lookups,
        in_doubt=True,
        halts=True,
    )


def _is_cut_off(error: BaseException) -> bool:
    """Ended from outside, or never begun. CancelledError raised by the user's own code is its failure instead."""
    if isinstance(error, NotBegun):
        return True
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _as_sent(answer: Answer) -> Answer:
    """Only a lookup may say that nothing was sent."""
    return replace(answer, from_lookup=False, wait_seconds=None) if isinstance(answer, Unknown) else answer


def _unkeepable(answer: Answer | LookupAnswer) -> BaseException | None:
    """Why the archive cannot keep it: the result is not JSON, or a name is invalid. That is a bug of the handler."""
    result = getattr(answer, "result", None)
    try:
        if isinstance(answer, Advance):
            bounds.name("stage", answer.stage)
            if answer.destination is not None:
                bounds.name("destination", answer.destination)
        if result is not None:
            json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return error
    return None
