"""A command group that imports a command when it is used, and says which extra is missing; options of a proof."""

from collections.abc import Collection
from importlib import import_module

import click

from redrive.errors import SettingsError
from redrive.operate.cli.histories import history_options

__all__ = ["CommandGroup", "history_options"]


class CommandGroup(click.Group):
    """commands: the modules of a package that have a `command` each. extra: the libraries of the system's extra."""

    def __init__(
        self, name: str, *, package: str, commands: Collection[str], extra: Collection[str] = (), about: str
    ) -> None:
        super().__init__(name, help=about)
        self._package = package
        self._modules = sorted(commands)
        self._extra = extra

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return self._modules

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._modules:
            return None
        try:
            found: click.Command = import_module(f"{self._package}.{cmd_name}").command
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in self._extra:
                raise
            raise SettingsError(
                f"redrive {self.name} needs {error.name}.", next=f"pip install 'redrive[{self.name}]'"
            ) from error
        return found
