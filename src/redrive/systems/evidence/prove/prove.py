"""`redrive prove evidence`: kills and a restart while files are attached, judged by the Case API's own ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from redrive.kit.proof.database import open_proof_database
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.environment import ProofEnvironment
from redrive.kit.proof.report import Progress, ProofReport, bound
from redrive.systems import evidence
from redrive.systems.evidence.prove import app
from redrive.systems.evidence.prove.campaign import FIRST, Campaign
from redrive.systems.evidence.prove.plan import ROWS, planned
from redrive.systems.evidence.prove.rules import judged

KILLS = 50


@dataclass(frozen=True, kw_only=True)
class EvidenceReport(ProofReport):
    """settings: by their names in `redrive.toml`, shortened for the proof."""

    proof = "evidence"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def figures(self) -> Iterator[str]:
        yield from super().figures()
        yield ""
        yield "Settings, shortened for the proof"
        yield from (f"  {name} = {value}" for name, value in self.settings.items())

    def verdict(self) -> Iterator[str]:
        yield "Each file is attached exactly once, or has failed with the class that is true of it. Each upload had N1"
        yield "once and N2 once, with the judge's numbers; roll-ups are those of a recomputation."
        killed = sum(count for name, count in self.counts.items() if "killed" in name)
        if killed:
            yield (
                f"No violation in {killed} kills: at 95 % confidence fewer than {bound(killed):.2%} of such kills lead "
                f"to one."
            )


def prove(
    *, seed: int, scale: float, dsn: str | None, progress: Progress, module: str = Campaign.module
) -> EvidenceReport:
    """module: has the app of relays and workers."""
    began = time.monotonic()
    rows, kills = max(len(FIRST) * 2, round(ROWS * scale)), max(len(FIRST), round(KILLS * scale))
    with (
        open_directory() as directory,
        open_proof_database(directory, dsn, systems=[evidence.system]) as database,
        ProofEnvironment(directory, database.dsn) as environment,
    ):
        jobs = planned(seed=seed, rows=rows, jobs=kills)
        campaign = Campaign(environment, seed, jobs, progress, module)
        violations = judged(campaign.run())
        return EvidenceReport(
            seed=seed,
            scale=scale,
            server=database.server,
            seconds=time.monotonic() - began,
            counts=dict(campaign.counts),
            violations=[*campaign.violations, *violations],
            settings=app.SETTINGS.documented(),
        )
