"""Every decision about what happens to a message after (or instead of) a send, as pure functions.

`opening` says what an attempt begins with, `after_absent` what follows a lookup that found nothing, `decide` turns an
answer into a settlement. Time and randomness are arguments. `docs/explanation/doubt.md` tells the story in prose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from random import Random
from typing import Final, Literal, NamedTuple, assert_never

from redrive.answers import DELIVERED, Advance, Answer, Delivered, Retryable, Terminal, Unknown, clean_code
from redrive.errors import InvalidValue
from redrive.message import Attempt, Closed, ParkReason

InDoubt = Literal["lookup", "resend", "hold"]
OnDead = Literal["halt", "continue", "continue_on_terminal"]

# A token is trusted for this share of the time that the destination says it remembers it.
TOKEN_TTL_SHARE: Final = 0.8
# 2.0 ** 1024 overflows; nothing sensible needs more doublings than this before the cap applies.
EXPONENT_MAX: Final = 64
# The first HTTP status by which a server says that it failed itself.
SERVER_ERROR: Final = 500
# No Retry-After is read as more than this many seconds; its ceiling is far lower.
RETRY_AFTER_READ_MAX: Final = 1e18


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Delays between attempts: initial, then times multiplier, never more than max.

    jitter: "none", "full" (uniform between 0 and the delay), or a share such as 0.2 for ±20 %.
    The cap is applied after the jitter, so a delay is never longer than `max_seconds`.
    """

    initial_seconds: float = 30.0
    multiplier: float = 3.0
    max_seconds: float = 36_000.0
    jitter: Literal["none", "full"] | float = "full"

    def __post_init__(self) -> None:
        _within("initial_seconds", self.initial_seconds, 0, 86_400)
        _within("multiplier", self.multiplier, 1, 100)
        _within("max_seconds", self.max_seconds, 0, 7 * 86_400)
        if not isinstance(self.jitter, str):
            _within("jitter", self.jitter, 0, 1)
        elif self.jitter not in ("none", "full"):
            raise InvalidValue(f'jitter is {self.jitter!r}; it must be "none", "full" or a share between 0 and 1.')
        if self.max_seconds < self.initial_seconds:
            raise InvalidValue(
                f"max_seconds ({self.max_seconds}) is less than initial_seconds ({self.initial_seconds})."
            )

    def delay_seconds(self, failures: int, random: Random) -> float:
        """Delay after the given number of failures (1 = the first)."""
        exponent = min(max(failures - 1, 0), EXPONENT_MAX)
        plain = min(self.initial_seconds * self.multiplier**exponent, self.max_seconds)
        if self.jitter == "none":
            return plain
        if self.jitter == "full":
            return random.uniform(0, plain)
        return min(plain * random.uniform(1 - self.jitter, 1 + self.jitter), self.max_seconds)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Budgets of one stage at one destination. The default outlives a night: 12 attempts over about 24 hours.

    attempts: sends per stage, the first included. lookups: how often "cannot tell" is asked again.
    crashes: how often it may take its process down while alone. retry_after_max_seconds: ceiling for Retry-After.
    max_age_seconds: how long a destination that is down may be waited for without spending attempts.
    """

    attempts: int = 12
    backoff: Backoff = field(default_factory=Backoff)
    lookups: int = 20
    lookup_backoff: Backoff = field(
        default_factory=lambda: Backoff(initial_seconds=5, multiplier=2, max_seconds=900, jitter=0.2)
    )
    crashes: int = 3
    retry_after_max_seconds: float = 300.0
    max_age_seconds: float = 86_400.0

    def __post_init__(self) -> None:
        _within("attempts", self.attempts, 1, 1000)
        _within("lookups", self.lookups, 1, 1000)
        _within("crashes", self.crashes, 1, 100)
        _within("retry_after_max_seconds", self.retry_after_max_seconds, 0, 86_400)
        _within("max_age_seconds", self.max_age_seconds, 1, 30 * 86_400)


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """When a destination is taken to be down, and for how long it is then left alone. One for all relays.

    failures: so many sends in a row without an answer open it; 1 to 1,000.
    share, window: so does this share of the last `window` sends, once there were that many; 0.01 to 1, and 1 to 10,000.
    codes: answers that count as none, such as HTTP_503.
    cool_off_seconds: how long it stays open, doubled each time its probe fails; 0.1 to 3,600.
    cool_off_max_seconds: but no longer than this; up to 86,400.
    """

    failures: int = 5
    share: float = 0.5
    window: int = 50
    codes: Collection[str] = frozenset()
    cool_off_seconds: float = 5.0
    cool_off_max_seconds: float = 300.0

    def __post_init__(self) -> None:
        _within("failures", self.failures, 1, 1000)
        _within("share", self.share, 0.01, 1)
        _within("window", self.window, 1, 10_000)
        _within("cool_off_seconds", self.cool_off_seconds, 0.1, 3600)
        _within("cool_off_max_seconds", self.cool_off_max_seconds, self.cool_off_seconds, 86_400)
        if isinstance(self.codes, str):
            raise InvalidValue(f"codes is the text {self.codes!r}; it must be a set of texts.")
        object.__setattr__(self, "codes", frozenset(self.codes))


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a destination declares about itself; with `Policy` all that `decide` needs.

    in_doubt: what follows an attempt whose outcome is unknown. lookup_after_seconds: from when "absent" is believed.
    lookups_are_immediate: a lookup sees an effect at once, so that lookup_after_seconds may be 0 where money moves.
    settlement_lag_seconds: how long after its request an effect may first show.
    absent_is_final: an "absent" that is believed proves that an earlier request will never have an effect; without it
    a money message that is cancelled or expires while in doubt is held.
    token_ttl_seconds: how long it remembers a token; None = it does not, or that is unknown.
    money: a second effect is worse than none. has_breaker: an attempt that found it down costs nothing.
    address: hash of where it is and as whom it is reached; None = not declared.
    """

    policy: Policy = field(default_factory=Policy)
    in_doubt: InDoubt = "resend"
    lookup_after_seconds: float = 0.0
    token_ttl_seconds: float | None = None
    money: bool = False
    on_dead: OnDead = "halt"
    has_breaker: bool = False
    lookups_are_immediate: bool = False
    settlement_lag_seconds: float = 0.0
    absent_is_final: bool = False
    address: str | None = None

    @property
    def version(self) -> str:
        """Short fingerprint of all of it, kept with every attempt: which rules judged this one."""
        return hashlib.sha256(repr(sorted(asdict(self).items())).encode()).hexdigest()[:12]


