"""`manage.py redrive`: our command line on Django's database.

`relay` runs the app that REDRIVE_APP names, `migrate` is `redrive db upgrade`, everything else is passed on.
"""

import argparse
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from redrive.django import database
from redrive.operate.cli.main import cli

APP = "redrive.django.app:app"
NAME = "manage.py redrive"


class Command(BaseCommand):
    help = (
        "The command line of Redrive on this project's database: relay, migrate, status, and every other command of"
        " `redrive`, such as `dead list`. `manage.py redrive relay --help` explains one."
    )
    requires_system_checks: Sequence[str] = []  # they would refuse what `migrate` is there to mend

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("args", nargs=argparse.REMAINDER, metavar="command", help="and its options")

    def handle(self, *words: str, **options: Any) -> None:
        arguments = ["--dsn", database.dsn(), *_translated(words or ("--help",))]
        try:
            with _logging_kept(), _streams(options):
                cli.main(args=arguments, prog_name=NAME)
        except SystemExit as end:
            if end.code and self._called_from_command_line:
                raise  # what went wrong was said
            if end.code:
                message = f"`redrive {' '.join(words)}` ended with exit code {end.code}."
                raise CommandError(message, returncode=int(end.code)) from None


def _translated(words: Sequence[str]) -> list[str]:
    first, *rest = words
    match first:
        case "migrate":
            return ["db", "upgrade", *rest]
        case "relay":
            if not getattr(settings, "REDRIVE_APP", None):
                raise CommandError('REDRIVE_APP is not set; it names your redrive.App, such as "shop.outbox:app".')
            return ["relay", APP, *rest]
        case _:
            return [first, *rest]


@contextmanager
def _streams(options: dict[str, Any]) -> Iterator[None]:
    """`call_command(…, stdout=…)` gets what a terminal would."""
    with ExitStack() as stack:
        if options.get("stdout"):
            stack.enter_context(redirect_stdout(options["stdout"]))
        if options.get("stderr"):
            stack.enter_context(redirect_stderr(options["stderr"]))
        yield


@contextmanager
def _logging_kept() -> Iterator[None]:
    """Our commands set up logging for their process; a program that calls one gets back what it had."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
