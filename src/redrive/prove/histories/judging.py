"""What must hold at the end of a history of the engine. Pure.

Judged by the observer's log, the handlers' journal and the journals of producers and operators (`Book`); the
database's final reports count only as claims that these logs must bear out. Each violation is a sentence that
begins with its class in brackets.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from redrive.prove.histories.destinations import HEALTHY, HELD, REMEMBERING, TIMEOUT_SECONDS

Line = Mapping[str, Any]

# Two readings of one machine's clock, by processes that wait for each other.
CLOCK_SECONDS: Final = 0.05
# A process that wakes up goes on with what it had begun.
WAKING_SECONDS: Final = 1.0
# An outcome that a handler has given is settled within this time, unless its process is disturbed.
SETTLED_SECONDS: Final = 8.0
# So late an answer may have crossed the timeout on its way.
LATE_ANSWER: Final = 0.8
# How long a message of a healthy destination may wait, and how much longer for each fault that it meets. On a machine
# with much other work everything takes longer: so many times what the slowest enqueue took beside it.
HEALTHY_SECONDS: Final = 3.0
ENQUEUES: Final = 10.0
ALLOWANCES: Final[Mapping[str, float]] = {
    # The lease, the reaper, for ten seconds the place of a reaper that died, and a process for suspects.
    **dict.fromkeys(["kill", "freeze", "exit", "block"], 18.0),
    **dict.fromkeys(["stop", "server", "read_only", "cut", "stall"], 3.0),
    "clock": 5.0,  # a lease, and a look at the clock
}
_DEADLY: Final = ("kill", "freeze", "block", "exit", "stall")
_AWAY: Final = ("server", "read_only", "cut", "clock")
_SENT_AGAIN: Final = ("requeue", "replay", "deny", "edit", "repair")


@dataclass(kw_only=True)
class Asked:
    """One verb on one message. committed: None = it is not known."""

    verb: str
    answer: str
    asked_at: float
    answered_at: float
    committed: bool | None = True
    out_of_order: bool = False


@dataclass(kw_only=True)
class Message:
    """What its producer knows of a message.

    committed: None = the reply of COMMIT was lost. began_at: when COMMIT was asked for; acknowledged_at: when it was
    answered. calm: nothing was to go wrong with it.
    """

    name: str
    id: str
    destination: str
    lane: tuple[str, str] | None = None
    committed: bool | None = None
    began_at: float = 0.0
    acknowledged_at: float = 0.0
    expires: bool = False
    calm: bool = True
    asked: list[Asked] = field(default_factory=list)

    def has(
        self, *verbs: str, answers: Sequence[str] = ("done", "new", "unknown"), since: float = 0.0, until: float = 1e12
    ) -> bool:
        """Whether one of these verbs was, or may have been, done in that time."""
        return any(
            one.verb in verbs and one.answer in answers and one.committed is not False
            and one.asked_at <= until and one.answered_at >= since
            for one in self.asked
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Disturbed:
    """Something that was done to a process (pid), or to the database (no pid)."""

    kind: str
    since: float
    until: float
    pid: int | None = None


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What the database says of a message: pending, leased, dead, held, unrecorded, how it was closed, or gone.

    behind: it waits behind a message of its key that waits for a person. waits_for: what the row of a pending one says.
    """

    state: str
    waits_for: str = ""


