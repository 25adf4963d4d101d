"""`redrive payments rail`: a rail to try payments against, with a ledger of its own and faults by a seed."""

import asyncio
from contextlib import suppress
from pathlib import Path

import click

from redrive.kit.cli import example
from redrive.systems.payments.rail import script
from redrive.systems.payments.rail.script import Profile, Script


@click.command(
    "rail",
    epilog=example(
        "redrive payments rail --port 8900 --ledger rail.log",
        "redrive payments rail --ledger rail.log --faults lost_reply=10,late=5,unavailable=5 --seed 7",
        "redrive payments rail --ledger rail.log --profile lookup --late-seconds 0.5 2",
    ),
)
@click.option("--port", type=click.IntRange(0, 65_535), default=0, show_default=True, help="0: any that is free.")
@click.option(
    "--ledger",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="Its book: every request and every effect, on disk before the answer. An existing file is continued.",
)
@click.option("--faults", default="", metavar="NAME=PERCENT,…", help="What goes wrong, of a hundred requests.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed draws the same faults."
)
@click.option(
    "--profile",
    type=click.Choice([one.value for one in Profile]),
    default=Profile.TOKEN_AND_LOOKUP.value,
    show_default=True,
    help="What the rail can do about doubt.",
)
@click.option("--late-seconds", type=float, nargs=2, default=(0.1, 0.4), show_default=True, help="When late is.")
@click.option(
    "--retry-after-seconds", type=click.IntRange(0), default=1, show_default=True, help="What a 429 asks for."
)
def command(
    port: int,
    ledger: Path,
    faults: str,
    seed: int,
    profile: str,
    late_seconds: tuple[float, float],
    retry_after_seconds: int,
) -> None:
    """Run a rail on this machine until Ctrl-C; the first line that it prints is its address.

    Effects are what its ledger says. Faults: lost_reply, garbage, error_after, error_without_code, bad_gateway (it is
    paid, and you cannot know), late, in_progress, slow_late, refused_late (it is paid later), duplicate, slow, hang;
    reset, error_before, unavailable, throttled, insufficient_funds, account_closed, limit_exceeded,
    invalid_destination (nothing is paid); cannot_tell, lookup_lost (of questions).
    """
    from redrive.systems.payments.rail.server import RailSettings, serve  # loads the HTTP server

    settings = RailSettings(
        ledger=ledger,
        port=port,
        profile=Profile(profile),
        script=Script(
            seed=seed,
            faults=script.parsed(faults),
            late_seconds=late_seconds,
            retry_after_seconds=retry_after_seconds,
        ),
    )
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(settings))
