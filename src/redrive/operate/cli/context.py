"""What every command shares: `--dsn`, `--json`, the settings, and the open store. Errors go to `Commands.main`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast
from uuid import UUID

import click

from redrive.errors import SettingsError
from redrive.message import MessageId
from redrive.operate import logs, operations
from redrive.operate.cli.local_server import running_dsn
from redrive.settings import TABLE, Settings

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Call:
    settings: Settings
    json: bool

    @property
    def dsn(self) -> str:
        return database_of(self.settings)


def database_of(settings: Settings) -> str:
    """The DSN that was named, or that of the embedded server which runs."""
    dsn = settings.dsn or running_dsn(settings)
    if dsn is None:
        raise SettingsError(
            "No database is named, and no embedded server runs.",
            next="--dsn postgresql://user@host/database, or set REDRIVE_DSN, or start `redrive up`",
        )
    return dsn


def load_settings(context: click.Context, **flags: Any) -> Settings:
    shared = context.find_root().params
    dsn = flags.pop("dsn", None) or shared.get("dsn")
    return Settings.load(config=shared.get("config"), dsn=dsn, **flags)


def setting_option(name: str, flag: str | None = None) -> Callable[[Command], Command]:
    """As its row in the table describes it; `Settings` checks the value."""
    setting = TABLE[name]
    kind = setting.kind if setting.kind in (int, float) else str
    words = f"[{'|'.join(setting.choices)}]" if setting.choices else name.rsplit("_", maxsplit=1)[-1].upper()
    metavar = words if kind is str else None
    help_text = setting.help.split(". ")[0].removesuffix(".")
    return click.option(flag or setting.flag, name, type=kind, metavar=metavar, help=f"{help_text}.")


class IdType(click.ParamType[MessageId]):
    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> MessageId:
        try:
            return MessageId(value if isinstance(value, UUID) else UUID(str(value).strip()))
        except ValueError:
            self.fail(f"{value!r} is no message id; one looks like 0199b2c4-7d1e-7a30-9c57-3f0a1b2c3d4e.", param, ctx)


MESSAGE_ID = IdType()


def message_ids(*, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.argument(
        "ids", metavar="ID..." if required else "[ID]...", nargs=-1, required=required, type=MESSAGE_ID
    )


def filter_options(*names: str, word: str = "Only") -> Callable[[Command], Command]:
    whats = {name: name.replace("_", " ") for name in names} | {"group": "failure group (the beginning of its id)"}
    return taking(
        *(click.option(f"--{name.replace('_', '-')}", help=f"{word} of this {whats[name]}.") for name in names)
    )


def taking(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """In the order in which the help shows them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def plain_command(body: Callable[..., None]) -> Callable[..., None]:
    """For a command that does not use the store: the body gets a Call."""

    @wraps(body)
    def command(context: click.Context, /, *, dsn: str | None, as_json: bool, **values: Any) -> None:
        body(_call(context, dsn=dsn, as_json=as_json), **values)

    return _common_options(command)


def store_command(body: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The body gets a Call and the open store."""

    @wraps(body)
    def command(call: Call, **values: Any) -> None:
        asyncio.run(_with_store(call, body, values))

    return plain_command(command)


def checked(check: Callable[[dict[str, Any]], None]) -> Callable[[Command], Command]:
    """Look at the arguments together, before anything is opened."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def look_first(*arguments: Any, **values: Any) -> Any:
            check(values)
            return command(*arguments, **values)

        return cast("Command", look_first)

    return decorate


async def _with_store(call: Call, body: Callable[..., Awaitable[None]], values: dict[str, Any]) -> None:
    async with operations.opened(call.dsn) as store:
        await body(call, store, **values)


def _common_options(command: Callable[..., None]) -> Callable[..., None]:
    command = click.pass_context(command)
    command = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")(
        command
    )
    return setting_option("dsn")(command)


def _call(context: click.Context, *, dsn: str | None, as_json: bool) -> Call:
    settings = load_settings(context, dsn=dsn)
    # Commands speak for themselves; log lines of libraries only when something is wrong with them.
    logs.configure(settings.log_format, "debug" if context.find_root().params.get("debug") else "error")
    return Call(settings, as_json)


def example(*lines: str) -> str:
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def narrowed(wanted: Mapping[str, Any]) -> bool:
    return any(value is not None for name, value in wanted.items() if name != "limit")