@dataclass(kw_only=True)
class Book:
    """Everything that is known from outside the engine. complaints: what the runner saw of processes."""

    messages: list[Message] = field(default_factory=list)
    disturbed: list[Disturbed] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    observed: Sequence[Line] = ()
    handled: Sequence[Line] = ()
    ended_at: float = 0.0

    def disturbances(self, line: Line, *kinds: str, since: float, until: float) -> bool:
        """Whether the process of a line, or the one that started it, was disturbed in that time."""
        whose = {line.get("pid"), line.get("parent")}
        return any(
            one.kind in kinds and one.pid in whose and one.since <= until and one.until >= since
            for one in self.disturbed
        )  # fmt: skip

    def was_away(self, since: float, until: float, *kinds: str) -> bool:
        return any(one.kind in kinds and one.since <= until and one.until >= since for one in self.disturbed)

    def is_late(self, line: Line) -> bool:
        """Sent by a process that had stood still: only a token can stop that."""
        at = line["at"]
        return self.disturbances(line, "freeze", "block", "stall", since=at - WAKING_SECONDS, until=at)


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Of messages of the healthy destination, in seconds: of those that met no fault, and of all."""

    calm: Sequence[float] = ()
    every: Sequence[float] = ()


def judged(book: Book, reported: Mapping[str, Reported]) -> list[str]:
    """reported: by message id."""
    requests = [line for line in book.observed if line["log"] == "request"]
    return [
        *(f"[process] {complaint}" for complaint in book.complaints),
        *_never_committed(book, requests),
        *_lost(book, reported),
        *_parked_without_a_cause(book, reported),
        *_answered_otherwise(book, reported),
        *_sent_after_cancelled(book, requests),
        *_second_effect(book),
        *_known_outcome(book, reported),
        *_in_order(book, requests),
        *_neighbours(book),
    ]


def _state(message: Message, reported: Mapping[str, Reported]) -> str:
    return reported[message.id].state if message.id in reported else "gone"


def _never_committed(book: Book, requests: Sequence[Line]) -> Iterator[str]:
    known = {message.id: message for message in book.messages}
    by_record = {line["enqueued"] for line in book.handled if line["log"] == "enqueued"}
    for line in requests:
        message = known.get(line["id"])
        if message is None:
            if line["id"] not in by_record:
                yield f"[never asked for] A {line['call']} of {line['id']} was seen, and no producer enqueued it."
        elif message.committed is False:
            yield f"[rolled back] A {line['call']} of {message.name} was seen, whose transaction did not commit."
        elif line["at"] + CLOCK_SECONDS < message.began_at:
            yield f"[before its commit] A {line['call']} of {message.name} was seen before its commit was asked for."


def _lost(book: Book, reported: Mapping[str, Reported]) -> Iterator[str]:
    """What was acknowledged is delivered with an effect, parked, or closed by a verb that said so."""
    effects = {line["id"] for line in book.observed if line["log"] == "effect"}
    skipped = {message.lane for message in book.messages if message.has("skip")}
    for message in book.messages:
        if not message.committed:
            continue
        state = _state(message, reported)
        match state:
            case "gone":
                yield f"[lost] {message.name} was committed, and the database does not have it."
            case "pending" | "leased":
                waits_for = reported[message.id].waits_for
                because = f": {waits_for}" if waits_for else ""
                yield f"[not over] {message.name} for {message.destination} is still {state}{because}."
            case "delivered" if message.id not in effects and not message.has("confirm"):
                yield f"[lost] {message.name} is reported as delivered, and had no effect at {message.destination}."
            case "cancelled" if not message.has(
                "cancel", "stop_message", answers=("cancelled", "in_flight", "in_doubt", "unknown")
            ):
                yield f"[lost] {message.name} is reported as cancelled, and no caller was told so."
            case "discarded" if not message.has("discard", answers=("done", "unknown")):
                yield f"[lost] {message.name} is reported as discarded, and no caller was told so."
            case "skipped" if message.lane not in skipped:
                yield f"[lost] {message.name} is reported as skipped, and no caller was told so."
            case "expired" if not message.expires:
                yield f"[lost] {message.name} is reported as expired, and it had no such time."


def _parked_without_a_cause(book: Book, reported: Mapping[str, Reported]) -> Iterator[str]:
    """With nothing wrong in its life, a message is not parked."""
    for message in book.messages:
        state = _state(message, reported)
        if not message.committed or state not in ("dead", "held", "unrecorded") or not message.calm or message.asked:
            continue
        if not book.was_away(message.began_at, book.ended_at, *_DEADLY, *_AWAY, "stop"):
            yield f"[parked without a cause] {message.name} for {message.destination} is {state}."


def _answered_otherwise(book: Book, reported: Mapping[str, Reported]) -> Iterator[str]:
    """What a person or an application was told is so at the end."""
    becomes = {"cancelled": "cancelled"}
    for message in book.messages:
        state = _state(message, reported)
        for one in message.asked:
            told = becomes.get(one.answer) if one.verb in ("cancel", "stop_message") else None
            if one.verb in ("discard", "confirm") and one.answer == "done":
                told = "discarded" if one.verb == "discard" else "delivered"
            if told and one.committed and message.committed and state != told:
                yield f"[told otherwise] {one.verb} of {message.name} answered {one.answer}, and it is {state}."


def _sent_after_cancelled(book: Book, requests: Sequence[Line]) -> Iterator[str]:
    by_id = {message.id: message for message in book.messages}
    for line in requests:
        message = by_id.get(line["id"])
        if message is None or line["call"] != "send" or book.is_late(line):
            continue
        for one in message.asked:
            if one.answer == "cancelled" and one.committed and line["at"] > one.answered_at + CLOCK_SECONDS:
                yield (
                    f"[sent after cancelled] Attempt {line['attempt']} of {message.name} was sent"
                    f" {line['at'] - one.answered_at:.2f} s after it had been cancelled."
                )


def _second_effect(book: Book) -> Iterator[str]:
    """Of one message and token. Each further one needs a fault on that very message, or a person's act."""
    names = {message.id: message for message in book.messages}
    requests = {(line["id"], line["attempt"]): line for line in book.observed if line["log"] == "request"}
    ended = _ended(book)
    seen: dict[str, list[Line]] = defaultdict(list)
    for line in book.observed:
        if line["log"] in ("effect", "repeat"):
            seen[line["token"]].append(line)
    for lines in seen.values():
        for before, after in pairwise(lines):
            message = names.get(before["id"])
            if message is None or book.is_late(after) or book.is_late(before):
                continue
            if after["destination"] not in REMEMBERING and message.has(
                *_SENT_AGAIN, since=before["at"] - CLOCK_SECONDS, until=after["at"]
            ):
                continue
            excuse = after["destination"] not in (*REMEMBERING, HELD) and _may_be_sent_again(
                book, before, requests, ended, until=after["at"]
            )
            if not excuse:
                yield (
                    f"[second effect] {message.name} had an effect at {after['destination']} by attempt"
                    f" {before['attempt']}, and attempt {after['attempt']} was sent again"
                    f" ({_how(ended.get((before['id'], before['attempt'])))})."
                )