def address_of(*parts: str | None) -> str:
    """Of URLs, and of the account under which they are reached."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def in_doubt_default(*, can_look_up: bool, money: bool, token_ttl_seconds: float | None) -> InDoubt:
    """What a destination does when in doubt, unless it says otherwise (G-13)."""
    if can_look_up:
        return "lookup"
    return "hold" if money and token_ttl_seconds is None else "resend"


class SettlementKind(StrEnum):
    """The five things that can be done with a claim."""

    CLOSE = "close"
    ADVANCE = "advance"
    RETRY = "retry"
    PARK = "park"
    HAND_BACK = "hand_back"


@dataclass(frozen=True, kw_only=True)
class Settlement:
    """What `settle` writes. Only the fields of its kind matter.

    answer: what the destination said, None where nothing was sent. spent, lookups: the new counts.
    delay_seconds: retry no sooner than this from the database's now. in_doubt: the effect may have happened.
    pause_seconds: the destination asked for a rest (Retry-After): nothing is sent to it for so long.
    halts: a dead head keeps its ordering key waiting.
    """

    kind: SettlementKind
    answer: Answer | None = None
    closed: Closed | None = None
    park_reason: ParkReason | None = None
    error_class: str | None = None
    delay_seconds: float = 0.0
    pause_seconds: float = 0.0
    spent: int = 0
    lookups: int = 0
    in_doubt: bool = False
    down: bool = False
    stage: str | None = None
    destination: str | None = None
    exhausted: bool = False
    halts: bool = False


LATE_SUCCESS: Final = "LATE_SUCCESS"  # the code of a message that is held because it was delivered after all


class ClockJump(NamedTuple):
    """A jump of the database's clock. noticed_at: by the clock as it is since. offset_seconds: < 0 where set back.
    window_seconds: it happened at most so long before it was noticed; None = that is not known."""

    noticed_at: datetime
    offset_seconds: float
    window_seconds: float | None

    @property
    def expected_at(self) -> datetime:
        """What the clock before the jump would have shown when it was noticed."""
        return self.noticed_at - timedelta(seconds=self.offset_seconds)

    def may_be_older_than(self, moment: datetime) -> bool:
        """Whether the clock since this jump may have shown `moment`, as far as its beginning tells."""
        return self.window_seconds is None or moment >= self.noticed_at - timedelta(seconds=self.window_seconds)


MEASURED_WITHIN: Final = timedelta(seconds=5)  # a relay measures a jump by round trips; as redrive.clock_tolerance()


def by_present_clock(attempt: Attempt, jumps: Sequence[ClockJump], *, now: datetime) -> Attempt:
    """The attempt as the rules below see it after jumps of the database's clock: with the times at which things
    happened by the clock as it is now, so that what has passed since then is what really has passed (G-33).

    Where a clock that was set back has shown a time twice, the later reading counts: "absent" is never believed too
    early. For a token, and for the message itself, the earliest does: it is rather held than sent again.
    """

    def present(moment: datetime) -> datetime:
        return max(_readings(moment, jumps, now), default=moment)

    def earliest(moment: datetime) -> datetime:
        return min(_readings(moment, jumps, now), default=moment)

    if not jumps or (attempt.in_doubt_since is None and attempt.down_since is None):
        return attempt
    used = min(attempt.token_used_since or attempt.in_doubt_since or now, attempt.in_doubt_since or now)
    return replace(
        attempt,
        in_doubt_since=attempt.in_doubt_since and present(attempt.in_doubt_since),
        down_since=attempt.down_since and present(attempt.down_since),
        token_used_since=min(used, earliest(used)),
        created_at=earliest(attempt.created_at),
        earlier=tuple(replace(entry, completed_at=present(entry.completed_at)) for entry in attempt.earlier),
    )


def _readings(moment: datetime, jumps: Sequence[ClockJump], now: datetime) -> Iterator[datetime]:
    """What `moment` may be by the present clock: one reading for each stretch between jumps whose clock may have shown
    it. jumps: newest first."""
    offset, until = timedelta(), now
    for jump in jumps:
        if moment <= until and jump.may_be_older_than(moment):
            yield moment + offset
        offset += timedelta(seconds=jump.offset_seconds)
        until = jump.expected_at + MEASURED_WITHIN
    if moment <= until:
        yield moment + offset


class Opening(StrEnum):
    SEND = "send"
    LOOK_UP = "look_up"
    RECORD = "record"


def opening(attempt: Attempt, rules: Rules, *, now: datetime) -> Opening | Settlement:
    """Before anything goes out: send, ask first, only record again, or settle without touching the destination."""
    if attempt.kept_answer is not None:
        return (
            Opening.RECORD
            if attempt.crashes < rules.policy.crashes
            else park_unrecorded(attempt, "CRASHED", exhausted=True)
        )
    if attempt.has_evidence:  # something says that it was delivered: it is confirmed by a person, never sent (P-11)
        return _park(attempt, rules, LATE_SUCCESS, held=True)
    if attempt.crashes >= rules.policy.crashes:
        return _park(attempt, rules, "CRASHED", held=attempt.in_doubt and rules.in_doubt != "resend", exhausted=True)
    if not attempt.in_doubt:
        return _budget_spent(attempt, rules) or Opening.SEND
    match rules.in_doubt:
        case "lookup":
            return Opening.LOOK_UP
        case "hold":
            return _park(attempt, rules, "IN_DOUBT", held=True)
        case "resend":
            return _resend(attempt, rules, now)
        case _:
            assert_never(rules.in_doubt)


def _resend(attempt: Attempt, rules: Rules, now: datetime) -> Opening | Settlement:
    ended = _ended_meanwhile(attempt, rules)
    if ended is not None:
        return ended
    if _token_forgotten(attempt, rules, now):
        return _park(attempt, rules, "TOKEN_FORGOTTEN", held=True)
    return _budget_spent(attempt, rules) or Opening.SEND


def after_absent(attempt: Attempt, rules: Rules, *, now: datetime) -> Answer | Settlement | None:
    """A lookup that was asked at `now` found nothing. None: the doubt is gone, send; else what happens instead.

    Where money moves, "absent" alone is no proof: an earlier request may still take effect. It permits another send
    where the destination still knows the token of that request, or where people have denied the effect since. Doubt
    that is older than the message is about a database that is gone: nothing of this message has gone out, and that has
    had its time.
    """
    believable = _last_doubt(attempt) + timedelta(seconds=rules.lookup_after_seconds)
    if now < believable:
        return Unknown("ABSENT_TOO_EARLY", from_lookup=True, wait_seconds=(believable - now).total_seconds())
    never_sent = attempt.spent == 0 and _last_doubt(attempt) < attempt.created_at
    is_proof = rules.absent_is_final or never_sent or not rules.money
    without_doubt = replace(attempt, in_doubt_since=None)
    ended = _ended_meanwhile(without_doubt if is_proof else attempt, rules)
    if ended is not None:
        return ended
    if rules.money and not never_sent and not _denied(attempt):
        if rules.token_ttl_seconds is None:
            return _park(attempt, rules, "ABSENT_AFTER_DOUBT", held=True)
        if not is_proof and _token_forgotten(attempt, rules, now):
            return _park(attempt, rules, "TOKEN_FORGOTTEN", held=True)
    return _budget_spent(without_doubt if is_proof else attempt, rules)


def _last_doubt(attempt: Attempt) -> datetime:
    """Until when something may have gone out. A lost claim keeps the age of an earlier doubt (a token's trust counts
    from there), but it may have ended that one and have sent anew.
    """
    assert attempt.in_doubt_since is not None
    return max([attempt.in_doubt_since, *(entry.completed_at for entry in attempt.earlier if entry.verb == "reap")])


def _denied(attempt: Attempt) -> bool:
    """People have said that it did not happen, after all that may have gone out."""
    last_doubt = _last_doubt(attempt)
    return any(entry.verb == "deny" and entry.completed_at >= last_doubt for entry in attempt.earlier)


def _budget_spent(attempt: Attempt, rules: Rules) -> Settlement | None:
    """A budget that was made smaller than what is spent buys no further send."""
    if attempt.spent < rules.policy.attempts:
        return None
    held = attempt.in_doubt and (rules.money or rules.in_doubt != "resend")
    return _park(attempt, rules, "BUDGET_SPENT", held=held, exhausted=True)


def decide(attempt: Attempt, answer: Answer, rules: Rules, *, now: datetime, random: Random) -> Settlement:
    """One answer, one settlement. `attempt.in_doubt` is the doubt that was left when the answer came."""
    match answer:
        case Delivered():
            return close_as_delivered(attempt, answer)
        case Advance():
            return Settlement(
                kind=SettlementKind.ADVANCE, answer=answer, stage=answer.stage, destination=answer.destination
            )
        case Retryable() if rules.money and answer.status is not None and answer.status >= SERVER_ERROR:
            # A server error without a code of the destination's own does not say what happened before it.
            unknown = Unknown(answer.code, answer.text)
            pause = _pause_seconds(answer, rules, now)
            settlement = _after_unknown(attempt, unknown, rules, random)
            return replace(settlement, pause_seconds=pause, delay_seconds=max(settlement.delay_seconds, pause))
        case Retryable():
            return _after_retryable(attempt, answer, rules, now, random)
        case Terminal():
            # G-18: this send had no effect; an earlier one that could not be looked up may have had one.
            held = attempt.in_doubt and rules.in_doubt != "resend"
            return _park(attempt, rules, answer.code, answer, spent=attempt.spent + 1, held=held, terminal=True)
        case Unknown():
            return _after_unknown(attempt, answer, rules, random)
        case _:
            raise TypeError(f"{answer!r} is not one of the five answers.")


def close_as_delivered(attempt: Attempt, answer: Delivered) -> Settlement:
    if answer is DELIVERED and attempt.spent == 0:
        return _DELIVERED_AT_ONCE
    return Settlement(kind=SettlementKind.CLOSE, answer=answer, closed=Closed.DELIVERED, spent=attempt.spent + 1)


# Nearly every message ends like this one, so nearly every message shares it.
_DELIVERED_AT_ONCE: Final = Settlement(kind=SettlementKind.CLOSE, answer=DELIVERED, closed=Closed.DELIVERED, spent=1)


def _after_retryable(attempt: Attempt, answer: Retryable, rules: Rules, now: datetime, random: Random) -> Settlement:
    pause = _pause_seconds(answer, rules, now)
    free = answer.destination_down and rules.has_breaker
    spent = attempt.spent + 1
    if _too_old(attempt, rules, now) if free else spent >= rules.policy.attempts:
        held = attempt.in_doubt and rules.in_doubt != "resend"
        parked = _park(attempt, rules, answer.code, answer, spent=spent, held=held, exhausted=True)
        return replace(parked, pause_seconds=pause)
    delay = max(rules.policy.backoff.delay_seconds(spent, random), pause)
    spent -= free
    retried = _retry(attempt, answer, spent=spent, delay_seconds=delay, in_doubt=attempt.in_doubt, down=free)
    return replace(retried, pause_seconds=pause)


def _after_unknown(attempt: Attempt, answer: Unknown, rules: Rules, random: Random) -> Settlement:
    if answer.bug:
        held = rules.money or rules.in_doubt == "hold"
        return _park(attempt, rules, answer.code, answer, spent=attempt.spent + 1, held=held)
    if answer.from_lookup:
        return _after_inconclusive_lookup(attempt, answer, rules, random)
    spent = attempt.spent + 1
    if rules.in_doubt == "hold":
        return _park(attempt, rules, answer.code, answer, spent=spent, held=True)
    if spent >= rules.policy.attempts:
        return _park(attempt, rules, answer.code, answer, spent=spent, held=rules.in_doubt == "lookup", exhausted=True)
    delay = rules.policy.backoff.delay_seconds(spent, random)
    return _retry(attempt, answer, spent=spent, delay_seconds=delay, in_doubt=True)


def _after_inconclusive_lookup(attempt: Attempt, answer: Unknown, rules: Rules, random: Random) -> Settlement:
    if answer.wait_seconds is not None:
        return _retry(attempt, answer, spent=attempt.spent, delay_seconds=answer.wait_seconds, in_doubt=True)
    lookups = attempt.lookups + 1
    if lookups >= rules.policy.lookups:
        return _park(attempt, rules, answer.code, answer, spent=attempt.spent, held=True, exhausted=True)
    delay = rules.policy.lookup_backoff.delay_seconds(lookups, random)
    return _retry(attempt, answer, spent=attempt.spent, lookups=lookups, delay_seconds=delay, in_doubt=True)


def _retry(
    attempt: Attempt,
    answer: Answer,
    *,
    spent: int,
    delay_seconds: float,
    in_doubt: bool,
    lookups: int | None = None,
    down: bool = False,
) -> Settlement:
    return Settlement(
        kind=SettlementKind.RETRY,
        answer=answer,
        error_class=clean_code(getattr(answer, "code", "")),
        spent=spent,
        lookups=attempt.lookups if lookups is None else lookups,
        delay_seconds=delay_seconds,
        in_doubt=in_doubt,
        down=down,
    )


def park_unrecorded(attempt: Attempt, code: str, *, exhausted: bool = False) -> Settlement:
    """Its kept answer could not be recorded: it waits for a person with that answer, and is never sent."""
    return Settlement(
        kind=SettlementKind.PARK,
        park_reason=ParkReason.UNRECORDED,
        error_class=code,
        spent=attempt.spent,
        lookups=attempt.lookups,
        in_doubt=attempt.in_doubt,
        exhausted=exhausted,
        halts=True,
    )


def _park(
    attempt: Attempt,
    rules: Rules,
    code: str,
    answer: Answer | None = None,
    *,
    spent: int | None = None,
    held: bool = False,
    exhausted: bool = False,
    terminal: bool = False,
) -> Settlement:
    halts = rules.on_dead == "halt" or (rules.on_dead == "continue_on_terminal" and not terminal)
    return Settlement(
        kind=SettlementKind.PARK,
        answer=answer,
        park_reason=ParkReason.HELD if held else ParkReason.DEAD,
        error_class=clean_code(code),
        spent=attempt.spent if spent is None else spent,
        lookups=attempt.lookups,
        # An unclassified exception leaves doubt behind even where the message is dead: a requeue asks before it sends.
        in_doubt=attempt.in_doubt or held or isinstance(answer, Unknown),
        exhausted=exhausted,
        halts=held or halts,
    )


def _ended_meanwhile(attempt: Attempt, rules: Rules) -> Settlement | None:
    """Cancelled or expired while in doubt: closed as that, once nothing more can be asked. Money in doubt is held
    instead.
    """
    if not (attempt.cancel_requested or attempt.expired):
        return None
    if rules.money and attempt.in_doubt:
        code = "CANCELLED_IN_DOUBT" if attempt.cancel_requested else "EXPIRED_IN_DOUBT"
        return _park(attempt, rules, code, held=True)
    closed = Closed.CANCELLED if attempt.cancel_requested else Closed.EXPIRED
    return Settlement(kind=SettlementKind.CLOSE, closed=closed, spent=attempt.spent, in_doubt=attempt.in_doubt)


def _token_forgotten(attempt: Attempt, rules: Rules, now: datetime) -> bool:
    """A destination counts a token's lifetime from its first use, which is earlier than the doubt."""
    if rules.token_ttl_seconds is None or attempt.in_doubt_since is None:
        return False
    used_since = min(attempt.token_used_since or attempt.in_doubt_since, attempt.in_doubt_since)
    return now > used_since + timedelta(seconds=TOKEN_TTL_SHARE * rules.token_ttl_seconds)


def _too_old(attempt: Attempt, rules: Rules, now: datetime) -> bool:
    down_since = attempt.down_since
    return down_since is not None and (now - down_since).total_seconds() > rules.policy.max_age_seconds


def _pause_seconds(answer: Retryable, rules: Rules, now: datetime) -> float:
    asked = retry_after_seconds(answer.retry_after, now=now)
    return 0.0 if asked is None else min(asked, rules.policy.retry_after_max_seconds)


def retry_after_seconds(value: object, *, now: datetime) -> float | None:
    """Seconds that a Retry-After asks for: a number, a number as text, or an HTTP date. Nonsense is None.

    Negative numbers and past dates ask for nothing (0). Infinite and absurdly large values are left to the ceiling.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _seconds(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return _seconds(int(text[:18]))
    return _until_http_date(text, now)


def _seconds(value: float) -> float | None:
    """An int may be too large for a float: it is cut before it becomes one."""
    return None if value != value else float(min(max(value, 0), RETRY_AFTER_READ_MAX))


def _until_http_date(text: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        return max((moment - now).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidValue(f"{name} is {value!r}; it must be between {low} and {high}.")
