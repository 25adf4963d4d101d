"""`redrive prove payments`: two runs with thousands of payments, then random histories."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Unpack

from redrive.kit.proof.database import open_proof_database
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.environment import ProofEnvironment
from redrive.kit.proof.history_campaign import HistoryOptions
from redrive.kit.proof.report import Progress, ProofReport, bound, table
from redrive.systems import payments
from redrive.systems.payments.prove.campaign import Beyond, Within
from redrive.systems.payments.prove.config import BEYOND, WITHIN, Plan
from redrive.systems.payments.prove.history_campaign import CAMPAIGN, HISTORIES, Histories

IN_BEYOND: Final = "beyond: "
IN_HISTORIES: Final = "histories: "


@dataclass(frozen=True, kw_only=True)
class PaymentsReport(ProofReport):
    """counts: of the first run; others begin with `IN_BEYOND` or `IN_HISTORIES`."""

    proof = "payments"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def figures(self) -> Iterator[str]:
        within = {name: count for name, count in self.counts.items() if not name.startswith((IN_BEYOND, IN_HISTORIES))}
        if within:
            yield from table("Rails with token and lookup, late within lookup_after", within)
            yield from table("A rail that forgets tokens, late beyond lookup_after", self._of(IN_BEYOND))
        if self._of(IN_HISTORIES):
            yield from table("Random histories", self._of(IN_HISTORIES))
        for name, values in self.settings.items():
            yield ""
            yield f"Settings, {name}: " + ", ".join(f"{key} {value}" for key, value in values.items())

    def _of(self, prefix: str) -> dict[str, int]:
        return {name.removeprefix(prefix): count for name, count in self.counts.items() if name.startswith(prefix)}

    def verdict(self) -> Iterator[str]:
        if "payments" in self.counts:
            yield "Every instruction has one effect in the rails' ledgers, to the cent, in its participant's order and"
            yield "without gaps; the books agree, nothing is open, and what only a person can judge is held."
        if count := self._of(IN_HISTORIES).get("histories"):
            yield (
                f"No violation in {count} random histories: at 95 % confidence fewer than {bound(count):.2%} of such"
                " histories pay twice."
            )


def prove(
    *,
    seed: int,
    scale: float,
    dsn: str | None,
    progress: Progress,
    **options: Unpack[HistoryOptions],
) -> PaymentsReport:
    began = time.monotonic()
    alone = CAMPAIGN.named(options)
    campaigns = _Campaigns() if alone else _campaigns(seed=seed, scale=scale, dsn=dsn, progress=progress)
    count = options.get("histories")
    if count is None:
        count = max(1, round(HISTORIES * scale))
    if alone:
        told = CAMPAIGN.run([alone], progress=progress, say=print)
    else:
        told = CAMPAIGN.run(CAMPAIGN.drawn(seed, count), progress=progress) if count else Histories()
    return PaymentsReport(
        seed=seed,
        scale=scale,
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
            within = Within(environment, plan, progress, restart=database.restart)
            within.run()
            beyond = Beyond(environment, plan, progress)
            beyond.run()
        return _Campaigns(
            server=database.server,
            settings={"token and lookup": WITHIN.printed(), "lookup only": BEYOND.printed()},
            counts={**within.counts, **{f"{IN_BEYOND}{name}": count for name, count in beyond.counts.items()}},
            violations=[*within.violations, *beyond.violations],
        )
