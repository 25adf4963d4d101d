"""Enqueue without I/O: which statements to run, and what their answers mean.

`one` and `many` are generators: they yield a statement with its values, get its rows back, and return receipts; a
driver carries them between the two. SQL: `verbs/enqueue.sql`, `verbs/enqueue_many.sql`.
"""

import hashlib
from collections.abc import Generator, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, LiteralString, NamedTuple, TypeVar
from uuid import UUID

from redrive.errors import (
    DestinationOwned,
    InvalidPayload,
    InvalidValue,
    KeyReused,
    RedriveError,
    SchemaError,
    UsageError,
)
from redrive.message import MessageId, NewMessage, Receipt
from redrive.produce import bounds, payload
from redrive.produce.trace_context import with_trace_context

CHUNK_MESSAGES_MAX: Final = 10_000
CHUNK_BYTES_MAX: Final = 16 * 1024 * 1024  # one statement's payloads; the server refuses a gigabyte
LISTED_MAX: Final = 10

T = TypeVar("T")
Statement = tuple[LiteralString, Sequence[Any]]
Rows = Sequence[Sequence[Any]]
Steps = Generator[Statement, Rows, T]

_ONE: Final[LiteralString] = (
    "SELECT result, id, sequence, state FROM redrive.enqueue_1(%s::text, %s::bytea, %s::text, %s::text, %s::text,"
    " %s::text, %s::text::json, %s::timestamptz, NULL, %s::smallint, %s::text, NULL, %s::text)"
)
# Whether it has expired is judged by the database's clock before the verb is called: the verb would raise, and abort
# the caller's transaction. OFFSET 0 keeps the reading of the clock a single one.
_ONE_THAT_EXPIRES: Final[LiteralString] = (
    "SELECT e.result, e.id, e.sequence, e.state"
    " FROM (SELECT clock_timestamp() AS now, %s::timestamptz AS expires_at OFFSET 0) AS t"
    " CROSS JOIN LATERAL redrive.enqueue_1(%s::text, %s::bytea, %s::text, %s::text, %s::text, %s::text, %s::text::json,"
    " %s::timestamptz, t.expires_at, %s::smallint, %s::text, t.now, %s::text) AS e"
    " WHERE t.expires_at > t.now"
)
_MANY: Final[LiteralString] = (
    "SELECT e.place, e.result, e.id, e.sequence, e.state"
    " FROM (SELECT clock_timestamp() AS now, %s::timestamptz AS earliest OFFSET 0) AS t"
    " CROSS JOIN LATERAL redrive.enqueue_many_1(%s::text[], %s::bytea[], %s::text[], %s::text[], %s::text[],"
    " %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s::smallint[], %s::text[], t.now, %s::text[]) AS e"
    " WHERE t.earliest IS NULL OR t.earliest > t.now"
)
_REGISTER_KEYS: Final[LiteralString] = _MANY.replace("%s::text[]) AS e", "%s::text[], NULL, true) AS e")
_MANY_REGISTERED: Final[LiteralString] = _MANY.replace("%s::text[]) AS e", "%s::text[], %s::text[]::uuid[]) AS e")
_SAVEPOINT: Final[LiteralString] = "SAVEPOINT redrive_enqueue_many"
_UNDO: Final[LiteralString] = "ROLLBACK TO SAVEPOINT redrive_enqueue_many"
_RELEASE: Final[LiteralString] = "RELEASE SAVEPOINT redrive_enqueue_many"


class Prepared(NamedTuple):
    destination: str
    body: bytes
    key: str | None
    tenant: str
    kind: str
    content_type: str
    headers: str | None
    due_at: datetime | None
    expires_at: datetime | None
    level: int
    order_by: str | None
    token_seed: str | None
    first_wins: bool


class Answer(NamedTuple):
    result: str
    id: UUID
    sequence: int | None
    state: str


