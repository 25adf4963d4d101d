"""What failed payloads of a group have in common that delivered ones have not: often the cause itself.

A value is shown only if several messages share it and it is a plain word, a small number, a boolean or null: anything
else may be personal data. Field names belong to the schema.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from redrive.redact import HIDDEN, text
from redrive.store.reads.dashboard import Sample, delivered_samples, group_samples
from redrive.store.reads.models import GroupView
from redrive.store.runtime.postgres import PostgresStore

FAILED_MAX: Final = 200  # payloads that are compared
DELIVERED_MAX: Final = 50
DEPTH_MAX: Final = 6
PATHS_MAX: Final = 400
SHARE_MIN: Final = 0.5  # of the failed ones
LIFT_MIN: Final = 0.25  # by which the share among the failed is above that among the delivered
SHARED_MIN: Final = 3  # messages that must share a value before it is named
SHOWN_MAX: Final = 8
MISSING: Final = "is missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """says: such as `= null` or `is missing`. share: of the failed, 0 to 1. delivered_share: None without any."""

    path: str
    says: str
    share: float
    delivered_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    failed: int
    delivered: int
    found: Sequence[Common]


async def compare(store: PostgresStore, group: GroupView) -> Compared:
    failed = await group_samples(store, group.fingerprint, limit=FAILED_MAX)
    delivered = await delivered_samples(store, group.destination, group.kind, limit=DELIVERED_MAX)
    return commonalities(_parsed(failed), _parsed(delivered))


def commonalities(failed: Sequence[Any], delivered: Sequence[Any]) -> Compared:
    if not failed:
        return Compared(failed=0, delivered=len(delivered), found=())
    bad, good = _traits(failed), _traits(delivered)
    every = {path for path, _ in (*bad, *good)}
    bad |= _missing(every, failed)
    good |= _missing(every, delivered)
    found = sorted(filter(None, (_common(key, bad, good, failed, delivered) for key in bad)), key=_rank)
    return Compared(failed=len(failed), delivered=len(delivered), found=_one_a_path(found)[:SHOWN_MAX])


Trait = tuple[str, str]


def _common(
    key: Trait, bad: Mapping[Trait, int], good: Mapping[Trait, int], failed: Sequence[Any], delivered: Sequence[Any]
) -> Common | None:
    share = bad[key] / len(failed)
    other = good.get(key, 0) / len(delivered) if delivered else None
    if share < SHARE_MIN or bad[key] < min(SHARED_MIN, len(failed)) or (other is not None and share - other < LIFT_MIN):
        return None
    if other is None and not _is_odd(key[1]):
        return None  # with nothing to compare with, only what looks wrong by itself is telling
    return Common(path=key[0], says=key[1], share=share, delivered_share=other)


def _is_odd(says: str) -> bool:
    return says in ("= null", '= ""', "= []", "= {}", MISSING)


def _rank(one: Common) -> tuple[float, int, str]:
    lift = one.share - (one.delivered_share or 0.0)
    return (-lift, 0 if _is_odd(one.says) else 1, one.path)


def _one_a_path(found: Iterable[Common]) -> list[Common]:
    return list({one.path: one for one in reversed(list(found))}.values())[::-1]


def _traits(payloads: Sequence[Any]) -> Counter[Trait]:
    return Counter(trait for payload in payloads for trait in set(_walk(payload, "", 0)))


def _walk(value: Any, path: str, depth: int) -> Iterator[Trait]:
    """Every place of a payload with what is there; a list counts as one place."""
    if isinstance(value, dict) and value and depth < DEPTH_MAX:
        for name in sorted(value)[:PATHS_MAX]:
            yield from _walk(value[name], f"{path}.{name}" if path else str(name), depth + 1)
    elif path:
        yield path, _said(value)


def _said(value: Any) -> str:
    match value:
        case None | bool() | [] | {} | "":
            return f"= {json.dumps(value)}"
        case str():
            return f'= "{value}"' if text(value, limit=40) == value else "is a text"
        case int() if abs(value) < 100_000:
            return f"= {value}"
        case int() | float():
            return "is a number"
        case list():
            return "is a list"
    return f"is {HIDDEN}"


def _missing(paths: Iterable[str], payloads: Sequence[Any]) -> Counter[Trait]:
    present = Counter(path for payload in payloads for path in {path for path, _ in _walk(payload, "", 0)})
    return Counter({(path, MISSING): len(payloads) - present[path] for path in paths if present[path] < len(payloads)})


def _parsed(samples: Iterable[Sample]) -> list[Any]:
    parsed = []
    for sample in samples:
        with suppress(ValueError):
            parsed.append(json.loads(sample.body))
    return parsed
