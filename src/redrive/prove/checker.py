"""Judges a run from its evidence alone. Shares no code with the engine.

The rules are in `store_rules`, `effect_rules`, `order_rules` and `limit_rules`; `tests/crash/test_checker.py`
breaks each of them once.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from redrive.prove import effect_rules, limit_rules, order_rules, store_rules
from redrive.prove.config import Config
from redrive.prove.effect_rules import is_late
from redrive.prove.evidence import Evidence
from redrive.prove.store_rules import Rule

RULES: Final[Mapping[str, Rule]] = {**store_rules.RULES, **effect_rules.RULES, **order_rules.RULES, **limit_rules.RULES}
SHOWN_PER_RULE_MAX: Final = 20


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """violations: by rule, the first few of each. counts: for the report."""

    violations: Mapping[str, Sequence[str]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def sentences(self) -> list[str]:
        return [f"[{rule}] {sentence}" for rule, found in self.violations.items() for sentence in found]


def check(evidence: Evidence, config: Config) -> Verdict:
    """Every rule, also after another one failed."""
    violations: dict[str, list[str]] = {}
    for name, rule in RULES.items():
        found = list(rule(evidence, config))
        if len(found) > SHOWN_PER_RULE_MAX:
            found = [*found[:SHOWN_PER_RULE_MAX], f"… and {len(found) - SHOWN_PER_RULE_MAX} more."]
        if found:
            violations[name] = found
    return Verdict(violations=violations, counts={**_counts(evidence), **limit_rules.counts(evidence, config)})


def _counts(evidence: Evidence) -> dict[str, int]:
    closed = Counter(row["closed"] for row in evidence.attempts if row["closed"])
    parked = Counter(row["reason"] for row in evidence.parked)
    verbs = Counter(row["verb"] for row in evidence.attempts)
    effects = Counter(line["id"] for line in evidence.lines("effect"))
    return {
        "messages": len(evidence.messages),
        "messages in order": sum(row["order_by"] is not None for row in evidence.messages),
        "ordering keys": len(evidence.counters),
        **{f"closed as {name}": count for name, count in sorted(closed.items())},
        **{f"parked as {name}": count for name, count in sorted(parked.items())},
        "still open": len(evidence.pending) + len(evidence.leases),
        "claims": sum(verbs[verb] for verb in ("settle", "complete", "hand_back", "reap")),
        "claims reaped": verbs["reap"],
        "claims handed back": verbs["hand_back"],
        "late answers refused and kept": len(evidence.late),
        "requests seen": sum(1 for _ in evidence.lines("request")),
        "lookups seen": sum(line["call"] == "lookup" for line in evidence.lines("request")),
        "effects seen": sum(effects.values()),
        "messages with more than one effect (resend)": sum(count > 1 for count in effects.values()),
        "late sends stopped by their token": sum(is_late(evidence, line) for line in evidence.lines("repeat")),
    }