def prepare(message: NewMessage) -> Prepared:
    body, content_type = payload.encode(message.payload)
    due_at, expires_at = bounds.times(message.due_at, message.expires_at)
    return Prepared(
        destination=bounds.name("destination", message.destination),
        body=body,
        key=bounds.key(message.key),
        tenant=bounds.name("tenant", message.tenant),
        kind=bounds.name("kind", message.kind, shortest=0),
        content_type=content_type if message.content_type is None else bounds.content_type(message.content_type),
        headers=bounds.headers(with_trace_context(message.headers)),
        due_at=due_at,
        expires_at=expires_at,
        level=bounds.level(message.priority),
        order_by=bounds.optional_text("order_by", message.order_by, longest=bounds.ORDER_BY_MAX),
        token_seed=bounds.optional_text("token_seed", message.token_seed, longest=bounds.KEY_MAX),
        first_wins=bounds.choice(message.on_other_payload) == "first_wins",
    )


def prepare_many(messages: Sequence[NewMessage]) -> list[Prepared]:
    """All of them, or the first refusal with its position."""
    prepared = []
    for place, message in enumerate(messages):
        if not isinstance(message, NewMessage):
            raise InvalidValue(f"messages[{place}] is of type {type(message).__name__}; it must be a NewMessage.")
        try:
            prepared.append(prepare(message))
        except (InvalidPayload, InvalidValue) as error:
            raise type(error)(f"messages[{place}]: {error}") from error
    return prepared


def one(message: Prepared) -> Steps[Receipt]:
    *values, expires_at, level, order_by, token_seed = message[:-1]
    if expires_at is None:
        rows = yield _ONE, (*values, level, order_by, token_seed)
    else:
        rows = yield _ONE_THAT_EXPIRES, (expires_at, *values, level, order_by, token_seed)
        if not rows:
            raise InvalidValue(_has_passed(message))
    answer = _answer(*rows[0])
    if answer.result == "conflict" and not message.first_wins:
        raise _key_reused([_conflict(message, answer)])
    return _receipt(answer)


def many(messages: Sequence[Prepared]) -> Steps[list[Receipt]]:
    """Where one is refused, nothing of the call stays."""
    whole = _fits_one_statement(messages)
    undoable = not whole or any(message.key is not None and not message.first_wins for message in messages)
    if undoable:
        yield _SAVEPOINT, ()
    try:
        answers = yield from _enqueue_whole(messages) if whole else _enqueue_in_chunks(messages)
        _refuse_conflicts(messages, answers)
    except UsageError:
        if undoable:
            yield _UNDO, ()
            yield _RELEASE, ()
        raise
    if undoable:
        yield _RELEASE, ()
    return [_receipt(answer) for answer in answers]


def _enqueue_whole(messages: Sequence[Prepared]) -> Steps[list[Answer]]:
    answers = (yield from _run_chunk(_MANY, messages, range(len(messages)))) if messages else {}
    return [answers[place] for place in range(len(messages))]


def _enqueue_in_chunks(messages: Sequence[Prepared]) -> Steps[list[Answer]]:
    """All keys are registered before the first message is numbered, keys and ordering keys each in one order over all
    statements, the same as inside the verb: so two such calls cannot deadlock. The first position of a key wins.
    """
    ids: dict[int, UUID] = {}
    keyed = [place for place, message in enumerate(messages) if message.key is not None]
    for chunk in _chunks(messages, sorted(keyed, key=lambda place: _by_key(messages[place]))):
        registered = yield from _run_chunk(_REGISTER_KEYS, messages, chunk)
        ids |= {place: answer.id for place, answer in registered.items()}
    new = [place for place, message in enumerate(messages) if message.key is None or place in ids]
    known = [place for place, message in enumerate(messages) if message.key is not None and place not in ids]
    answers: dict[int, Answer] = {}
    for chunk in _chunks(messages, sorted(new, key=lambda place: _by_ordering_key(messages[place]))):
        given = [str(ids[place]) if place in ids else None for place in chunk]
        answers |= yield from _run_chunk(_MANY_REGISTERED, messages, chunk, given if any(given) else None)
    for chunk in _chunks(messages, known):  # the first of each key is there by now
        answers |= yield from _run_chunk(_MANY, messages, chunk)
    return [answers[place] for place in range(len(messages))]


