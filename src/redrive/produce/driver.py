"""What all driver modules share."""

from collections.abc import Awaitable, Callable
from enum import Enum
from functools import cache
from itertools import count
from typing import NoReturn, TypeVar

from redrive.errors import NoOpenTransaction, OpenTransaction, UsageError
from redrive.produce.protocol import Rows, Statement, Steps, explained

T = TypeVar("T")
IDLE, IN_TRANSACTION, IN_ERROR = 0, 2, 3  # libpq's PGTransactionStatusType


class Within(Enum):
    """What steps need of the caller's transaction.

    OPEN: it is open, or opened by the statement. ANY: it may be open. NONE: it is not, and none is left open.
    """

    OPEN = "open"
    ANY = "any"
    NONE = "none"


def carry(steps: Steps[T], execute: Callable[[Statement], Rows]) -> T:
    try:
        statement = next(steps)
        while True:
            statement = steps.send(execute(statement))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def acarry(steps: Steps[T], execute: Callable[[Statement], Awaitable[Rows]]) -> T:
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await execute(statement))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def has_rows(query: str) -> bool:
    """By the text: in a pipeline there is no result yet."""
    return query.startswith("SELECT")


@cache
def with_dollars(query: str) -> str:
    """`$1` for the first `%s`, and so on."""
    first, *others = query.split("%s")
    return first + "".join(f"${number}{other}" for number, other in zip(count(1), others, strict=False))


def check_status(status: int, within: Within, *, autocommit: bool, write: str) -> None:
    """status: libpq's number. write: as `refuse_autocommit`."""
    if status == IN_ERROR:
        refuse_failed_transaction()
    if within is Within.NONE and status == IN_TRANSACTION:
        refuse_open_transaction()
    if within is Within.OPEN and status == IDLE and autocommit:
        refuse_autocommit(write)


def refuse_autocommit(write: str) -> NoReturn:
    """write: how a transaction is opened with this driver."""
    raise NoOpenTransaction(
        "The connection is in autocommit mode and no transaction is open, so the message could not commit together"
        f" with your data. Write both inside {write}."
    )


def refuse_open_transaction() -> NoReturn:
    raise OpenTransaction(
        "A transaction is open on this connection. What it enqueued is sent only after its commit, and it may see"
        " nothing of what others do meanwhile: waiting inside it could have no end. Commit it or roll it back, then"
        " wait."
    )


def refuse_failed_transaction() -> NoReturn:
    raise UsageError(
        "The transaction on this connection has failed already and takes no statement; roll it back, then try again."
    )


def reraise(error: Exception, *, sqlstate: str | None, text: str | None) -> NoReturn:
    """In our words where we have any, else as the driver said it."""
    if sqlstate == "25P02":  # in_failed_sql_transaction
        refuse_failed_transaction()
    known = explained(sqlstate, text or str(error))
    if known is None:
        raise error
    raise known from error
