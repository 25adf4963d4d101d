"""What must hold at the end, judged by the producers' journals, the subscribers' ledger and the views. Pure.

Lost, twice, invented, at another tenant's endpoint, overtaken, shown wrongly, counted wrongly, delayed by a neighbour:
each violation is a sentence.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from redrive.systems.tenant.prove.plan import HOSTILE

SHOWN_MAX: Final = 10  # of one rule
# Generous, because the machine may be shared; without a limit key for each tenant it is many times as long.
MEDIAN_SECONDS_MAX: Final = 1.0
P99_SECONDS_MAX: Final = 20.0

Line = Mapping[str, Any]
Name = tuple[str, str]  # tenant, and the event's name within it


class Row(NamedTuple):
    """Of the view."""

    id: str
    tenant: str
    name: str
    key: str
    state: str
    is_processed: bool
    has_processed_at: bool
    retry_count: int
    error: str | None
    dead_letter: bool

    @property
    def event(self) -> Name:
        return self.tenant, self.name


class Counted(NamedTuple):
    """One number of the snapshot. counted: from the tables, by the proof itself. off_max: how far apart they may be."""

    what: str
    said: float
    counted: float
    off_max: float = 0.0

    @property
    def agrees(self) -> bool:
        return math.isclose(self.said, self.counted, rel_tol=1e-9, abs_tol=self.off_max)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """journals: lines of each producer. domain: events whose domain row is committed. ledger: lines of the subscribers,
    in their order. reaped: ids of events of which a claim was taken back. patience: the delays may be so many times as
    long, because the machine is busy."""

    journals: Sequence[Sequence[Line]]
    domain: frozenset[Name]
    ledger: Sequence[Line]
    rows: Sequence[Row]
    reaped: frozenset[str] = frozenset()
    snapshot: Sequence[Counted] = ()
    patience: float = 1.0
    allowed_dead: frozenset[Name] = field(default=frozenset())

    @cached_property
    def acks(self) -> Sequence[Line]:
        return [line for lines in self.journals for line in lines if line["log"] == "ack"]

    @cached_property
    def committed(self) -> frozenset[Name]:
        return self.domain | {(ack["tenant"], ack["name"]) for ack in self.acks}

    @cached_property
    def requests(self) -> Mapping[Name, Sequence[Line]]:
        return self._of("request")

    @cached_property
    def effects(self) -> Mapping[Name, Sequence[Line]]:
        return self._of("effect")

    def _of(self, log: str) -> Mapping[Name, Sequence[Line]]:
        found: dict[Name, list[Line]] = defaultdict(list)
        for line in self.ledger:
            if line["log"] == log:
                found[line["tenant"], line["name"]].append(line)
        return found


@dataclass(frozen=True, slots=True)
class Delays:
    """Of neighbours of the hostile tenant: from the commit that was told first to the effect."""

    count: int
    median: float
    p99: float
    longest: float


def judged(evidence: Evidence) -> list[str]:
    return [
        f"[{rule.__name__.lstrip('_')}] {sentence}"
        for rule in RULES
        for number, sentence in enumerate(rule(evidence))
        if number < SHOWN_MAX
    ]


def _lost(evidence: Evidence) -> Iterator[str]:
    """Each committed event had its effect, or is a dead letter with its reason where its endpoint refuses it."""
    rows = {row.event: row for row in evidence.rows}
    for event in sorted(evidence.committed):
        row = rows.get(event)
        if row is None:
            yield f"{_said(event)} was committed, and there is no event."
        elif row.dead_letter:
            if not row.error:
                yield f"{_said(event)} is a dead letter without a reason."
            if event not in evidence.allowed_dead:
                yield f"{_said(event)} is a dead letter, and its endpoint works: {row.error}."
        elif not evidence.effects.get(event):
            yield f"{_said(event)} was committed, and had no effect; it is {row.state}."


def _twice(evidence: Evidence) -> Iterator[str]:
    """One row and one key for an event, however often it was added; one effect at a subscriber that deduplicates."""
    for event, effects in evidence.effects.items():
        if len(effects) > 1:
            yield f"{_said(event)} had {len(effects)} effects, under {len({e['token'] for e in effects})} tokens."
    for event, count in Counter(row.event for row in evidence.rows).items():
        if count > 1:
            yield f"{_said(event)} has {count} rows."
    for (tenant, key), count in Counter((row.tenant, row.key) for row in evidence.rows).items():
        if count > 1:
            yield f"Key {key} of {tenant} has {count} rows."
    told: dict[Name, set[tuple[str, str]]] = defaultdict(set)
    for ack in evidence.acks:
        told[ack["tenant"], ack["name"]].add((ack["id"], ack["key"]))
    for event, answers in told.items():
        if len(answers) > 1:
            yield f"Producers were told {len(answers)} different ids or keys of {_said(event)}."


def _invented(evidence: Evidence) -> Iterator[str]:
    """Nothing of a transaction that was rolled back is there, or was sent."""
    for event in {row.event for row in evidence.rows} - evidence.committed:
        yield f"{_said(event)} was never committed, and has a row."
    for event in evidence.requests.keys() - evidence.committed:
        yield f"{_said(event)} was never committed, and was sent."


def _strayed(evidence: Evidence) -> Iterator[str]:
    for line in evidence.ledger:
        if line["log"] == "request" and line["endpoint"] != line["tenant"]:
            yield f"{_said((line['tenant'], line['name']))} was sent to the endpoint of {line['endpoint']}."


def _overtaken(evidence: Evidence) -> Iterator[str]:
    """An event with an order is not sent after a later one of its key has been."""
    latest: dict[tuple[str, str], int] = {}
    for line in evidence.ledger:
        if line["log"] != "request" or line["order_by"] is None:
            continue
        lane, version = (line["tenant"], line["order_by"]), int(line["name"].rpartition("/")[2])
        if version < latest.get(lane, 0):
            yield f"{_said((line['tenant'], line['name']))} was sent after version {latest[lane]}."
        latest[lane] = max(version, latest.get(lane, 0))


def _shown(evidence: Evidence) -> Iterator[str]:
    """ProcessedAt, Error and RetryCount of the view are what the ledger has: each request but the last one failed."""
    for row in evidence.rows:
        if row.is_processed != (row.state == "delivered") or row.has_processed_at != row.is_processed:
            yield f"{_said(row.event)} is {row.state}; IsProcessed is {row.is_processed}, ProcessedAt says otherwise."
        if row.is_processed and row.error is not None:
            yield f"{_said(row.event)} was delivered, and its Error is {row.error!r}."
        failed = len(evidence.requests.get(row.event, ())) - (1 if row.is_processed else 0)
        # A relay that was killed may have sent it without saying so: then the ledger has more than the view.
        fits = row.retry_count <= failed if row.id in evidence.reaped else row.retry_count == failed
        if not fits:
            yield f"{_said(row.event)} has RetryCount {row.retry_count}; in the ledger {failed} requests failed."


def _counted(evidence: Evidence) -> Iterator[str]:
    for one in evidence.snapshot:
        if not one.agrees:
            yield f"The snapshot says {one.said:g} {one.what}; the tables have {one.counted:g}."


def _delayed(evidence: Evidence) -> Iterator[str]:
    found = delays(evidence)
    for name, value, limit in (
        ("median", found.median, MEDIAN_SECONDS_MAX * evidence.patience),
        ("99th percentile", found.p99, P99_SECONDS_MAX * evidence.patience),
    ):
        if value > limit:
            yield f"The {name} of the neighbours' delay is {value:.1f} s, above {limit:.1f} s."


RULES: Final = (_lost, _twice, _invented, _strayed, _overtaken, _shown, _counted, _delayed)


def delays(evidence: Evidence) -> Delays:
    told: dict[Name, float] = {}
    for ack in evidence.acks:
        event = (ack["tenant"], ack["name"])
        told[event] = min(ack["at"], told.get(event, ack["at"]))
    waited = sorted(
        max(0.0, effects[0]["at"] - told[event])
        for event, effects in evidence.effects.items()
        if event in told and event[0] != HOSTILE
    )
    if not waited:
        return Delays(0, 0.0, 0.0, 0.0)
    last = len(waited) - 1
    return Delays(len(waited), waited[last // 2], waited[math.ceil(last * 0.99)], waited[-1])


def _said(event: Name) -> str:
    return f"{event[1]} of {event[0]}"
