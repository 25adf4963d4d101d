"""`redrive prove payments`: two runs with thousands of payments, then random histories."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redrive.kit.proof.database import open_proof_database
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.environment import ProofEnvironment
from redrive.kit.proof.report import Progress, commit
from redrive.systems import payments
from redrive.systems.payments.prove.campaign import Beyond, Within
from redrive.systems.payments.prove.config import BEYOND, WITHIN, Plan
from redrive.systems.payments.prove.history_campaign import CAMPAIGN, HISTORIES, Histories
from redrive.systems.payments.prove.report import BEYOND as IN_BEYOND
from redrive.systems.payments.prove.report import IN_HISTORIES, PaymentsReport


def prove(
    *,
    seed: int,
    scale: float,
    dsn: str | None,
    progress: Progress,
    histories: int | None = None,
    history: int | None = None,
    script: Path | None = None,
) -> PaymentsReport:
    """history: only the one of this seed. script: only the one that is written there."""
    began = time.monotonic()
    alone = CAMPAIGN.named(history, script)
    campaigns = _Campaigns() if alone else _campaigns(seed=seed, scale=scale, dsn=dsn, progress=progress)
    count = max(1, round(HISTORIES * scale)) if histories is None else histories
    if alone:
        told = CAMPAIGN.run([alone], progress=progress, say=print)
    else:
        told = CAMPAIGN.run(CAMPAIGN.drawn(seed, count), progress=progress) if count else Histories()
    return PaymentsReport(
        seed=seed,
        scale=scale,
        commit=commit(),
        server=campaigns.server or told.server,
        seconds=time.monotonic() - began,
        settings=campaigns.settings,
        counts={**campaigns.counts, **{f"{IN_HISTORIES}{name}": count for name, count in told.counts().items()}},
        violations=[*campaigns.violations, *told.violations],
    )


@dataclass(frozen=True, kw_only=True)
class _Campaigns:
    server: str = ""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    violations: Sequence[str] = ()


def _campaigns(*, seed: int, scale: float, dsn: str | None, progress: Progress) -> _Campaigns:
    with open_directory() as directory, open_proof_database(directory, dsn, systems=[payments.system]) as database:
        plan = Plan.of(seed=seed, scale=scale, own_server=database.restart is not None)
        with ProofEnvironment(directory, database.dsn, limits=WITHIN.limits()) as environment:
            within = Within(environment, plan, database, progress)
            within.run()
            beyond = Beyond(environment, plan, progress)
            beyond.run()
        return _Campaigns(
            server=database.server,
            settings={"token and lookup": WITHIN.printed(), "lookup only": BEYOND.printed()},
            counts={**within.counts, **{f"{IN_BEYOND}{name}": count for name, count in beyond.counts.items()}},
            violations=[*within.violations, *beyond.violations],
        )
