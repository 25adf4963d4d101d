"""`redrive config`: which settings are in force, and where each came from."""

from typing import Any, Final

import click

from redrive.operate import toml_destinations
from redrive.operate.cli import output
from redrive.operate.cli.context import Call, example, plain_command
from redrive.operate.cli.output import Column
from redrive.settings import TABLE, Settings
from redrive.store.runtime.open_store import without_secrets

_COLUMNS: Final = (Column("setting"), Column("value", fold=True), Column("from", fold=True))


@click.group()
def command() -> None:
    """The settings of this machine, as a command or a relay would take them."""


@command.command("show", epilog=example("redrive config show --origin", "redrive config show --json"))
@click.option(
    "--origin", is_flag=True, help="Also where each value comes from: a flag, a variable, a file, the default."
)
@plain_command
def show(call: Call, origin: bool) -> None:
    """Every setting and its value. No password is shown, and no database is needed."""
    items = _items(call.settings)
    if call.json:
        output.document("config", {"items": items, "destinations": _declared()})
        return
    shown = 3 if origin else 2
    rows = [["none" if value is None else value for value in item.values()][:shown] for item in items]
    output.show(output.table(_COLUMNS[:shown], rows))
    for name in _declared():
        output.note(f"The settings file declares the destination {name}.")


def _items(settings: Settings) -> list[dict[str, Any]]:
    origins = settings.origins()
    return [{"name": name, "value": _value(name, getattr(settings, name)), "origin": origins[name]} for name in TABLE]


def _value(name: str, value: Any) -> Any:
    return without_secrets(value) if TABLE[name].secret and value is not None else value


def _declared() -> list[str]:
    config = click.get_current_context().find_root().params.get("config")
    return toml_destinations.names(config)
