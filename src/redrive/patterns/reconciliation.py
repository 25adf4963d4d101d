"""Three-way reconciliation: what was asked for, what our archive says became of it, what the other side's ledger says.

    verdict = match(items, effects)          # pure: findings with evidence, and what is late
    await collect(read, keep, after=cursor)  # the other side's ledger, page by page, from where one was

A late success of something that is parked or waits is no finding: it is confirmed with the ledger's reference, and
never sent again. Whatever cannot be explained is a finding. See `redrive.systems.payments.reconcile`.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

PAGES_MAX: Final = 10_000


class Kind(StrEnum):
    """What can be wrong.

    unexplained: an effect without an item. twice: more than one effect of one item. differs: other terms than
    asked for. other_reference: delivered under another reference than the ledger's. other_token: delivered, and in the
    ledger under a token that no attempt of it used, without a reference that ties the two. missing: delivered, and not
    in the ledger. given_up: in the ledger, and closed as not sent.
    """

    UNEXPLAINED = "unexplained"
    TWICE = "twice"
    DIFFERS = "differs"
    OTHER_REFERENCE = "other_reference"
    OTHER_TOKEN = "other_token"  # noqa: S105 - no password
    MISSING = "missing"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that was asked for, and what the archive says became of it.

    key: by which the ledger's effects name it. terms: what must be the same there. told: what must be the same where
    the ledger says it. versions: by token, what of `told` differs for what was sent under that one. tokens: under which
    it was or would be sent; empty = not compared. state: pending, leased, dead, held, unrecorded, or how it was closed.
    at: since when. in_doubt: it may have been sent. evidence: shown beside a finding.
    """

    key: str
    terms: Mapping[str, object]
    state: str
    reference: str | None = None
    at: datetime | None = None
    in_doubt: bool = False
    told: Mapping[str, object] = field(default_factory=dict)
    tokens: Collection[str] = ()
    versions: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One entry of the other side's ledger. key: of its item; None = it has none. token: None = the ledger does not
    say.
    """

    cursor: str
    key: str | None
    terms: Mapping[str, object]
    reference: str | None = None
    token: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """subject: the item's key, or the entry's cursor where it has none."""

    kind: Kind
    subject: str
    sentence: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """Parked or still waiting, but it happened: to be confirmed."""

    item: Item
    effect: Effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """agreed: keys of items that are over on all sides. open: how many are still under way on one of them."""

    findings: Sequence[Finding] = ()
    late: Sequence[Late] = ()
    agreed: Sequence[str] = ()
    open: int = 0


def match(items: Iterable[Item], effects: Iterable[Effect], *, complete_until: datetime | None = None) -> Verdict:
    """complete_until: the ledger has everything that happened before; what was delivered later is not missing yet."""
    by_key: dict[str, list[Effect]] = defaultdict(list)
    strangers: list[Effect] = []
    for effect in effects:
        if effect.key is None:
            strangers.append(effect)
        else:
            by_key[effect.key].append(effect)
    judged = [_judge(item, by_key.pop(item.key, []), complete_until) for item in items]
    strangers += [effect for left in by_key.values() for effect in left]
    return Verdict(
        findings=[one for one in judged if isinstance(one, Finding)] + [_unexplained(one) for one in strangers],
        late=[one for one in judged if isinstance(one, Late)],
        agreed=[one for one in judged if isinstance(one, str)],
        open=sum(one is None for one in judged),
    )


def _judge(item: Item, effects: Sequence[Effect], complete_until: datetime | None) -> Finding | Late | str | None:
    """A finding, a late success, the key where all sides agree, None where it is still under way."""
    if len(effects) > 1:
        return _finding(Kind.TWICE, item, effects, f"{item.key} has {len(effects)} effects in the ledger.")
    if not effects:
        return _without_effect(item, complete_until)
    effect = effects[0]
    told = {**item.told, **item.versions.get(effect.token or "", {})}
    asked = {**item.terms, **{name: value for name, value in told.items() if name in effect.terms}}
    differing = [name for name, value in asked.items() if effect.terms.get(name) != value]
    if differing:
        others = ", ".join(f"{name} {effect.terms.get(name)}, not {asked[name]}" for name in differing)
        return _finding(Kind.DIFFERS, item, effects, f"{item.key} has another effect in the ledger: {others}.")
    return _with_effect(item, effect)


def _without_effect(item: Item, complete_until: datetime | None) -> Finding | str | None:
    if item.state in _UNDER_WAY or item.state in _PARKED:
        return None
    if item.state != "delivered":
        return item.key
    if complete_until is not None and (item.at is None or item.at > complete_until):
        return None
    return _finding(Kind.MISSING, item, (), f"{item.key} is delivered, and the ledger does not have it.")


def _with_effect(item: Item, effect: Effect) -> Finding | Late | str | None:
    match item.state:
        case "delivered":
            if None not in (item.reference, effect.reference) and item.reference != effect.reference:
                sentence = f"{item.key} is delivered as {item.reference}; the ledger has it as {effect.reference}."
                return _finding(Kind.OTHER_REFERENCE, item, [effect], sentence)
            is_tied = item.reference is not None and item.reference == effect.reference
            if item.tokens and effect.token is not None and effect.token not in item.tokens and not is_tied:
                sentence = f"{item.key} is delivered, and the ledger has it under the token {effect.token}, not ours."
                return _finding(Kind.OTHER_TOKEN, item, [effect], sentence)
            return item.key
        case "dead" | "held" | "pending":
            return Late(item=item, effect=effect)
        case "leased" | "unrecorded":
            return None
    sentence = f"{item.key} was {item.state}, and the ledger has it as {effect.reference}."
    return _finding(Kind.GIVEN_UP, item, [effect], sentence)


def _finding(kind: Kind, item: Item, effects: Sequence[Effect], sentence: str) -> Finding:
    evidence = {
        **item.evidence,
        "state": item.state,
        "reference": item.reference,
        "asked": _plain(item.terms),
        "ledger": [_entry(effect) for effect in effects],
    }
    return Finding(kind=kind, subject=item.key, sentence=sentence, evidence=evidence)


def _unexplained(effect: Effect) -> Finding:
    sentence = f"The ledger has {effect.reference} at {effect.cursor}, and no intent asked for it."
    subject = effect.key or f"cursor {effect.cursor}"
    return Finding(kind=Kind.UNEXPLAINED, subject=subject, sentence=sentence, evidence={"ledger": [_entry(effect)]})


def _entry(effect: Effect) -> dict[str, Any]:
    return {**effect.evidence, "cursor": effect.cursor, "reference": effect.reference, **_plain(effect.terms)}


def _plain(terms: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in terms.items()}


_UNDER_WAY: Final = frozenset({"pending", "leased"})
_PARKED: Final = frozenset({"dead", "held", "unrecorded"})


@dataclass(frozen=True, slots=True)
class Page:
    """next: where the following page begins; None = this is the last."""

    entries: Sequence[Mapping[str, Any]]
    next: str | None


async def collect(
    read: Callable[[str | None], Awaitable[Page]],
    keep: Callable[[Page], Awaitable[str | None]],
    *,
    after: str | None,
    pages_max: int = PAGES_MAX,
) -> int:
    """Read on from `after` until the ledger ends; returns how many entries. Each page is kept before the next is asked
    for.

    keep: stores a page and the cursor behind it, together; returns that cursor.
    """
    count = 0
    for _ in range(pages_max):
        page = await read(after)
        count += len(page.entries)
        if page.entries:
            after = await keep(page)
        if page.next is None or not page.entries:
            break
    return count
