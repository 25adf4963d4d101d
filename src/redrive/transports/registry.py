"""Transports by name, as `redrive.toml` names them: the built-in ones, those that installed packages offer as entry
points of the group `redrive.transports`, and any other as `module:Class`.

None is imported before it is asked for, so that each library is needed only by those who use it.
"""

import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from redrive.errors import InvalidValue

GROUP: Final = "redrive.transports"


class BuiltIn(NamedTuple):
    """where: module:class. library: the module without which it cannot be imported; its extra has the name."""

    where: str
    library: str


BUILT_IN: Final = {
    "http": BuiltIn("redrive.transports.http:HttpTransport", "aiohttp"),
    "kafka": BuiltIn("redrive.transports.kafka:KafkaTransport", "confluent_kafka"),
    "rabbitmq": BuiltIn("redrive.transports.rabbitmq:RabbitTransport", "aio_pika"),
    "redis": BuiltIn("redrive.transports.redis:RedisTransport", "redis"),
    "nats": BuiltIn("redrive.transports.nats:NatsTransport", "nats"),
    "smtp": BuiltIn("redrive.transports.smtp:SmtpTransport", "aiosmtplib"),
}


def names() -> list[str]:
    """All that can be named without a colon."""
    return sorted({*BUILT_IN, *_offered()})


def find(name: object) -> Callable[..., Any]:
    """The class (or function) that makes the transport. A name that is not known is refused with those that are."""
    if isinstance(name, str) and name in BUILT_IN:
        return _built_in(name)
    if isinstance(name, str) and ":" in name:
        return _loaded(name)
    offered = _offered()
    if isinstance(name, str) and name in offered:
        return _checked(name, offered[name].load())
    near = get_close_matches(str(name), names(), n=1)
    advice = f" Did you mean {near[0]}?" if near else ""
    raise InvalidValue(f"transport is {name!r}; it must be one of {', '.join(names())}, or module:Class.{advice}")


def _built_in(name: str) -> Callable[..., Any]:
    module, _, attribute = BUILT_IN[name].where.partition(":")
    try:
        return _checked(name, getattr(import_module(module), attribute))
    except ModuleNotFoundError as error:
        library = BUILT_IN[name].library
        if error.name != library:
            raise
        raise InvalidValue(f"transport = \"{name}\" needs {library}: pip install 'redrive[{name}]'.") from error


def _offered() -> dict[str, Any]:
    """Entry points of installed packages. Two with one name, or one with the name of a built-in one, are refused."""
    from importlib.metadata import entry_points  # slow to import, and needed by the command line only

    found: dict[str, Any] = {}
    for point in entry_points(group=GROUP):
        if point.name in BUILT_IN or point.name in found:
            raise InvalidValue(f"Two installed packages offer a transport named {point.name!r}.")
        found[point.name] = point
    return found


def _loaded(name: str) -> Callable[..., Any]:
    """From the current directory or the Python path, as `redrive relay module:app` finds an app."""
    module, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return _checked(name, getattr(import_module(module), attribute, None))
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise InvalidValue(
            f"transport is {name!r}; there is no module {module!r} here or on the Python path."
        ) from error


def _checked(name: str, found: Any) -> Callable[..., Any]:
    if not callable(found):
        raise InvalidValue(
            f"transport is {name!r}, which is a {type(found).__name__}; it must be a class or a function."
        )
    return found  # type: ignore[no-any-return]
