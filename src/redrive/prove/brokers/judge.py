"""What must hold at the end, judged by the producers' journals and the consumer's effects. Pure.

Lost, twice, invented, overtaken, under a wrong key, or left over: each violation is a sentence.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

SHOWN_MAX = 20  # of one rule


class Effect(NamedTuple):
    """name: of the message, as its producer knows it. order_by: the ordering key that the event came with."""

    name: str
    order_by: str | None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """journals: the lines of each producer, in order. business: messages whose producer's own row is committed.
    effects: in the order in which they happened. left: what is still open, and how many of it."""

    journals: Sequence[Sequence[Mapping[str, Any]]]
    business: frozenset[str]
    effects: Sequence[Effect]
    left: Mapping[str, int]

    def committed(self) -> dict[str, str | None]:
        """Name to ordering key, of each producer in the order of its commits. What was under way when a producer lost
        its connection is committed if the producer's own row is."""
        found: dict[str, str | None] = {}
        for lines in self.journals:
            for line in _committed(lines, self.business):
                found.setdefault(line["key"], line["order_by"])
        return found


def judged(evidence: Evidence) -> list[str]:
    committed = evidence.committed()
    rules = {
        "lost": _lost(evidence, committed),
        "twice": _twice(evidence),
        "invented": _invented(evidence, committed),
        "key": _wrong_key(evidence, committed),
        "overtaken": _overtaken(evidence, committed),
        "left over": (f"{count} {what}." for what, count in evidence.left.items() if count),
    }
    return [sentence for rule, found in rules.items() for sentence in _shown(rule, list(found))]


def _committed(lines: Sequence[Mapping[str, Any]], business: frozenset[str]) -> Iterator[Mapping[str, Any]]:
    for line, after in zip(lines, [*lines[1:], {}], strict=True):
        if line["log"] != "intent":
            continue
        answered = after.get("log") if after.get("key") == line["key"] else None
        if answered == "ack" or (answered not in ("ack", "rolled_back") and line["key"] in business):
            yield line


def _lost(evidence: Evidence, committed: Mapping[str, Any]) -> Iterator[str]:
    there = {effect.name for effect in evidence.effects}
    yield from (f"{name} was committed, and has no effect." for name in committed if name not in there)


def _twice(evidence: Evidence) -> Iterator[str]:
    counts = Counter(effect.name for effect in evidence.effects)
    yield from (f"{name} has {count} effects." for name, count in counts.items() if count > 1)


def _invented(evidence: Evidence, committed: Mapping[str, Any]) -> Iterator[str]:
    names = dict.fromkeys(effect.name for effect in evidence.effects)
    yield from (f"{name} has an effect, and was not committed." for name in names if name not in committed)


def _wrong_key(evidence: Evidence, committed: Mapping[str, str | None]) -> Iterator[str]:
    for effect in evidence.effects:
        wanted = committed.get(effect.name, effect.order_by)
        if effect.order_by != wanted:
            yield f"{effect.name} came with the ordering key {effect.order_by}, and was committed with {wanted}."


def _overtaken(evidence: Evidence, committed: Mapping[str, str | None]) -> Iterator[str]:
    """By the first effect of each; one producer writes a key."""
    place = {name: number for number, name in enumerate(committed)}
    last: dict[str | None, str] = {}
    for name in dict.fromkeys(effect.name for effect in evidence.effects if effect.name in committed):
        before = last.setdefault(committed[name], name)
        if place[name] < place[before]:
            yield f"{name} was committed before {before} of the same key, and had its effect after it."
        else:
            last[committed[name]] = name


def _shown(rule: str, sentences: Sequence[str]) -> Iterator[str]:
    yield from (f"[{rule}] {sentence}" for sentence in sentences[:SHOWN_MAX])
    if len(sentences) > SHOWN_MAX:
        yield f"[{rule}] And {len(sentences) - SHOWN_MAX} more."
