"""What a proof that tells random histories takes beside the options of every proof."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def history_options(count: int) -> tuple[Callable[[Any], Any], ...]:
    return (
        click.option(
            "--histories",
            type=click.IntRange(0),
            metavar="N",
            help=f"How many random histories. Default: {count} times the scale.",
        ),
        click.option(
            "--history",
            type=click.IntRange(0),
            metavar="SEED",
            help="Only this history, and print its script as it happens.",
        ),
        click.option(
            "--script",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Only the history that is written in this file, in the form in which histories are printed.",
        ),
    )
