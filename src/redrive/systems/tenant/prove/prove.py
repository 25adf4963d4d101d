"""`redrive prove tenant`: the campaign on a PostgreSQL of its own, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from redrive.kit.proof.database import open_proof_database
from redrive.kit.proof.directories import open_directory
from redrive.kit.proof.environment import ProofEnvironment
from redrive.kit.proof.report import Progress, ProofReport, bound, table
from redrive.systems import tenant
from redrive.systems.tenant.prove.campaign import Campaign, Parts
from redrive.systems.tenant.prove.judge import Delays, Evidence, delays, judged
from redrive.systems.tenant.prove.plan import Plan


@dataclass(frozen=True, kw_only=True)
class TenantReport(ProofReport):
    """faults: how many of each kind. hostile: what the hostile tenant's endpoint did. delay: of its neighbours."""

    proof = "tenant"
    faults: Mapping[str, int]
    hostile: Mapping[str, int]
    delay: Delays

    def document(self) -> dict[str, Any]:
        return {**super().document(), "bound": bound(self.counts["committed"])}

    def figures(self) -> Iterator[str]:
        yield from table("Events", self.counts)
        yield from table("Faults", self.faults)
        yield from table("The hostile tenant's endpoint", self.hostile)
        yield ""
        yield (
            f"Delay of {self.delay.count:,} events of its neighbours, from commit to effect: median"
            f" {self.delay.median:.3f} s, 99th percentile {self.delay.p99:.3f} s, longest {self.delay.longest:.3f} s"
        )

    def verdict(self) -> Iterator[str]:
        events = self.counts["committed"]
        yield "Each committed event had its effect once, at its own tenant, or is a dead letter with its reason;"
        yield "views and snapshot agree with the ledger and the tables, and the neighbours were not held up."
        yield f"No violation in {events:,} events: at 95 % confidence fewer than {bound(events):.3%} meet one."


def prove(*, seed: int, scale: float, dsn: str | None, progress: Progress, parts: Parts | None = None) -> TenantReport:
    """parts: what runs; None = what comes with Redrive."""
    began = time.monotonic()
    with open_directory() as directory, open_proof_database(directory, dsn, systems=[tenant.system]) as database:
        plan = Plan.of(seed=seed, scale=scale, own_server=database.restart is not None)
        with ProofEnvironment(directory, database.dsn) as environment:
            campaign = Campaign(environment, plan, parts=parts or Parts(), progress=progress, restart=database.restart)
            evidence = campaign.run()
    return TenantReport(
        seed=seed,
        scale=scale,
        server=database.server,
        seconds=time.monotonic() - began,
        counts=_counts(plan, evidence),
        faults=dict(campaign.faults),
        hostile=_hostile(evidence),
        delay=delays(evidence),
        violations=[*campaign.complaints, *judged(evidence)],
    )


def _counts(plan: Plan, evidence: Evidence) -> dict[str, int]:
    logs = [line["log"] for lines in evidence.journals for line in lines]
    return {
        "tenants": len(plan.tenants),
        "transactions begun": logs.count("intent"),
        "of them rolled back": logs.count("rolled_back"),
        "committed": len(evidence.committed),
        "adds of an event that was known": len(evidence.acks) - len({(a["tenant"], a["name"]) for a in evidence.acks}),
        "requests": sum(len(lines) for lines in evidence.requests.values()),
        "effects": sum(len(lines) for lines in evidence.effects.values()),
        "repeats that a subscriber absorbed": sum(line["log"] == "repeat" for line in evidence.ledger),
        "dead letters": sum(row.dead_letter for row in evidence.rows),
        "events with a claim taken back": len(evidence.reaped),
        "numbers of the snapshot compared": len(evidence.snapshot),
    }


def _hostile(evidence: Evidence) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in evidence.ledger:
        if line["log"] == "request" and line["fault"]:
            found[line["fault"]] = found.get(line["fault"], 0) + 1
    return dict(sorted(found.items()))