def _ended(book: Book) -> dict[tuple[str, int], Line]:
    """How the handler of each attempt ended; nothing where it did not."""
    ended: dict[tuple[str, int], Line] = {}
    for line in book.handled:
        if line["log"] in ("answered", "cut", "raised"):
            ended.setdefault((line["id"], line["attempt"]), line)
    return ended


def _may_be_sent_again(
    book: Book,
    effect: Line,
    requests: Mapping[tuple[str, int], Line],
    ended: Mapping[tuple[str, int], Line],
    *,
    until: float,
) -> bool:
    """Whether the engine could not know of this effect: nothing was said, too late, or to a process that was ended."""
    attempt = effect["id"], effect["attempt"]
    end = ended.get(attempt)
    began = requests[attempt]["at"] if attempt in requests else effect["at"]
    if book.disturbances(effect, *_DEADLY, since=began, until=until):
        return True
    if end is None or end["log"] == "raised":
        # Nothing was said. Of a thread the time is over when the engine says so.
        return end is not None or effect["at"] + TIMEOUT_SECONDS * LATE_ANSWER < until
    if end["log"] == "cut":
        return bool(end["seconds"] > TIMEOUT_SECONDS * LATE_ANSWER) or book.disturbances(
            effect, "stop", since=began, until=until
        )
    return end["answer"] in ("unknown", "nonsense") or end["seconds"] > TIMEOUT_SECONDS * LATE_ANSWER


