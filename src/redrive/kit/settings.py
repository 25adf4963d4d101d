"""The tables of a system in `redrive.toml` (`System.from_settings`): a table becomes a dataclass, secrets are named."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from redrive.errors import SettingsError
from redrive.operate.toml_destinations import Place
from redrive.operate.toml_destinations import part as read_table

__all__ = ["Place", "only_keys", "read_table", "subtable"]


def only_keys(table: Mapping[str, Any], system: str, file: Path, *, known: Collection[str]) -> None:
    """Refuses a table of a system with a key that is not known."""
    for key in table:
        if key not in known:
            raise SettingsError(
                f"There is no key {key!r} in [{system}] of {file}.", next=f"its keys are {', '.join(known)}"
            )


def subtable(table: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    """The table that is at `place`; empty where there is none."""
    found = table.get(place.name, {})
    if not isinstance(found, dict):
        name = f"{place.table}.{place.name}"
        raise SettingsError(f"{name} in {place.file} must be a table.", next=f"write [{name}]")
    return found
