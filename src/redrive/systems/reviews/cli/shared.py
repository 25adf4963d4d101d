"""What the commands of reviews share."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import click

from redrive.kit.cli import Call, output, system_command
from redrive.systems.reviews.request import PROVIDER, Recipient
from redrive.systems.reviews.submission import Submitted

reviews_command: Final = system_command("reviews")
notify_option: Final = click.option(
    "--notify", "notify", multiple=True, metavar="ADDRESS[@@PROVIDER]", help="Who must be notified; repeatable."
)
optional_option: Final = click.option(
    "--inform",
    "inform",
    multiple=True,
    metavar="ADDRESS[@@PROVIDER]",
    help="Who is notified too, if possible; repeatable.",
)


def recipients(notify: tuple[str, ...], inform: tuple[str, ...]) -> list[Recipient]:
    """ada@example.org@@hooks: by the provider `hooks`."""
    return [_recipient(one, required=True) for one in notify] + [_recipient(one, required=False) for one in inform]


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
