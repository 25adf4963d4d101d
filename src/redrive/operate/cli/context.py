"""What every command shares: `--dsn`, `--json`, the settings, and the open store. Errors go to `Commands.main`."""

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


def as_message_id(value: str) -> MessageId:
    try:
        return MessageId(UUID(value.strip()))
    except ValueError:
        example_id = "0199b2c4-7d1e-7a30-9c57-3f0a1b2c3d4e"
        raise click.BadParameter(f"{value!r} is no message id; one looks like {example_id}.") from None


def message_ids(*, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.argument(
        "ids", metavar="ID..." if required else "[ID]...", nargs=-1, required=required, type=as_message_id
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

    @setting_option("dsn")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
    @click.pass_context
    @wraps(body)
    def command(context: click.Context, /, *, dsn: str | None, as_json: bool, **values: Any) -> None:
        settings = load_settings(context, dsn=dsn)
        # Commands speak for themselves; log lines of libraries only when something is wrong with them.
        logs.configure(settings.log_format, "debug" if context.find_root().params.get("debug") else "error")
        body(Call(settings, as_json), **values)

    return command


def store_command(body: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The body gets a Call and the open store."""

    async def with_store(call: Call, values: dict[str, Any]) -> None:
        async with operations.opened(call.dsn) as store:
            await body(call, store, **values)

    @plain_command
    @wraps(body)
    def command(call: Call, **values: Any) -> None:
        asyncio.run(with_store(call, values))

    return command


def checked(check: Callable[[dict[str, Any]], None]) -> Callable[[Command], Command]:
    """Look at the arguments together, before anything is opened."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def look_first(*arguments: Any, **values: Any) -> Any:
            check(values)
            return command(*arguments, **values)

        return cast("Command", look_first)

    return decorate


def example(*lines: str) -> str:
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def narrowed(wanted: Mapping[str, Any]) -> bool:
    return any(value is not None for name, value in wanted.items() if name != "limit")
