"""Reads settings from `REDRIVE_*`, the file and the variables of others, each with the name of its origin.

A variable with our prefix that is no setting is refused, so that a misspelt one is not ignored.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource

from redrive.errors import SettingsError
from redrive.system import discover

if TYPE_CHECKING:
    from redrive.settings import RelayLimits, Setting

PREFIX: Final = "REDRIVE_"
FILE_NAME: Final = "redrive.toml"
ARGUMENT: Final = "argument"

# Variables with our prefix that are no settings: of the tests, the proofs, the embedded server and brokers, and
# those that Kubernetes and container links add on their own where a service is called `redrive`.
_OTHER_VARIABLES: Final = re.compile(
    r"REDRIVE_(CONFIG|DSN_FILE|(PG|TEST|PROVE|BENCH|KAFKA|MONGODB)_.*"
    r"|(.*_)?SERVICE_(HOST|PORT.*)|(.*_)?PORT(_.*)?)"
)
_LIBPQ_VARIABLES: Final = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE")
_FROM_LIBPQ: Final = "postgresql://"  # names nothing: libpq takes all of it from its own variables

Table = Mapping[str, "Setting"]


class Found(NamedTuple):
    values: dict[str, Any]
    origins: dict[str, str]


def from_elsewhere() -> Found:
    """A DSN in the variables of others; everything of ours goes before it."""
    if url := os.environ.get("DATABASE_URL"):
        return Found({"dsn": url}, {"dsn": "DATABASE_URL"})
    named = [name for name in _LIBPQ_VARIABLES if os.environ.get(name)]
    return Found({"dsn": _FROM_LIBPQ}, {"dsn": named[0]}) if named else Found({}, {})


class Read(NamedTuple):
    path: Path
    values: dict[str, Any]


def read_file(config: Path | str | None) -> Read | None:
    """The named file, which must exist, or `redrive.toml` of this directory if it does."""
    named = config or os.environ.get(f"{PREFIX}CONFIG")
    path = Path(named or FILE_NAME)
    if not named and not path.is_file():
        return None
    try:
        return Read(path, tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.", next="name another file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        advice = "write lines such as lease_seconds = 60"
        raise SettingsError(f"{path} is no TOML: {error}.", next=advice) from error


def from_file(config: Path | str | None) -> Found:
    """Without the destinations and systems, which `toml_destinations` reads."""
    read = read_file(config)
    if read is None:
        return Found({}, {})
    tables = {name for name, value in read.values.items() if isinstance(value, dict)}
    declared = {"destinations", *(discover() if tables else ())}
    values = {name: value for name, value in read.values.items() if name not in declared}
    return Found(values, {name: f"{name} in {read.path}" for name in values})


def from_environment(settings: type[RelayLimits]) -> Found:
    """An empty variable counts as absent."""
    _refuse_unknown_variables(settings.table())
    values = dict(EnvSettingsSource(settings)())
    names = {name: f"{PREFIX}{name.upper()}" for name in values}
    secret = os.environ.get(f"{PREFIX}DSN_FILE")
    if secret and "dsn" not in values:
        values["dsn"], names["dsn"] = _read_secret(Path(secret)), f"{PREFIX}DSN_FILE"
    return Found(values, names)


def from_flags(flags: Mapping[str, Any]) -> Found:
    """None means that a flag was not given."""
    values = {name: value for name, value in flags.items() if value is not None}
    return Found(values, {name: f"--{name.replace('_', '-')}" for name in values})


def explain(error: ErrorDetails, origins: Mapping[str, str], table: Table) -> SettingsError:
    if error["type"] == "contradiction":
        return SettingsError(f"{error['msg']}.", next=str(error.get("ctx", {}).get("next", "")))
    name = str(error["loc"][0])
    origin = origins.get(name, ARGUMENT)
    if name not in table:
        return _unknown(name, origin, table)
    setting = table[name]
    shown = "what was given" if setting.secret else repr(error["input"])
    place = "" if origin == ARGUMENT else f" (from {origin})"
    default = "none" if setting.default is None else setting.default
    return SettingsError(
        f"{name} is {shown}{place}; it must be {setting.allowed}.",
        next=f"give it such a value, or leave it out for the default, {default}",
    )


def _refuse_unknown_variables(table: Table) -> None:
    known = {setting.variable for setting in table.values()}
    for variable in sorted(os.environ):
        name = variable.upper()
        if name.startswith(PREFIX) and name not in known and not _OTHER_VARIABLES.fullmatch(name):
            raise _unknown(name.removeprefix(PREFIX).lower(), variable, table)


def _read_secret(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError as error:
        raise SettingsError(
            f"{PREFIX}DSN_FILE names {path}, which cannot be read: {error.strerror}.",
            next="make it readable, or use REDRIVE_DSN",
        ) from error


def _unknown(name: str, origin: str, table: Table) -> SettingsError:
    near = get_close_matches(name, table, n=1)
    advice = f"did you mean {near[0]}?" if near else f"known are: {', '.join(table)}"
    return SettingsError(f"There is no setting {name!r} (from {origin}).", next=advice)
