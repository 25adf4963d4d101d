"""Destinations that are declared in `redrive.toml` instead of Python: `[destinations.NAME]`.

The keys are the options of `App.transport` and of the transport, with the same bounds; an unknown key is refused with
the nearest known one. A secret never stands in the file: its key ends in `_env` or `_file` and says where it is. The
child process for suspects finds the app as `redrive.operate.toml_destinations:app`.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from redrive import settings_sources as sources
from redrive.app import App, DestinationOptions
from redrive.errors import InvalidValue, SettingsError
from redrive.produce.bounds import shown
from redrive.system import System, discover

SPEC: Final = "redrive.operate.toml_destinations:app"
TABLE: Final = "destinations"
# Options that only Python can give.
_PYTHON_ONLY: Final = frozenset({"record", "schema", "signer", "return"})
_SECRET_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
_NO: Final = object()
Part = TypeVar("Part")


class Place(NamedTuple):
    """Where a destination, or a part of a system, is declared."""

    name: str
    file: Path
    table: str = TABLE

    def __str__(self) -> str:
        return f"[{self.table}.{self.name}] in {self.file}"


def app_from_file(config: Path | str | None = None) -> App:
    """The app that the settings file declares; one without destinations is refused."""
    found = sources.read_file(config)
    systems = [] if found is None else [one for one in discover().values() if one.name in found.values]
    if found is None or not (TABLE in found.values or systems):
        raise SettingsError(
            "No app is named, and no destination is declared in a settings file.",
            next=f'name one (redrive relay shop:app), or write [{TABLE}.NAME] with transport = "http" in'
            f" {sources.FILE_NAME}",
        )
    app = App()
    for system in systems:
        app.include(_configured(system, found))
    tables = found.values.get(TABLE, {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise SettingsError(f"{TABLE} in {found.path} must be tables.", next=f"write [{TABLE}.NAME]")
    for name, table in tables.items():
        _declare(app, Place(name, found.path), table)
    return app


def _configured(system: System, found: sources.Read) -> System:
    """As the table of its name says: such as `[payments.rails.sepa]`."""
    table = found.values[system.name]
    if system.from_settings is None or not isinstance(table, dict):
        raise SettingsError(f"{system.name} in {found.path} must be a table of a system that takes one.")
    try:
        return system.from_settings(table, found.path)
    except InvalidValue as error:
        raise SettingsError(f"{error} (from [{system.name}] in {found.path})") from error


def names(config: Path | str | None = None) -> list[str]:
    """Of the destinations that the settings file declares, whatever else is said of them."""
    found = sources.read_file(config)
    tables = found.values.get(TABLE) if found is not None else None
    return list(tables) if isinstance(tables, dict) else []


def __getattr__(name: str) -> Any:
    if name == "app":  # for `load_app`, in the process that runs suspects
        return app_from_file()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def known_keys() -> frozenset[str]:
    return frozenset({"transport", *_OWN_KEYS, *_options(DestinationOptions), *_options(_http_transport().__init__)})


def part(kind: type[Part], place: Place, table: Mapping[str, Any], **given: Any) -> Part:
    """A part of a system as a table declares it: the fields of a dataclass that has `url` and `headers`, as with a
    destination, secrets named and not written. given: fields that the table does not have."""
    with _refusals_from(place):
        hints = {name: hint for name, hint in get_type_hints(kind).items() if name not in given}
        _refuse_unknown(table, [*hints, *(key for key in _OWN_KEYS if not key.startswith("signing"))])
        return kind(**{**_values(hints, table), **_secrets(place, table), **given})


@contextmanager
def _refusals_from(place: Place, *, advice: str = "") -> Iterator[None]:
    try:
        yield
    except InvalidValue as error:
        raise SettingsError(f"{error} (from {place})", next=advice) from error
    except _UnknownKey as unknown:
        raise SettingsError(f"There is no key {unknown.key!r} (from {place}).", next=unknown.advice) from None


def _declare(app: App, place: Place, table: Mapping[str, Any]) -> None:
    with _refusals_from(place, advice="see docs/how-to/deliver-without-python.md"):
        if table.get("transport") != "http":
            raise InvalidValue(f"transport of {place.name!r} is {table.get('transport')!r}; it must be one of http.")
        kind = _http_transport()
        _refuse_unknown(table, known_keys())
        options, own = _options(DestinationOptions), _options(kind.__init__)
        transport = kind(**{**_values(own, table), **_secrets(place, table)})
        app.transport(place.name, transport, **_values(options, table))


def _http_transport() -> Any:
    try:
        return import_module("redrive.transports.http").HttpTransport
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise SettingsError('transport = "http" needs aiohttp.', next="pip install 'redrive[http]'") from error


class _UnknownKey(Exception):
    def __init__(self, key: str, known: Collection[str]) -> None:
        super().__init__(key)
        near = get_close_matches(key, known, n=1)
        self.key = key
        self.advice = f"did you mean {near[0]}?" if near else f"known are: {', '.join(sorted(known))}"


def _refuse_unknown(table: Mapping[str, Any], known: Collection[str]) -> None:
    for key in table:
        if key not in known:
            raise _UnknownKey(key, known)


def _options(declared: Any) -> dict[str, Any]:
    """The options that a file can give, and their types. declared: a TypedDict, or a function."""
    return {name: hint for name, hint in get_type_hints(declared).items() if name not in _PYTHON_ONLY}


def _values(options: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(hint, table[name], name) for name, hint in options.items() if name in table}


# values of TOML as the values of Python that an option wants


def _value(hint: Any, given: Any, what: str) -> Any:
    alternatives = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for kind in alternatives:
        value = _fitting(kind, given, what)
        if value is not _NO:
            return value
    words = dict.fromkeys(_words(kind) for kind in alternatives if kind is not type(None))
    raise InvalidValue(f"{what} is {shown(given)}; it must be {' or '.join(word for word in words if word)}.")


def _fitting(kind: Any, given: Any, what: str) -> Any:
    """The value, or `_NO` where it is not of that kind. Its bounds are checked by the option itself."""
    origin = get_origin(kind)
    if is_dataclass(kind):
        return _built(kind, given, what) if isinstance(given, dict) else _NO
    if origin is Literal:
        return given if isinstance(given, str) else _NO
    if origin is not None and issubclass(origin, Mapping):
        is_texts = isinstance(given, dict) and all(isinstance(text, str) for text in given.values())
        return given if is_texts else _NO
    if origin in (frozenset, Sequence, Collection):
        if not isinstance(given, list):
            return _NO
        values = [_value(get_args(kind)[0], one, f"{what}[{place}]") for place, one in enumerate(given)]
        return frozenset(values) if origin is frozenset else values
    if kind is float:
        return given if type(given) in (int, float) else _NO
    return given if type(given) is kind else _NO


def _built(kind: Any, given: Mapping[str, Any], what: str) -> Any:
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind) if field.init]
    try:
        _refuse_unknown(given, known)
    except _UnknownKey as unknown:
        raise InvalidValue(f"There is no key {unknown.key!r} in {what}; {unknown.advice}") from None
    return kind(**{name: _value(hints[name], given[name], f"{what}.{name}") for name in given})


def _words(kind: Any) -> str:
    if is_dataclass(kind):
        return "a table"
    origin = get_origin(kind)
    if origin is not None and origin is not Literal:
        if issubclass(origin, Mapping):
            return "a table of texts"
        return f"a list of {'whole numbers' if get_args(kind)[0] is int else 'texts'}" if _is_list(origin) else ""
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "a text")


def _is_list(origin: Any) -> bool:
    return origin in (frozenset, Sequence, Collection)


# secrets: where they are, never what they are


def _secrets(place: Place, table: Mapping[str, Any]) -> dict[str, Any]:
    """What the keys that end in `_env` and `_file` stand for, as parameters of the transport."""
    found: dict[str, Any] = {}
    if "url" not in table:
        found["url"] = _one_of(place, table, "url")
    headers = dict(_values({"headers": Mapping[str, str]}, table).get("headers", {}))
    for name in headers:
        if name.lower() in _SECRET_HEADERS:
            raise InvalidValue(
                f"headers of {place.name!r} has {name!r}, a secret; name it in headers_env or headers_file."
            )
    for key, read in _READERS.items():
        named = _values({f"headers_{key}": Mapping[str, str]}, table).get(f"headers_{key}", {})
        headers |= {name: read(place, source, f"headers_{key}.{name}") for name, source in named.items()}
    found["headers"] = headers
    secrets = [
        read(place, source, f"signing_secrets_{key}")
        for key, read in _READERS.items()
        for source in _values({f"signing_secrets_{key}": Sequence[str]}, table).get(f"signing_secrets_{key}", ())
    ]
    if secrets:
        found["signer"] = import_module("redrive.transports.http").Signer(secrets)
    return found


def _one_of(place: Place, table: Mapping[str, Any], what: str) -> str:
    for key, read in _READERS.items():
        if f"{what}_{key}" in table:
            return read(place, _value(str, table[f"{what}_{key}"], f"{what}_{key}"), f"{what}_{key}")
    raise InvalidValue(f"{what} of {place.name!r} is missing; give {what}, {what}_env or {what}_file.")


def _from_variable(place: Place, source: str, what: str) -> str:
    value = os.environ.get(source)
    if not value:
        raise InvalidValue(f"{what} of {place.name!r} names the variable {source}, which is not set.")
    return value


def _from_file(place: Place, source: str, what: str) -> str:
    """A relative path is taken from where the settings file is."""
    try:
        return (place.file.parent / source).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise InvalidValue(f"{what} of {place.name!r} names the file {source}, which cannot be read: {why}.") from error


_READERS: Final[dict[str, Callable[[Place, str, str], str]]] = {"env": _from_variable, "file": _from_file}
_OWN_KEYS: Final = tuple(f"{what}_{key}" for what in ("url", "headers", "signing_secrets") for key in _READERS)
