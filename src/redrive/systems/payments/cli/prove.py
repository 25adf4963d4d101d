"""What `redrive prove payments` takes beside the options of every proof."""

from __future__ import annotations

from typing import Final

import click

PROVE_OPTIONS: Final = (
    click.option(
        "--histories",
        type=click.IntRange(0),
        metavar="N",
        help="How many random histories. Default: 200 times the scale.",
    ),
    click.option(
        "--history",
        type=click.IntRange(0),
        metavar="SEED",
        help="Only this history, and print its script as it happens.",
    ),
)
