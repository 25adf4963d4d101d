"""How the command line ends: one number and one sentence for every kind of failure.

The numbers are a promise to scripts and are never reused.
"""

from enum import IntEnum
from typing import Any, Final

import click

from redrive.errors import (
    ActRefused,
    NotAllowed,
    NotFound,
    OperatorError,
    RedriveError,
    SchemaError,
    SettingsError,
    Unreachable,
    UsageError,
)
from redrive.ports import TransientFailure


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    NOT_ALLOWED = 4
    REFUSED = 5
    FINDINGS = 6
    UNREACHABLE = 7
    INTERRUPTED = 130


EXIT_CODES_HELP: Final = """\b
Exit codes:
  0 done               4 not allowed
  1 failed             5 refused: does not fit the state
  2 wrong usage        6 there are findings
  3 not found          7 database unreachable"""

# The first that fits decides.
_EXITS: Final[tuple[tuple[type[BaseException], Exit], ...]] = (
    (click.UsageError, Exit.USAGE),
    (UsageError, Exit.USAGE),
    (SettingsError, Exit.USAGE),
    (NotFound, Exit.NOT_FOUND),
    (NotAllowed, Exit.NOT_ALLOWED),
    (ActRefused, Exit.REFUSED),
    (SchemaError, Exit.REFUSED),
    (Unreachable, Exit.UNREACHABLE),
    (TransientFailure, Exit.UNREACHABLE),
    (KeyboardInterrupt, Exit.INTERRUPTED),
    (click.Abort, Exit.INTERRUPTED),
)


def exit_of(error: BaseException) -> Exit:
    return next((number for kind, number in _EXITS if isinstance(error, kind)), Exit.FAILED)


def problem(error: BaseException) -> dict[str, Any]:
    """By RFC 9457; `next` is the command that helps, or empty."""
    number = exit_of(error)
    code = error.code if isinstance(error, RedriveError) else number.name
    return {
        "type": f"urn:redrive:error:{code}",
        "title": "Wrong usage" if number is Exit.USAGE else number.name.replace("_", " ").capitalize(),
        "detail": _detail(error, number),
        "code": code,
        "next": _next(error),
    }


def _detail(error: BaseException, number: Exit) -> str:
    match error:
        case OperatorError():
            return error.message
        case click.ClickException():
            return error.format_message()
        case TransientFailure():
            return f"The database does not answer ({error})."
        case RedriveError():
            return str(error)
    if number is Exit.INTERRUPTED:
        return "Interrupted."
    # The text of an unexpected exception may hold anything; its type is enough to report it.
    return f"Something went wrong that should not ({type(error).__module__}.{type(error).__qualname__})."


def _next(error: BaseException) -> str:
    match error:
        case OperatorError():
            return error.next
        case click.UsageError() if error.ctx is not None:
            return f"{error.ctx.command_path} --help"
        case TransientFailure():
            return "check --dsn (REDRIVE_DSN) and whether the server runs"
        case _ if exit_of(error) is Exit.FAILED:
            return "run it again with --debug to see where"
    return ""
