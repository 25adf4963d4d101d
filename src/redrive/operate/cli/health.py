"""`redrive health`: healthy, degraded or unhealthy, with the reasons; of one relay or worker, or of the whole by the
database.
"""

import asyncio
import json
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import click

from redrive.errors import InvalidValue, Unreachable
from redrive.operate import operations
from redrive.operate.cli import output
from redrive.operate.cli.context import Call, example, plain_command
from redrive.operate.cli.exit_codes import Exit
from redrive.operate.findings import findings
from redrive.operate.observe.health import Verdict
from redrive.operate.sanitize import one_line

SECONDS: Final = 5.0
BYTES_MAX: Final = 65_536
# What keeps work from being done at all; the other findings hinder it.
STOPS: Final = frozenset({"no_tenant", "unhandled"})


@click.command(
    "health", epilog=example("redrive health", "redrive health --url http://127.0.0.1:9464", "redrive health --strict")
)
@click.option(
    "--url", metavar="URL", help="Ask the relay or worker that listens there (--metrics-listen), not the database."
)
@click.option("--strict", is_flag=True, help="Exit with 6 when degraded, too.")
@plain_command
def command(call: Call, url: str | None, strict: bool) -> None:
    """Say whether all is well, in one word and the reasons.

    Exit code 0: healthy, or degraded; 6: unhealthy; 7: no answer. For a container's health check, or a script.
    """
    status, reasons = _of_process(url) if url else asyncio.run(_of_database(call))
    if call.json:
        output.document("health", {"status": status, "reasons": reasons})
    else:
        click.echo("\n".join([status, *(f"  {one_line(reason)}" for reason in reasons)]))
    bad = {Verdict.UNHEALTHY, Verdict.DEGRADED} if strict else {Verdict.UNHEALTHY}
    if status in bad:
        raise click.exceptions.Exit(Exit.FINDINGS)


async def _of_database(call: Call) -> tuple[Verdict, list[str]]:
    async with operations.opened(call.dsn) as store:
        found = findings(await operations.status(store))
    reasons = [f"{finding.subject}: {finding.detail}" for finding in found]
    if any(finding.code in STOPS for finding in found):
        return Verdict.UNHEALTHY, reasons
    return (Verdict.DEGRADED if found else Verdict.HEALTHY), reasons


def _of_process(url: str) -> tuple[Verdict, list[str]]:
    if not url.startswith(("http://", "https://")):
        raise InvalidValue(f"{url!r} is no address of a relay or a worker; one looks like http://127.0.0.1:9464.")
    answer = _asked(f"{url.rstrip('/')}/health")
    try:
        said = json.loads(answer)
        return Verdict(said["status"]), [str(reason) for reason in said["reasons"]]
    except (KeyError, TypeError, ValueError):
        raise Unreachable(
            "What answers there is neither a relay nor a worker.",
            next="see --metrics-listen of redrive relay and redrive worker",
        ) from None


def _asked(url: str) -> bytes:
    """An unhealthy process answers with status 503, and says why all the same."""
    try:
        with urlopen(url, timeout=SECONDS) as answer:  # noqa: S310 - http or https, looked at before
            return bytes(answer.read(BYTES_MAX))
    except HTTPError as error:
        return error.read(BYTES_MAX)
    except (URLError, OSError, HTTPException) as error:
        why = getattr(error, "reason", None) or type(error).__name__
        raise Unreachable(
            f"Neither a relay nor a worker answers at {url}: {why}.", next="start it with --metrics-listen"
        ) from None
