"""What the commands of reviews share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from typing import Any, Final

import click

from redrive.kit.cli import Call, output, system_command
from redrive.systems.reviews.request import PROVIDER, Recipient
from redrive.systems.reviews.submission import Submitted

reviews_command: Final = system_command("reviews")
_ADDRESS: Final = "ADDRESS[@@PROVIDER]"
_notify: Final = click.option("--notify", multiple=True, metavar=_ADDRESS, help="Who must be notified; repeatable.")
_inform: Final = click.option(
    "--inform", multiple=True, metavar=_ADDRESS, help="Who is notified too, if possible; repeatable."
)


def recipients_command(body: Callable[..., None]) -> Callable[..., None]:
    """A `reviews_command` with `--notify` and `--inform`; ada@example.org@@hooks is notified by provider `hooks`."""

    @wraps(body)
    def command(*args: Any, notify: tuple[str, ...], inform: tuple[str, ...], **values: Any) -> None:
        recipients = [_recipient(one, required=True) for one in notify]
        body(*args, recipients=recipients + [_recipient(one, required=False) for one in inform], **values)

    return _notify(_inform(reviews_command(command)))


def _recipient(given: str, *, required: bool) -> Recipient:
    address, _, provider = given.partition("@@")
    return Recipient(address, provider or PROVIDER, required)


def show_submitted(call: Call, submitted: Submitted) -> None:
    if call.json:
        output.document("review_submitted", asdict(submitted))
        return
    rows = [
        ("job", submitted.job_id),
        ("changelist", submitted.changelist_id),
        ("version", submitted.review_version),
        ("state", submitted.state),
    ]
    output.show(output.pairs(rows))
    if submitted.request_differs:
        output.note("It was submitted before with another request, and stays what it is.")
    elif submitted.already_existed:
        output.note("It was submitted before.")
