"""Destinations that are declared in `redrive.toml` instead of Python: `[destinations.NAME]`.

The keys are the options of `App.transport` and of the transport, with the same bounds. A secret never stands in the
file: its key ends in `_env` or `_file` and says where it is.
"""

import os
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from importlib import import_module
from inspect import getattr_static, signature
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from redrive import settings_sources as sources
from redrive.app import App, DestinationOptions
from redrive.errors import InvalidValue, SettingsError
from redrive.produce.bounds import shown
from redrive.system import System, discover
from redrive.transports import registry

SPEC: Final = "redrive.operate.toml_destinations:app"
TABLE: Final = "destinations"
# Options that only Python can give.
_PYTHON_ONLY: Final = frozenset({"record", "schema", "signer", "mail", "return"})
# Options that are secrets by themselves.
_SECRET_OPTIONS: Final = frozenset({"password", "api_key"})
# Headers, and options of Kafka's client, that are secrets.
_SECRET_NAMES: Final = frozenset({
    "authorization", "proxy-authorization", "cookie", "x-api-key",
    "sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password",
})  # fmt: skip
_NO: Final = object()
Part = TypeVar("Part")


class Place(NamedTuple):
    name: str
    file: Path
    table: str = TABLE

    def __str__(self) -> str:
        return f"[{self.table}.{self.name}] in {self.file}"


def app_from_file(config: Path | str | None = None) -> App:
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
    table = found.values[system.name]
    if system.from_settings is None or not isinstance(table, dict):
        raise SettingsError(f"{system.name} in {found.path} must be a table of a system that takes one.")
    try:
        return system.from_settings(table, found.path)
    except InvalidValue as error:
        raise SettingsError(f"{error} (from [{system.name}] in {found.path})") from error


def names(config: Path | str | None = None) -> list[str]:
    found = sources.read_file(config)
    tables = found.values.get(TABLE) if found is not None else None
    return list(tables) if isinstance(tables, dict) else []


def __getattr__(name: str) -> Any:
    if name == "app":  # for `load_app`, in the process that runs suspects
        return app_from_file()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def part(kind: type[Part], place: Place, table: Mapping[str, Any], **given: Any) -> Part:
    """A part of a system as a table declares it: the fields of a dataclass; `url`, `headers`, `password` and
    `api_key` as with a destination, secrets named and not written. given: fields that the table does not have."""
    with _refusals_from(place):
        hints = {name: hint for name, hint in get_type_hints(kind).items() if name not in given}
        named = {name: hint for name, hint in hints.items() if name in ("url", "headers", *_SECRET_OPTIONS)}
        _refuse_unknown(table, [*hints, *_named_keys(named)])
        values = {**_values(hints, table), **_named(place, table, named), **given}
        _refuse_missing(place, kind, values, named)
        return kind(**values)


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
        kind = registry.find(table.get("transport"))
        hints = get_type_hints(getattr_static(kind, "__init__") if isinstance(kind, type) else kind)
        options, own = _only_toml(get_type_hints(DestinationOptions)), _only_toml(hints)
        signing = _SIGNING_KEYS if "signer" in hints else ()
        _refuse_unknown(table, {"transport", *options, *own, *_named_keys(own), *signing})
        given = {**_values(own, table), **_named(place, table, own), **_signer(place, table)}
        _refuse_missing(place, kind, given, own)
        app.transport(place.name, kind(**given), **_values(options, table))


def _refuse_missing(place: Place, kind: Callable[..., Any], given: Collection[str], own: Mapping[str, Any]) -> None:
    for name, parameter in signature(kind).parameters.items():
        if name in own and name not in given and parameter.default is parameter.empty:
            advice = f"; give {name}, {name}_env or {name}_file" if _is_text(own[name]) else ""
            raise InvalidValue(f"{name} of {place.name!r} is missing{advice}.")


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


def _only_toml(hints: Mapping[str, Any]) -> dict[str, Any]:
    return {name: hint for name, hint in hints.items() if name not in _PYTHON_ONLY}


def _values(options: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(hint, table[name], name) for name, hint in options.items() if name in table}


# values of TOML as the values of Python that an option wants


def _value(hint: Any, given: Any, what: str) -> Any:
    alternatives = _alternatives(hint)
    for kind in alternatives:
        value = _fitting(kind, given, what)
        if value is not _NO:
            return value
    words = dict.fromkeys(_words(kind) for kind in alternatives if kind is not type(None))
    raise InvalidValue(f"{what} is {shown(given)}; it must be {' or '.join(word for word in words if word)}.")


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


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
    if _is_list(origin):
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


def _named(place: Place, table: Mapping[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    """What the keys that end in `_env` and `_file` stand for."""
    found: dict[str, Any] = {}
    for name, hint in hints.items():
        if _is_table(hint):
            texts = _named_texts(place, table, name)
            if texts:
                found[name] = texts
        elif _is_text(hint) and name not in table:
            found |= _named_text(place, table, name)
        elif name in _SECRET_OPTIONS and name in table:
            raise InvalidValue(f"{name} of {place.name!r} is a secret; name it in {name}_env or {name}_file.")
        elif _is_text(hint) and _has_password(table[name]):
            raise InvalidValue(f"{name} of {place.name!r} has a password; name it in {name}_env or {name}_file.")
    return found


def _named_text(place: Place, table: Mapping[str, Any], what: str) -> dict[str, str]:
    for key, read in _READERS.items():
        if f"{what}_{key}" in table:
            return {what: read(place, _value(str, table[f"{what}_{key}"], f"{what}_{key}"), f"{what}_{key}")}
    return {}


def _named_texts(place: Place, table: Mapping[str, Any], what: str) -> dict[str, str]:
    texts = dict(_values({what: Mapping[str, str]}, table).get(what, {}))
    for name in texts:
        if name.lower() in _SECRET_NAMES:
            raise InvalidValue(
                f"{what} of {place.name!r} has {name!r}, a secret; name it in {what}_env or {what}_file."
            )
    for key, read in _READERS.items():
        named = _values({f"{what}_{key}": Mapping[str, str]}, table).get(f"{what}_{key}", {})
        texts |= {name: read(place, source, f"{what}_{key}.{name}") for name, source in named.items()}
    return texts


def _signer(place: Place, table: Mapping[str, Any]) -> dict[str, Any]:
    secrets = [
        read(place, source, f"signing_secrets_{key}")
        for key, read in _READERS.items()
        for source in _values({f"signing_secrets_{key}": Sequence[str]}, table).get(f"signing_secrets_{key}", ())
    ]
    return {"signer": import_module("redrive.transports.http").Signer(secrets)} if secrets else {}


def _named_keys(hints: Mapping[str, Any]) -> list[str]:
    return [f"{name}_{key}" for name, hint in hints.items() if _is_text(hint) or _is_table(hint) for key in _READERS]


def _is_text(hint: Any) -> bool:
    return str in _alternatives(hint)


def _is_table(hint: Any) -> bool:
    return Mapping[str, str] in _alternatives(hint)


def _has_password(given: object) -> bool:
    urls = given if isinstance(given, list) else str(given).split(",")
    return any("://" in str(url) and "@" in urlsplit(str(url)).netloc for url in urls)


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
_SIGNING_KEYS: Final = tuple(f"signing_secrets_{key}" for key in _READERS)
