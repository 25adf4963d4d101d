"""`redrive prove reviews`: relays killed between acceptance and write, judged by the providers' own logs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from redrive.kit.proof.database import open_proof_database
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.environment import ProofEnvironment
from redrive.kit.proof.report import Progress, ProofReport, bound
from redrive.systems import reviews
from redrive.systems.reviews.prove.campaign import KILLS, Campaign


@dataclass(frozen=True, kw_only=True)
class ReviewsReport(ProofReport):
    proof = "reviews"

    def verdict(self) -> Iterator[str]:
        yield (
            "Every recipient was notified exactly once per version where the provider can be asked, with "
            "the same bytes at"
        )
        yield "each attempt; over SMTP at most once, and what is in doubt is held. No settled stage was repeated."
        killed = sum(count for name, count in self.counts.items() if name.startswith("relays killed"))
        if killed:
            yield (
                f"No violation in {killed} kills: at 95 % confidence fewer than {bound(killed):.2%} of such "
                f"kills lead to one."
            )


def prove(*, seed: int, scale: float, dsn: str | None, progress: Progress) -> ReviewsReport:
    began = time.monotonic()
    with (
        open_directory() as directory,
        open_proof_database(directory, dsn, systems=[reviews.system]) as database,
        ProofEnvironment(directory, database.dsn) as environment,
    ):
        campaign = Campaign(environment, seed, max(1, round(KILLS * scale)), progress)
        campaign.run()
        return ReviewsReport(
            seed=seed,
            scale=scale,
            server=database.server,
            seconds=time.monotonic() - began,
            counts=dict(campaign.counts),
            violations=campaign.violations,
        )
