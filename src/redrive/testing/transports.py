"""What a transport must keep to, as checks that its author can run.

    @pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
    async def test_my_transport(check):
        async with my_subject() as subject:
            await check(subject)

The heart of it is one question: does the transport say that nothing happened (`Retryable`, `Terminal`) only where
nothing can have happened? Every check sends through the relay's own dispatcher, so what a transport raises counts as it
would in production. A check for which the destination cannot be brought into its condition is skipped
(`unittest.SkipTest`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from random import Random
from typing import Any, Final, Protocol
from unittest import SkipTest

from redrive.answers import (
    Absent,
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
from redrive.events import Events
from redrive.message import Attempt
from redrive.policy import Rules
from redrive.ports import Transport
from redrive.relay.build import SystemClock
from redrive.relay.dispatching.dispatch import Dispatcher
from redrive.testing.attempts import make_attempt

CHECK_SECONDS: Final = 10.0
AT_ONCE: Final = 20


class Condition(Enum):
    """How the destination is from now on.

    WELL: it does what it is sent, and says so. AWAY: it cannot be reached. BUSY: it says that it has done nothing, and
    that later will do. REFUSING: it says that it will never do this. LOSING_REPLIES: it does what it is sent, and its
    reply is lost. SILENT: it takes what it is sent, and never answers.
    """

    WELL = "well"
    AWAY = "away"
    BUSY = "busy"
    REFUSING = "refusing"
    LOSING_REPLIES = "losing replies"
    SILENT = "silent"


class TransportSubject(Protocol):
    """A transport and the destination behind it, a real one or one of your own for the test.

    reached: set by the destination when something has come to it. It may also have a `payload`, which is sent where
    the transport wants a certain one.
    """

    @property
    def transport(self) -> Transport: ...

    @property
    def reached(self) -> asyncio.Event: ...

    def effects(self) -> Sequence[str]:
        """The tokens of all that the destination has done; one that it did twice is there twice."""
        ...

    async def become(self, condition: Condition, /) -> None:
        """Raise NotImplementedError where that cannot be arranged."""
        ...


Check = Callable[[TransportSubject], Awaitable[None]]
_CHECKS: list[Check] = []


def _check(check: Check) -> Check:
    _CHECKS.append(check)
    return check


@_check
async def delivers_once_with_the_token(subject: TransportSubject) -> None:
    attempt = await _attempt(subject, Condition.WELL)
    _expect(Delivered, await _send(subject, attempt))
    _expect_effects(subject, [attempt.token])


@_check
async def sends_the_same_token_with_every_attempt(subject: TransportSubject) -> None:
    """So that a destination can recognise the second one."""
    first = await _attempt(subject, Condition.WELL)
    await _send(subject, first)
    await _send(subject, make_attempt(first.payload, id=first.id, number=2))
    if set(subject.effects()) != {first.token}:
        raise AssertionError(f"Two attempts of one message came with the tokens {subject.effects()}.")


@_check
async def away_is_retryable(subject: TransportSubject) -> None:
    await _is_answered(subject, Condition.AWAY, Retryable)


@_check
async def busy_is_retryable(subject: TransportSubject) -> None:
    await _is_answered(subject, Condition.BUSY, Retryable)


@_check
async def refusing_is_terminal(subject: TransportSubject) -> None:
    await _is_answered(subject, Condition.REFUSING, Terminal)


@_check
async def a_lost_reply_is_unknown(subject: TransportSubject) -> None:
    """The effect happened: Retryable here would cause it twice."""
    attempt = await _attempt(subject, Condition.LOSING_REPLIES)
    _expect(Unknown, await _send(subject, attempt))


@_check
async def can_be_cut_off_and_used_again(subject: TransportSubject) -> None:
    attempt = await _attempt(subject, Condition.SILENT)
    sending = asyncio.create_task(_send(subject, attempt))
    await asyncio.wait_for(subject.reached.wait(), CHECK_SECONDS)
    sending.cancel()
    ended, _ = await asyncio.wait([sending], timeout=CHECK_SECONDS)
    if not ended or not sending.cancelled():
        raise AssertionError("A send that is cancelled must end, by CancelledError.")
    await delivers_to_who_is_well_again(subject)


async def delivers_to_who_is_well_again(subject: TransportSubject) -> None:
    """Nothing that was kept open, such as a connection, may stand in the way."""
    before = list(subject.effects())
    attempt = await _attempt(subject, Condition.WELL)
    _expect(Delivered, await _send(subject, attempt))
    _expect_effects(subject, [*before, attempt.token])


@_check
async def recovers_after_being_away(subject: TransportSubject) -> None:
    await _send(subject, await _attempt(subject, Condition.AWAY))
    await delivers_to_who_is_well_again(subject)


@_check
async def sends_many_at_once(subject: TransportSubject) -> None:
    await _become(subject, Condition.WELL)
    attempts = [make_attempt(_payload(subject)) for _ in range(AT_ONCE)]
    for answer in await asyncio.gather(*(_send(subject, attempt) for attempt in attempts)):
        _expect(Delivered, answer)
    if sorted(subject.effects()) != sorted(attempt.token for attempt in attempts):
        raise AssertionError(f"Of {AT_ONCE} messages sent at once, these were done: {subject.effects()}.")


@_check
async def finds_what_was_done_and_only_that(subject: TransportSubject) -> None:
    attempt = await _attempt(subject, Condition.WELL)
    _expect(Absent, await _look_up(subject, attempt))
    await _send(subject, attempt)
    _expect(Found, await _look_up(subject, attempt))


@_check
async def finds_what_was_done_though_its_reply_was_lost(subject: TransportSubject) -> None:
    attempt = await _attempt(subject, Condition.LOSING_REPLIES)
    await _send(subject, attempt)
    await _become(subject, Condition.WELL)
    _expect(Found, await _look_up(subject, attempt))


@_check
async def cannot_tell_while_it_is_away(subject: TransportSubject) -> None:
    """Absent would have it sent again."""
    attempt = await _attempt(subject, Condition.AWAY)
    _expect(CannotTell, await _look_up(subject, attempt))


@_check
async def looking_up_does_nothing(subject: TransportSubject) -> None:
    await _look_up(subject, await _attempt(subject, Condition.WELL))
    _expect_effects(subject, [])


@_check
async def validating_does_nothing(subject: TransportSubject) -> None:
    validate = getattr(subject.transport, "validate", None)
    if validate is None:
        raise SkipTest("The transport has no `validate`.")
    await validate(await _attempt(subject, Condition.WELL))
    _expect_effects(subject, [])


@_check
async def can_be_used_after_it_was_closed(subject: TransportSubject) -> None:
    """Another relay of the same process may use it."""
    aclose = getattr(subject.transport, "aclose", None)
    if aclose is None:
        raise SkipTest("The transport has no `aclose`.")
    await _send(subject, await _attempt(subject, Condition.WELL))
    await aclose()
    await delivers_to_who_is_well_again(subject)


TRANSPORT_CHECKS: Final = tuple(_CHECKS)


async def _is_answered(subject: TransportSubject, condition: Condition, kind: type[Answer]) -> None:
    """An answer which says that nothing happened must be true."""
    _expect(kind, await _send(subject, await _attempt(subject, condition)))
    _expect_effects(subject, [])


async def _attempt(subject: TransportSubject, condition: Condition) -> Attempt:
    await _become(subject, condition)
    return make_attempt(_payload(subject))


def _payload(subject: TransportSubject) -> Any:
    return getattr(subject, "payload", {"order": 1})


async def _become(subject: TransportSubject, condition: Condition) -> None:
    try:
        await subject.become(condition)
    except NotImplementedError:
        raise SkipTest(f"The destination cannot be {condition.value} here.") from None


async def _send(subject: TransportSubject, attempt: Attempt) -> Answer | None:
    """As a relay does: what is raised is classified, what is no answer is a bug."""
    dispatcher = _dispatcher(subject)
    async with asyncio.timeout(CHECK_SECONDS):
        outcome = await dispatcher.dispatch(attempt, claimed_at=SystemClock.monotonic())
    answer = outcome.settlement.answer
    if getattr(answer, "bug", False):
        raise AssertionError(f"The transport raised {outcome.text}, which it does not classify.")
    return answer


async def _look_up(subject: TransportSubject, attempt: Attempt) -> LookupAnswer | Answer:
    dispatcher = _dispatcher(subject)
    if getattr(subject.transport, "lookup", None) is None:
        raise SkipTest("The transport has no `lookup`.")
    async with asyncio.timeout(CHECK_SECONDS):
        return await dispatcher.look_up(attempt)


def _dispatcher(subject: TransportSubject) -> Dispatcher:
    destination = Destination(name="test", transport=subject.transport, rules=Rules(in_doubt="hold"))
    return Dispatcher(destination, clock=SystemClock(), random=Random(), events=Events())


def _expect(kind: type[Any], answer: Answer | LookupAnswer | None) -> None:
    if not isinstance(answer, kind):
        raise AssertionError(f"The answer is {answer!r}; it must be {kind.__name__}.")  # noqa: TRY004 - a check failed


def _expect_effects(subject: TransportSubject, tokens: Sequence[str]) -> None:
    if list(subject.effects()) != list(tokens):
        raise AssertionError(f"The destination has done {list(subject.effects())}; it must have done {list(tokens)}.")
