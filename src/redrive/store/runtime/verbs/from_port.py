"""Methods of the store whose SQL function takes the parameters of the port's method, in their order.

pause = from_port.value(DestinationVerbs.pause)    # SELECT redrive.pause_1(destination, actor, reason, now)
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from redrive.store.runtime import wire
from redrive.who import require_actor_and_reason

P = ParamSpec("P")
T = TypeVar("T")


def value(port: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Returns the one value of the function, and None where the port promises nothing: PostgreSQL's void is a text."""

    @wraps(port)
    async def method(*args: P.args, **options: P.kwargs) -> T:
        store, values = bound(signature, args, options)
        found: Any = await store.value(function, *values)
        return None if is_void else found  # type: ignore[return-value]

    signature, function = inspect.signature(port), f"{port.__name__}_1"
    is_void = signature.return_annotation in ("None", None)
    return method


def rows(port: Callable[P, Awaitable[Sequence[T]]], kind: type[T]) -> Callable[P, Coroutine[Any, Any, Sequence[T]]]:
    """Returns each row as an object of the kind, which has a field for each column."""

    @wraps(port)
    async def method(*args: P.args, **options: P.kwargs) -> Sequence[T]:
        store, values = bound(signature, args, options)
        return wire.objects(kind, await store.call(function, *values))

    signature, function = inspect.signature(port), f"{port.__name__}_1"
    return method


def row(port: Callable[P, Awaitable[T]], kind: type[T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Returns the one row, as `rows`."""
    all_rows: Any = rows(port, kind)  # type: ignore[arg-type]

    @wraps(port)
    async def method(*args: P.args, **options: P.kwargs) -> T:
        found: Sequence[T] = await all_rows(*args, **options)
        return found[0]

    return method


def bound(signature: inspect.Signature, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The store, and the values for its function."""
    given = signature.bind(*args, **options)
    given.apply_defaults()
    named = given.arguments
    if "actor" in named and "reason" in named:
        require_actor_and_reason(named["actor"], named["reason"])
    store, *values = named.values()
    return store, [wire.array(one) if isinstance(one, list | tuple) else one for one in values]
