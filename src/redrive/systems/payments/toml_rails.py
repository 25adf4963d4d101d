"""Rails declared in `redrive.toml`: `[payments.rails.NAME]`, with the fields of `Rail`.

Secrets are named, as with a destination: `headers_env`, `headers_file`, `url_env`, `url_file`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from redrive import System
from redrive.errors import SettingsError
from redrive.kit.settings import Place, read_table
from redrive.systems.payments.rails import Rail, with_rails

RAILS: Final = "rails"


def from_settings(table: Mapping[str, Any], file: Path) -> System:
    unknown = [key for key in table if key != RAILS]
    if unknown:
        raise SettingsError(
            f"There is no key {unknown[0]!r} in [payments] of {file}.", next="write [payments.rails.NAME] with url = …"
        )
    rails = table.get(RAILS, {})
    if not isinstance(rails, dict) or not all(isinstance(one, dict) for one in rails.values()):
        raise SettingsError(f"payments.{RAILS} in {file} must be tables.", next=f"write [payments.{RAILS}.NAME]")
    return with_rails([_rail(name, one, file) for name, one in rails.items()])


def _rail(name: str, table: Mapping[str, Any], file: Path) -> Rail:
    place = Place(name, file, f"payments.{RAILS}")
    return read_table(Rail, place, table, rail_type=name)