def _how(end: Line | None) -> str:
    if end is None:
        return "its handler did not end"
    more = f" {end['answer']}" if end["log"] == "answered" else ""
    return f"its handler {end['log']}{more} after {end['seconds']:.2f} s"


def _known_outcome(book: Book, reported: Mapping[str, Reported]) -> Iterator[str]:
    """A delivery that a handler has reported to a process that lived on is not taken back."""
    by_id = {message.id: message for message in book.messages}
    for line in book.handled:
        message = by_id.get(line["id"])
        if message is None or line["log"] != "answered" or line["answer"] != "delivered":
            continue
        began = line["at"] - line["seconds"]
        if line["seconds"] > TIMEOUT_SECONDS * LATE_ANSWER or book.disturbances(
            line, *_DEADLY, since=began - WAKING_SECONDS, until=line["at"] + SETTLED_SECONDS
        ):
            continue
        state = _state(message, reported)
        if message.committed and state not in ("delivered", "unrecorded", "discarded", "skipped"):
            yield (
                f"[outcome lost] Attempt {line['attempt']} of {message.name} for {message.destination} was delivered,"
                f" its relay was told so, and it is {state}."
            )


def _in_order(book: Book, requests: Sequence[Line]) -> Iterator[str]:
    """No send of a message after the first one of a later message of its key, unless a person asked for that."""
    sends: dict[str, list[Line]] = defaultdict(list)
    for line in requests:
        if line["call"] == "send" and not book.is_late(line):
            sends[line["id"]].append(line)
    lanes: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for message in book.messages:
        if message.lane and message.id in sends:
            lanes[message.lane].append(message)
    for lane, messages in lanes.items():
        for place, after in enumerate(messages):
            first = sends[after.id][0]
            for before in messages[:place]:
                last = sends[before.id][-1]
                if last["place"] > first["place"] and not any(
                    one.out_of_order and one.answer in ("done", "new", "unknown") for one in before.asked
                ):
                    yield (
                        f"[out of order] {after.name} was sent (attempt {first['attempt']}) before {before.name}, which"
                        f" comes before it in {lane[0]}/{lane[1]}, had been sent for the last time (attempt"
                        f" {last['attempt']})."
                    )


def delays_of(book: Book) -> Delays:
    calm, every = [], []
    for _, delay, _, is_calm in _waits(book):
        every.append(delay)
        if is_calm:
            calm.append(delay)
    return Delays(calm=calm, every=every)


def _neighbours(book: Book) -> Iterator[str]:
    """A healthy destination does not wait for others."""
    late = [(message, delay, allowed) for message, delay, allowed, _ in _waits(book) if delay > allowed]
    if late:
        message, delay, allowed = max(late, key=lambda one: one[1] - one[2])
        yield (
            f"[neighbour waited] {len(late)} of the healthy destination waited too long; {message.name} {delay:.2f} s,"
            f" where {allowed:.1f} s are allowed with the faults that it met."
        )


def _waits(book: Book) -> Iterator[tuple[Message, float, float, bool]]:
    """Each message of the healthy destination: how long it waited, how long it may, whether it met no fault."""
    first: dict[str, float] = {}
    for line in book.observed:
        if line["log"] == "request":
            first.setdefault(line["id"], line["at"])
    healthy = [one for one in book.messages if one.destination == HEALTHY and one.committed]
    for message in healthy:
        since, until = message.began_at, first.get(message.id, book.ended_at)
        beside = (one for one in healthy if since <= one.acknowledged_at <= until + 1)
        slowest = max(one.acknowledged_at - one.began_at for one in beside)
        met = _met(book, since, until)
        delay = max(0.0, until - message.acknowledged_at)
        yield message, delay, HEALTHY_SECONDS + ENQUEUES * slowest + met, not met


def _met(book: Book, since: float, until: float) -> float:
    """Each fault for as long as it lasts, and an allowance for what follows."""
    return sum(
        one.until - one.since + ALLOWANCES[one.kind]
        for one in book.disturbed
        if one.since <= until and one.until + ALLOWANCES[one.kind] >= since
    )


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
