"""`redrive prove reviews`: relays killed between acceptance and write, judged by the providers' own logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from redrive.kit.proof.environment import ProofEnvironment
from redrive.kit.proof.proving import proving
from redrive.kit.proof.report import Progress, ProofReport, bound
from redrive.systems import reviews
from redrive.systems.reviews.prove.campaign import KILLS, Campaign


@dataclass(frozen=True, kw_only=True)
class ReviewsReport(ProofReport):
    proof = "reviews"

    def verdict(self) -> Iterator[str]:
        yield "Every recipient was notified exactly once per version where the provider can be asked, with the same"
        yield "bytes at each attempt; over SMTP at most once, and what is in doubt is held. No stage that was settled"
        yield "was repeated."
        killed = sum(count for name, count in self.counts.items() if name.startswith("relays killed"))
        if killed:
            yield (
                f"No violation in {killed} kills: at 95 % confidence fewer than {bound(killed):.2%} of such kills"
                " lead to one."
            )


def prove(*, seed: int, scale: float, dsn: str | None, progress: Progress) -> ReviewsReport:
    with proving(ProofEnvironment, seed=seed, scale=scale, dsn=dsn, systems=[reviews.system]) as proof:
        campaign = Campaign(proof.environment, seed, max(1, round(KILLS * scale)), progress)
        campaign.run()
        return ReviewsReport(**proof.facts(), counts=dict(campaign.counts), violations=campaign.violations)