def _run_chunk(
    statement: LiteralString, messages: Sequence[Prepared], places: Sequence[int], *more: Any
) -> Steps[dict[int, Answer]]:
    earliest = min((e for e in (messages[place].expires_at for place in places) if e), default=None)
    rows = yield statement, (earliest, *_columns([messages[place] for place in places]), *more)
    if not rows and statement is not _REGISTER_KEYS:
        place = next(place for place in places if messages[place].expires_at == earliest)
        raise InvalidValue(f"messages[{place}]: {_has_passed(messages[place])}")
    return {places[number - 1]: _answer(*answer) for number, *answer in rows}


def _refuse_conflicts(messages: Sequence[Prepared], answers: Sequence[Answer]) -> None:
    conflicts = [
        f"messages[{place}]: {_conflict(message, answer)}"
        for place, (message, answer) in enumerate(zip(messages, answers, strict=True))
        if answer.result == "conflict" and not message.first_wins
    ]
    if conflicts:
        raise _key_reused(conflicts)


def _fits_one_statement(messages: Sequence[Prepared]) -> bool:
    return len(messages) <= CHUNK_MESSAGES_MAX and sum(len(m.body) for m in messages) <= CHUNK_BYTES_MAX


def _chunks(messages: Sequence[Prepared], places: Sequence[int]) -> Iterator[list[int]]:
    chunk: list[int] = []
    size = 0
    for place in places:
        room = len(messages[place].body)
        if chunk and (len(chunk) == CHUNK_MESSAGES_MAX or size + room > CHUNK_BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(place)
        size += room
    if chunk:
        yield chunk


def _by_key(message: Prepared) -> tuple[bytes, bytes]:
    assert message.key is not None
    return message.tenant.encode(), hashlib.sha256(message.key.encode()).digest()


def _by_ordering_key(message: Prepared) -> tuple[bytes, bytes]:
    """Messages of one ordering key keep their places among each other, since they are numbered as they come."""
    return message.tenant.encode(), (message.order_by or "").encode()


def _columns(messages: Sequence[Prepared]) -> list[list[Any] | None]:
    """An array of only NULLs is left out: drivers cannot tell its type."""
    columns = [list(column) for column in zip(*messages, strict=True)][:-1]
    return [column if any(value is not None for value in column) else None for column in columns]


def as_uuid(id: UUID | str) -> UUID:
    """psycopg2 knows no uuid unless it was told."""
    return id if isinstance(id, UUID) else UUID(id)


def _answer(result: str, id: UUID | str, sequence: int | None, state: str) -> Answer:
    return Answer(result, as_uuid(id), sequence, state)


def _receipt(answer: Answer) -> Receipt:
    known = answer.result != "new"
    return Receipt(MessageId(answer.id), already_existed=known, sequence=answer.sequence, state=answer.state)


def _has_passed(message: Prepared) -> str:
    return (
        f"expires_at is {message.expires_at}, which has passed by the database's clock: it could never be sent."
        " Nothing was enqueued; your transaction is still usable."
    )


def _key_reused(conflicts: Sequence[str]) -> KeyReused:
    lines = list(conflicts[:LISTED_MAX])
    if len(conflicts) > LISTED_MAX:
        lines.append(f"… and {len(conflicts) - LISTED_MAX} more.")
    return KeyReused(
        f"{' '.join(lines)} Nothing was enqueued; your transaction is still usable. Use another key, or"
        " on_other_payload='first_wins' to accept the first message."
    )


def _conflict(message: Prepared, answer: Answer) -> str:
    return (
        f"key {bounds.shown(message.key)} of tenant {message.tenant!r} belongs to message {answer.id},"
        " which has another payload, kind or destination."
    )


def explained(sqlstate: str | None, text: str) -> RedriveError | None:
    """None where the driver's own error says it best."""
    if sqlstate == "22023":
        return InvalidValue(text)
    if sqlstate == "42501" and text.startswith("destination ") and " belongs to the system " in text:
        return DestinationOwned(f"{text} Nothing was enqueued; roll your transaction back.")
    if sqlstate in {"42883", "3F000"}:  # no such function, no such schema
        return SchemaError(
            f"The schema redrive of this database is absent or older than this version ({text}).",
            next="redrive db upgrade",
        )
    return None
