"""`redrive prove engine`: the engine's guarantees, run here and now, with real processes and real faults.

On its own server (or, with a DSN, in its own database): relays, producers, an observer; faults until the plan is
done; quiescence; the checker's verdict. Everything is removed afterwards.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Unpack

from redrive.kit.proof.database import ProofDatabase, open_proof_database
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.history_campaign import HistoryOptions
from redrive.kit.proof.loop_thread import loop_thread
from redrive.kit.proof.proxy import Proxy
from redrive.kit.proof.report import Progress
from redrive.prove import report
from redrive.prove.campaign import Campaign, Plan
from redrive.prove.environment import Environment
from redrive.prove.histories.engine import CAMPAIGN, HISTORIES
from redrive.prove.report import Report

# lease + reap + the time for which a killed reaper keeps its duty, then lookups and retries of what was in doubt.
DUTY_KEPT_SECONDS: Final = 10.0
RETRIES_SECONDS: Final = 40.0  # with a new process for every suspect


def prove(
    *,
    seed: int,
    scale: float,
    dsn: str | None,
    progress: Progress,
    **options: Unpack[HistoryOptions],
) -> Report:
    """Random histories need their own server, so with a DSN there are none by default."""
    began = time.monotonic()
    alone = CAMPAIGN.named(options)
    if alone is not None:
        told = CAMPAIGN.run([alone], progress=progress, say=print)
        return report.of_histories(told, seed=seed, scale=scale, seconds=time.monotonic() - began)
    ran = _campaign(seed=seed, scale=scale, dsn=dsn, progress=progress)
    histories = options.get("histories")
    if histories is None:
        histories = 0 if dsn else max(1, round(HISTORIES * scale))
    if not histories:
        return ran
    told = CAMPAIGN.run(CAMPAIGN.drawn(seed, histories), progress=progress)
    return report.with_histories(ran, told, seconds=time.monotonic() - began)


def _campaign(*, seed: int, scale: float, dsn: str | None, progress: Progress) -> Report:
    began = time.monotonic()
    with (
        open_directory() as directory,
        open_proof_database(directory, dsn) as database,
        _wire(directory, database.dsn, seed) as (wire, lose_reply),
        Environment(directory, database.dsn, wire=wire) as environment,
    ):
        environment.prepare()
        plan = Plan.of(seed=seed, scale=scale, own_server=database.restart is not None)
        campaign = Campaign(environment, plan, cut=lose_reply, restart=database.restart, progress=progress)
        campaign.run()
        return _judged(environment, campaign, database, seed=seed, scale=scale, began=began)


def _judged(
    environment: Environment, campaign: Campaign, database: ProofDatabase, *, seed: int, scale: float, began: float
) -> Report:
    quiet_seconds_max = (
        environment.config.lease_seconds + environment.config.reap_every_seconds + DUTY_KEPT_SECONDS + RETRIES_SECONDS
    )
    quiet_seconds = campaign.finish(seconds=quiet_seconds_max)
    evidence = environment.evidence()
    verdict = environment.verdict()
    unmet = [f"[step boundaries] {name} was never met." for name, count in campaign.tally.points.items() if not count]
    ended = [f"[processes] {complaint}" for complaint in campaign.tally.complaints]
    return Report(
        seed=seed,
        scale=scale,
        server=database.server,
        config=environment.config.printed(),
        seconds=time.monotonic() - began,
        quiet_seconds=quiet_seconds,
        quiet_seconds_max=quiet_seconds_max,
        counts=verdict.counts,
        faults=dict(campaign.tally.faults),
        destination_faults=dict(Counter(line["fault"] for line in evidence.lines("request") if line["fault"])),
        points=dict(campaign.tally.points),
        violations=[*verdict.sentences, *ended, *unmet],
    )


@contextmanager
def _wire(parent: Path, dsn: str, seed: int) -> Iterator[tuple[str, Callable[[], bool]]]:
    """The proxy in a thread of its own: the DSN through it, and how it loses a reply."""
    directory = parent / "wire"
    directory.mkdir()
    proxy = Proxy(directory, dsn, seed=seed)

    async def lose_reply() -> bool:
        return proxy.lose_reply()

    with loop_thread(proxy) as loop:
        yield proxy.dsn, lambda: loop.run(lose_reply())
